"""GCFL's chapter: its runs, its theory, its figures.

| module | what |
|---|---|
| `claims` | what the paper says, judged |
| `figures` | its records as frames and pictures |
| `tasks` | the runs behind its tables |
| `theory` | what can be checked without data |
| `printed.csv` | the paper's own numbers |
"""

from . import claims, figures, tasks, theory

__all__ = ["claims", "figures", "tasks", "theory"]
