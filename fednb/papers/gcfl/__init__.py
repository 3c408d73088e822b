"""GCFL's chapter: its runs, its theory, its figures.

| module | what |
|---|---|
| `claims` | what the paper says, judged |
| `figures` | its records as frames and pictures |
| `priors` | what a client's majority class alone gives |
| `tasks` | the runs behind its tables |
| `theory` | what can be checked without data |
| `printed.csv` | the paper's own numbers |
"""

from . import claims, figures, priors, tasks, theory

__all__ = ["claims", "figures", "priors", "tasks", "theory"]
