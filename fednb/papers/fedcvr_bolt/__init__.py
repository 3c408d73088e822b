"""FedCVR-Bolt's chapter: its runs, their outcomes, its theory, its figures.

| module | what |
|---|---|
| `claims` | its claims, judged on the records |
| `figures` | its pictures, and small live runs |
| `outcomes` | its records as frames and tables |
| `tasks` | the runs behind its tables |
| `theory` | what can be checked without data |
| `words` | sentences of its chapter that numbers complete |
| `printed.csv` | the paper's own numbers |
"""

from . import claims, figures, outcomes, tasks, theory, words

__all__ = ["claims", "figures", "outcomes", "tasks", "theory", "words"]
