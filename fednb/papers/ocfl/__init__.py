"""OCFL's chapter: its runs, their outcomes, its theory, its figures.

| module | what |
|---|---|
| `archive` | the authors' own runs |
| `arms` | several methods in step |
| `claims` | what the paper says, judged |
| `explain` | saliency maps and their curves |
| `figures` | its pictures, and small live runs |
| `outcomes` | its records as frames and tables |
| `tasks` | the runs behind its tables |
| `theory` | what can be checked without data |
| `printed.csv` | the paper's own numbers |
"""

from . import archive, arms, claims, explain, figures, outcomes, tasks, theory

__all__ = [
    "archive",
    "arms",
    "claims",
    "explain",
    "figures",
    "outcomes",
    "tasks",
    "theory",
]
