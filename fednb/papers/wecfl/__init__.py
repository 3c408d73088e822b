"""WeCFL's chapter: its runs, their outcomes, its theory, its figures, its claims.

| module | what |
|---|---|
| `claims` | the paper's claims, judged on the records |
| `deals` | which classes the tables' clients hold, and what these alone give |
| `figures` | its pictures, and small live runs |
| `outcomes` | its records as frames and tables |
| `tasks` | the runs behind its tables |
| `theory` | what can be checked without data |
| `words` | sentences of its chapter that numbers complete |
| `__main__` | writes the records that need no training |
| `printed.csv` | the paper's own numbers |
"""

from . import claims, deals, figures, outcomes, tasks, theory, words

__all__ = ["claims", "deals", "figures", "outcomes", "tasks", "theory", "words"]
