"""FedGWC's chapter: its runs, their outcomes, its theory, its figures.

| module | what |
|---|---|
| `claims` | what the paper says, judged |
| `controls` | FedGWC's rules side by side, and controls that fork from it |
| `figures` | its pictures, and small live runs |
| `outcomes` | its records as frames and numbers |
| `priors` | what a client's majority class alone gives |
| `shown` | its tables |
| `tasks` | the runs behind its tables |
| `theory` | what can be checked without data |
| `__main__` | writes the records that need no training |
| `printed.csv` | the paper's own numbers |
"""

from . import claims, controls, figures, outcomes, priors, shown, tasks, theory

__all__ = [
    "claims",
    "controls",
    "figures",
    "outcomes",
    "priors",
    "shown",
    "tasks",
    "theory",
]
