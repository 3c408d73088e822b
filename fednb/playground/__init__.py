"""A federation to play with: choose, press Run, and watch it learn.

``Playground()`` is a panel of widgets for JupyterLab. What it does is in four modules
that need no browser: ``settings`` (what was chosen, as tasks and as code), ``session``
(runs in threads: run, pause, continue, stop, reset), ``forms`` (widgets made from a
dataclass) and ``pictures`` (what a run looks like, live and in the printed book).
"""

from .forms import Form, PresetError
from .panel import Playground
from .pictures import played, tour
from .session import Session
from .settings import Settings

__all__ = ["Form", "Playground", "PresetError", "Session", "Settings", "played", "tour"]
