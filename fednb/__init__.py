"""fednb: clustered federated learning on models that are rows of a matrix.

The public names below load on first use, so that ``import fednb`` is cheap.
"""

from importlib import import_module

__version__ = "0.2.0"

_HOME = {  # public name -> module that holds it
    "Federation": "federation",
    "Local": "training",
    "History": "history",
    "run": "experiment",
    "sweep": "sweeps",
}
_MODULES = (
    *(
        "clustering",
        "conv",
        "data",
        "experiment",
        "federation",
        "history",
        "methods",
        "metrics",
        "models",
        "papers",
    ),
    *(
        "backends",
        "params",
        "partition",
        "plots",
        "reference",
        "reproduce",
        "show",
        "similarity",
        "store",
        "training",
    ),
    *("claims", "contract", "door", "playground", "ranks", "sweeps", "tables"),
    *("views", "widgets"),
)

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str):
    if name in _HOME:
        return getattr(import_module(f"fednb.{_HOME[name]}"), name)
    if name in _MODULES:
        return import_module(f"fednb.{name}")
    raise AttributeError(f"module 'fednb' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
