"""GCFL's chapter: its runs, their outcomes, its theory, its figures.

| module | what |
|---|---|
| `claims` | what the paper says, judged |
| `controls` | GCFL that clusters the participants of a round only |
| `figures` | its pictures, and small live runs |
| `outcomes` | its records as frames and tables |
| `priors` | what a client's majority class alone gives |
| `tasks` | the runs behind its tables |
| `theory` | what can be checked without data |
| `words` | sentences of its chapter that numbers complete |
| `__main__` | writes the record that needs no training |
| `printed.csv` | the paper's own numbers |
"""

from . import claims, controls, figures, outcomes, priors, tasks, theory, words

__all__ = [
    "claims",
    "controls",
    "figures",
    "outcomes",
    "priors",
    "tasks",
    "theory",
    "words",
]
