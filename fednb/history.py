"""What a run leaves behind: a line per evaluated round, the final state, the events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import checks

if TYPE_CHECKING:
    from pandas import DataFrame

    from .door import Event, Meter


class History:
    """Rounds of a run.

    ``history.frame()`` is a tidy table, ``history.state`` the last state, ready to go
    on from. Each line has ``round`` (1 is after the first round), ``client_updates``,
    ``bytes``, ``events`` (how many so far; ``history.events`` tells which), ``seconds``
    and ``server_seconds``, the metrics, ``clusters`` (how many models are in use) and
    ``labels`` (which model serves each client). ``history.meter`` is the traffic in the
    end. ``server_seconds`` is the processor time of the thread that runs the method:
    on a CPU the clients train on other threads, so it is the server's arithmetic, and
    the preparation of the clients' batches.
    """

    def __init__(self, rows: Iterable[dict[str, Any]] = (), state: Any = None) -> None:
        self.rows: list[dict[str, Any]] = list(rows)
        self.state = state
        self.events: list[Event] = []
        self.interrupted = False
        self.meter: Meter | None = None

    def add(self, **row: Any) -> None:
        """Append one line."""
        self.rows.append(row)

    @property
    def final(self) -> dict[str, Any]:
        """The last line."""
        if not self.rows:
            raise ValueError("the run was not evaluated even once")
        return self.rows[-1]

    def mean_of_last(self, n: int, name: str = "accuracy") -> float:
        """Mean of a metric over the last n evaluated rounds; WeCFL reports n = 3."""
        checks.argument("mean_of_last", "n", n, checks.integer(1))
        values = [row[name] for row in self.rows[-n:]]
        return float(sum(values) / len(values))

    def frame(self) -> DataFrame:
        """All lines as a table."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        if not self.rows:
            return "History(empty)"
        numbers = {k: v for k, v in self.final.items() if isinstance(v, float)}
        shown = ", ".join(
            f"{name}={value:.4g}" for name, value in list(numbers.items())[:6]
        )
        return f"History(round {self.final['round']}: {shown})"
