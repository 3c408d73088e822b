"""The paper's numbers beside ours, and paired comparisons.

A chapter reads the records of its tasks as one `frame` and shows them with `beside`.
What a run means in a table (its row, its setting) stands in the ``tags`` of its task;
they meet the records by key. What they say about a claim is in `fednb.claims`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from math import isnan, nan, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import store

if TYPE_CHECKING:
    from pandas import DataFrame, MultiIndex

    from .sweeps import Task

FACTS = (
    "dataset",
    "seed",
    "rounds",
    "profile",
    "client_updates",
    "bytes",
    "seconds",
    "data_note",
)
# No colours: lines take the text's, in light and dark. A class that is named twice
# outweighs JupyterLab's rules for tables.
STYLE = """
.bd-content div.cell_output .text_html:has(.fednb-table) {
  background: none !important; color: inherit !important; padding: 0 !important;
}
.fednb-table { overflow-x: auto; container-type: inline-size; margin: 0.5rem 0 1rem; }
.fednb-table:focus-visible { outline: 2px solid; outline-offset: -2px; }
.fednb-table table {
  border-collapse: collapse; margin: 0;
  font-size: 0.85rem; font-variant-numeric: tabular-nums;
}
.fednb-table caption {
  caption-side: top; color: inherit; padding: 0 0 0.5rem; text-align: left;
}
.fednb-table caption span {
  display: block; position: sticky; left: 0; width: 100cqi; max-width: 100%;
}
.fednb-table :is(th, td) {
  padding: 0.15rem 0.45rem; text-align: right; vertical-align: top; white-space: nowrap;
}
.fednb-table :is(thead, tbody) { border-bottom: 1px solid; }
.fednb-table.fednb-table tbody tr { background: none; }
.fednb-table.fednb-table-numbers tbody th { font-weight: normal; text-align: left; }
.fednb-table.fednb-table-numbers thead th[colspan] { text-align: center; }
.fednb-table.fednb-table-numbers thead th[rowspan] {
  text-align: left; vertical-align: bottom;
}
.fednb-table-numbers tbody tr:has(th + th + th) { border-top: 1px solid; }
.fednb-table-numbers tbody tr:has(th + th) > * { padding-top: 0.4rem; }
.fednb-table-numbers tbody tr:has(th + th) > :is(td, th:last-of-type) { opacity: 0.75; }
.fednb-table.fednb-table-words :is(th, td) {
  text-align: left; white-space: normal; min-width: 8rem;
}
.fednb-table-words tbody > * > * { padding-top: 0.4rem; }
.fednb-table.fednb-table-words :is(th, td):is(:nth-child(2), :last-child) {
  white-space: nowrap; min-width: 0;
}
.fednb-table-words tbody th { font-weight: normal; }
"""


@dataclass(frozen=True, repr=False)
class Table:
    """What `beside` and `verdicts` return: ``html`` for a notebook, or ``text``."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


# --- records as a frame ---------------------------------------------------------------


def frame(
    tasks: Iterable[Task], path: str | Path, last: int = 1, course: bool = False
) -> DataFrame:
    """One line per task, in order: its tags, facts of its run, and final metrics.

    With ``last=3``, a metric that has a curve is its mean over the last three evaluated
    rounds, as in WeCFL. With ``course`` a further column has each run's curves, a frame
    with a line per evaluated round. ``path`` is ``.../<paper>/<table>.json``; if it
    lacks records, the error says how to make them.
    """
    import pandas as pd

    tasks = list(tasks)
    if not tasks or last < 1 or len({tuple(task.tags) for task in tasks}) > 1:
        raise ValueError(
            f"{len(tasks)} tasks, last={last}: need at least 1 of each, and the same "
            "tags in every task"
        )
    records = _records(tasks, Path(path))
    tags = [task.tags for task in tasks]
    facts = []
    for record in records:
        run = {name: record.get(name, "") for name in FACTS}
        facts.append(run | _metrics(record, last))
    out = pd.concat([pd.DataFrame(tags), pd.DataFrame(facts)], axis=1)
    if course:
        courses = [_course(record) for record in records]
        out.insert(len(out.columns), "course", courses, allow_duplicates=True)
    if out.columns.has_duplicates:
        twice = [*out.columns[out.columns.duplicated()]]
        raise ValueError(
            f"a tag is called {twice}, like a column of the records: rename the tag"
        )
    return out


def printed(csv: str | Path, table: str, **types: str) -> DataFrame:
    """A paper's own numbers: the lines of a file with this ``table``.

    Columns that they leave empty are left out.
    """
    import pandas as pd

    numbers = pd.read_csv(csv, dtype={"table": str} | types)
    if table not in set(numbers["table"]):
        raise ValueError(
            f"{csv} has no table {table!r}: there are "
            f"{', '.join(numbers['table'].unique())}"
        )
    return (
        numbers[numbers["table"] == table]
        .drop(columns="table")
        .dropna(axis=1, how="all")
    )


def curves(
    tasks: Iterable[Task], path: str | Path, tag: str = "row"
) -> dict[Any, list[DataFrame]]:
    """The curves of a figure's runs: for each value of a tag a list of frames.

    There is a frame for each run, with a line per round.
    """
    tasks = list(tasks)
    out: dict[Any, list[DataFrame]] = {}
    for task, record in zip(tasks, _records(tasks, Path(path)), strict=True):
        out.setdefault(task.tags[tag], []).append(_course(record))
    return out


def _course(record: dict[str, Any]) -> DataFrame:
    """A run's curves, a line per evaluated round."""
    import pandas as pd

    if not record["metrics"].get("curves"):
        raise ValueError(
            f"{record['method']} has no curves: name them in Task(curves=...)"
        )
    return pd.DataFrame(record["metrics"]["curves"])


def _records(tasks: Sequence[Task], path: Path) -> list[dict[str, Any]]:
    """The record of each task; if some are missing, the error says how to make them.

    If a run must be repeated because its code was corrected, its old record is used
    until then: see `pending`.
    """
    keys = [task.key for task in tasks]
    records = by_key(path)
    missing = [task for task in tasks if task.key not in records]
    if missing:
        table = f"{path.parent.name} --table {path.stem}"
        command = f"python -m fednb.reproduce {table} --profile"
        profiles = dict.fromkeys(task.profile for task in missing)
        commands = " and ".join(f"{command} {profile}" for profile in profiles)
        commands += f", or your own tasks with sweep(tasks, {str(path)!r})"
        count = len({task.key for task in missing})
        words = f"{path} lacks {count} of {len(set(keys))} records"
        if not path.exists():
            raise FileNotFoundError(f"{words}; make them with {commands}")
        raise ValueError(f"{words}; make them with {commands}")
    found = [records[key] for key in keys]
    _check_same_data(found, path)
    return found


def by_key(path: str | Path) -> dict[str, dict[str, Any]]:
    """The records of a table by key.

    A run that must be repeated has its old record under its new key.
    """
    path = Path(path)
    records = {record["key"]: record for record in store.read(path)}
    for key, note in store.read_pending(path.parent).items():
        if key not in records and note["stands_in"] in records:
            records[key] = records[note["stands_in"]]
    return records


def pending(tasks: Iterable[Task], path: str | Path) -> dict[str, str]:
    """The runs of a table that still use an old record: from key to what differs."""
    path = Path(path)
    have = {record["key"] for record in store.read(path)}
    notes = store.read_pending(path.parent)
    keys = [task.key for task in tasks]
    return {key: notes[key]["why"] for key in keys if key not in have and key in notes}


def _check_same_data(records: list[dict[str, Any]], path: Path) -> None:
    """Runs of a table on one data set must have had the same file of it."""
    files: dict[str, str] = {}
    for record in records:
        name = record["dataset"]
        if files.setdefault(name, record["data_sha256"]) != record["data_sha256"]:
            raise ValueError(
                f"{path} mixes runs on different files of {name}: make the table with "
                "one file of it, in a folder of its own (--out)"
            )


def _metrics(record: dict[str, Any], last: int) -> dict[str, float]:
    """Final numbers, or means over the last rounds where there is a curve.

    None in a record is nan.
    """
    final = record["metrics"]["final"]
    curves = record["metrics"].get("curves", {})
    numbers = {}
    for name, value in final.items():
        if value is None:
            numbers[name] = nan
        elif isinstance(value, int | float):
            numbers[name] = value
    if last == 1:
        return numbers
    if not curves:
        raise ValueError(
            f"last={last} needs curves, and {record['method']} has none: name them in "
            "Task(curves=...)"
        )
    return numbers | {
        k: float(np.mean(np.array(curves[k][-last:], float)))
        for k in numbers
        if k in curves
    }


def summary(frame: DataFrame, by: Sequence[str], value: str) -> DataFrame:
    """Mean, sample standard deviation and number of runs of a metric, per group.

    Groups come in order of first appearance. Runs without a number (nan) do not count;
    a single run has no standard deviation (nan).
    """
    _need(frame, [*by, value])
    return (
        frame.groupby(list(by), sort=False)[value]
        .agg(mean="mean", std="std", n="count")
        .reset_index()
    )


def _need(frame: DataFrame, columns: Iterable[str]) -> None:
    if absent := [name for name in columns if name not in frame]:
        raise ValueError(
            f"no column {', '.join(map(repr, absent))}: there are "
            f"{', '.join(map(str, frame.columns))}"
        )


def _keyed(frame: DataFrame, by: Sequence[str]) -> dict[tuple, dict[str, Any]]:
    """Lines by their values in the columns ``by``; no two lines may agree in all."""
    lines: dict[tuple, dict[str, Any]] = {}
    for line in frame.to_dict("records"):
        key = tuple(line[name] for name in by)
        if key in lines:
            raise ValueError(
                f"two lines have {', '.join(by)} = {key}: name the column that tells "
                "them apart"
            )
        lines[key] = line
    return lines


# --- the paper's numbers beside ours --------------------------------------------------


def beside(
    frame: DataFrame,
    paper: DataFrame,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    value: str,
    caption: str,
    percent: bool = True,
    best: Callable | None = max,
    digits: int = 2,
    theirs: str = "paper",
) -> Table:
    """The paper's mean ± std and below it ours, in a grid of tags.

    The tags are named by ``rows=["K", "row"], columns=["dataset"]``. ``paper`` has the
    same tag columns, ``value``, and ``<value>_std`` where there is one, in the units of
    ``frame``; with ``percent`` both are shares, and shown times 100. A cell that only
    one side has shows a dash for the other. Rows and columns come in the frame's order,
    then the paper's. Our best of a column is bold; ``best=min`` where less is better.
    ``theirs`` is the label of the paper's lines. Profile, seeds and data are added to
    the caption.
    """
    by = [*rows, *columns]
    names = [value, f"{value}_std"]
    if not rows or not columns:
        raise ValueError(
            f"rows={rows}, columns={columns}: name at least one tag for each"
        )
    _need(frame, [*by, *FACTS, value])
    _need(paper, [*by, value])
    _keyed(frame, [*by, "seed"])  # a cell is a mean over seeds, and over nothing else
    if percent and any(
        (side.filter(names).abs() > 1).any(axis=None) for side in (frame, paper)
    ):
        raise ValueError(
            f"{value} goes beyond 1: with percent=True give shares in [0, 1], else say "
            "percent=False"
        )
    means = summary(frame, by, value)
    scale = 1
    unit = ""
    if percent:
        scale = 100
        unit = " in %"
    ours = {
        key: (scale * line["mean"], scale * line["std"])
        for key, line in _keyed(means, by).items()
    }
    printed = {
        key: tuple(scale * line.get(name, nan) for name in names)
        for key, line in _keyed(paper, by).items()
    }
    grid = _grid(ours, printed, rows, columns, best, digits, theirs)
    bold = ""
    if best is not None:
        bold = "; bold: our best per column"
    origin = _provenance(frame, value, means["n"])
    spread = f"Mean ± standard deviation over seeds{unit}{bold}."
    whole = f"{caption} {origin} {spread}"
    return Table(_page(caption, whole, *_html(grid)), f"{whole}\n\n{grid.to_string()}")


def _grid(
    ours: dict,
    printed: dict,
    rows: Sequence,
    columns: Sequence,
    best: Callable | None,
    digits: int,
    theirs: str,
) -> DataFrame:
    """Cells as text, two lines for each row: the paper's, named ``theirs``, and ours.

    Our best of a column stands between double stars.
    """
    import pandas as pd

    keys = [*ours, *printed]
    cells = {}
    left = _ordered(key[: len(rows)] for key in keys)
    for column in _ordered(key[len(rows) :] for key in keys):
        in_paper = [printed.get(row + column, (nan, nan)) for row in left]
        in_ours = [ours.get(row + column, (nan, nan)) for row in left]
        known = [round(mean, digits) for mean, _ in in_ours if not isnan(mean)]
        first = nan
        if best is not None and known:
            first = best(known)
        texts = []
        for (mean, std), (our_mean, our_std) in zip(in_paper, in_ours, strict=True):
            texts.append(_cell(mean, std, digits))
            text = _cell(our_mean, our_std, digits)
            if round(our_mean, digits) == first:  # what looks equal is equally good
                text = f"**{text}**"
            texts.append(text)
        cells[_head(columns, column)] = texts
    index = [(*map(str, key), source) for key in left for source in (theirs, "ours")]
    return pd.DataFrame(
        [*zip(*cells.values(), strict=True)],
        pd.MultiIndex.from_tuples(index, names=[*rows, "source"]),
        pd.MultiIndex.from_tuples(cells),
    )


def _cell(mean: float, std: float, digits: int) -> str:
    """Mean ± standard deviation; without the latter if it is nan."""
    if isnan(mean):
        return "–"
    if isnan(std):
        return f"{mean:z.{digits}f}"
    return f"{mean:z.{digits}f} ± {std:.{digits}f}"


def _head(tags: Sequence[str], values: Sequence[Any]) -> tuple[Any, ...]:
    """The head of a column: a number is shown with the name of its tag."""
    head = []
    for tag, value in zip(tags, values, strict=True):
        if isinstance(value, int):
            value = f"{tag} = {value}"
        head.append(value)
    return tuple(head)


def _ordered(keys: Iterable[tuple]) -> list[tuple]:
    """Each key once, in order of first appearance; those that begin alike together."""
    keys = list(dict.fromkeys(keys))
    heads = dict.fromkeys(k[:n] for k in keys for n in range(len(k) + 1))
    place = {head: i for i, head in enumerate(heads)}
    return sorted(keys, key=lambda k: [place[k[:n]] for n in range(len(k) + 1)])


def _provenance(frame: DataFrame, value: str, n: Any) -> str:
    """Where our numbers come from: profile, seeds, data, and runs without a number."""
    data = [
        f"{name} ({note})" if note else name
        for name, note in frame[["dataset", "data_note"]].drop_duplicates().to_numpy()
    ]
    parts = [
        f"profile {', '.join(frame['profile'].unique())}",
        f"seeds {', '.join(map(str, sorted(frame['seed'].unique())))}",
        f"data {', '.join(data)}",
    ]
    if n.min() < n.max():
        parts.append(f"{n.min()} to {n.max()} runs per cell")
    if lost := frame[value].isna().sum():
        parts.append(f"{lost} of {len(frame)} runs have no number")
    return f"Ours: {'; '.join(parts)}."


# --- comparisons and claims -----------------------------------------------------------


class Pair(NamedTuple):
    """Paired differences a - b: their mean, its 95 % t-interval, and each of them.

    ``wins`` says in how many of n pairs a is higher. ``points`` says that the values
    are shares, whose differences are told in percent points.
    """

    mean: float
    low: float
    high: float
    wins: int
    n: int
    points: bool
    differences: DataFrame

    @property
    def short(self) -> str:
        """Mean and interval for a cell of a table: ``+1.2 (-0.3 to +2.7)``.

        They are in percent points if ``points``.
        """
        mean, low, high = self._numbers(digits=2)
        return f"{mean} ({low} to {high})"

    def _numbers(self, digits: int) -> list[str]:
        """Mean and ends as text: points with one digit, or so many digits in all."""
        if self.points:
            return [f"{100 * x:+z.1f}" for x in self[:3]]
        return [f"{x:+z.{digits}g}" for x in self[:3]]

    def __str__(self) -> str:
        mean, low, high = self._numbers(digits=3)
        if self.points:
            mean += " points"
        interval = "one pair gives no interval"
        if self.n > 1:
            interval = f"95 % interval {low} to {high}"
        wins = f"higher in {self.wins} of {self.n} pairs"
        return f"{mean} ({interval}; {wins})"

    def __repr__(self) -> str:
        return str(self)


def paired(
    frame: DataFrame,
    tag: str,
    a: Any,
    b: Any,
    value: str,
    by: Sequence[str],
    *,
    percent: bool | None = None,
) -> Pair:
    """Compare two values of a tag, a - b, on runs that agree in all of ``by``.

    Say ``by=["dataset", "setting", "seed"]``. The interval takes the differences as
    independent. It is nan for a single pair: then a rule like ``pair.low > 0`` cannot
    be tested. ``percent`` tells if the values are shares; by default they are when all
    lie in [0, 1].
    """
    import pandas as pd

    _need(frame, [tag, value, *by])
    left = _keyed(frame[frame[tag] == a], by)
    right = _keyed(frame[frame[tag] == b], by)
    for name, found in ((a, left), (b, right)):
        if not found:
            raise ValueError(
                f"no line with {tag} = {name!r}: there are {[*frame[tag].unique()]}"
            )
    if alone := [key for key in [*left, *right] if not (key in left and key in right)]:
        raise ValueError(
            f"{len(alone)} lines of {a} and {b} have no partner, first "
            f"{', '.join(by)} = {alone[0]}"
        )
    x = np.array([left[key][value] for key in left], float)
    y = np.array([right[key][value] for key in left], float)
    d = x - y
    n = len(d)
    if np.isnan(d).any():
        raise ValueError(
            f"{np.isnan(d).sum()} of {n} pairs have no {value}: leave them out, and "
            "say so"
        )
    half = half_width(d)
    if percent is None:
        percent = all(0 <= v <= 1 for v in [*x, *y])
    return Pair(
        mean=float(d.mean()),
        low=float(d.mean() - half),
        high=float(d.mean() + half),
        wins=int((d > 0).sum()),
        n=n,
        points=percent,
        differences=pd.DataFrame([*left], columns=list(by)).assign(difference=d),
    )


def half_width(values: np.ndarray) -> float:
    """Half the width of the 95 % t-interval of a mean; nan for a single value."""
    from scipy.stats import t

    n = len(values)
    if n == 1:
        return nan
    return float(t.ppf(0.975, n - 1) * values.std(ddof=1) / sqrt(n))


def words(
    heads: Sequence[str],
    rows: Sequence[Sequence[str | Table]],
    caption: str,
    kind: str = "words",
) -> Table:
    """A table of sentences: the first cell of a row is its head.

    A cell may be a `Table`, for what has one form on a page and another in a terminal.
    ``kind`` chooses the look: "words", or "numbers" with cells to the right.
    """
    head = "".join(_th(name, "col") for name in heads)
    body = []
    lines = [caption]
    for first, *rest in rows:
        on_page = [x.html if isinstance(x, Table) else escape(x) for x in rest]
        body.append(_th(str(first), "row") + _tds(on_page))
        lines.append(str(first))
        for name, x in zip(heads[1:], rest, strict=True):
            lines.append(f"  {name}: {x}")
    return Table(_page(caption, caption, [head], body, kind), "\n".join(lines))


# --- HTML -----------------------------------------------------------------------------


def _page(
    label: str, caption: str, head: list[str], body: list[str], kind: str = "numbers"
) -> str:
    """A table that scrolls by itself where it is too wide, with the keyboard too."""
    heads = "\n".join(f"<tr>{row}</tr>" for row in head)
    rows = "\n".join(f"<tr>{row}</tr>" for row in body)
    return (
        f'<div class="fednb-table fednb-table-{kind}" role="region" tabindex="0" '
        f'aria-label="{escape(label)}">\n'
        f"<style>{STYLE}</style>\n<table>\n"
        f"<caption><span>{escape(caption)}</span></caption>\n"
        f"<thead>\n{heads}\n</thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</div>"
    )


def _html(grid: DataFrame) -> tuple[list[str], list[str]]:
    """Rows of head and body; a label that neighbours share is written once."""
    depth = grid.columns.nlevels
    head, body = [""] * depth, [""] * len(grid)
    head[0] = "".join(_th(name, "col", "rowspan", depth) for name in grid.index.names)
    for level in range(depth):
        head[level] += "".join(
            _th(name, "col", "colspan", n)
            for _, n, name in _groups(grid.columns, level)
        )
    for level in range(grid.index.nlevels):
        for start, n, name in _groups(grid.index, level):
            body[start] += _th(name, "row", "rowspan", n)
    for i, cells in enumerate(grid.to_numpy()):
        body[i] += _tds(
            f"<strong>{cell[2:-2]}</strong>" if cell[0] == "*" else cell
            for cell in cells
        )
    return head, body


def _groups(index: MultiIndex, level: int) -> Iterator[tuple[int, int, str]]:
    """Start, length and label of the runs of keys that agree up to a level."""
    for head, run in groupby(enumerate(index), key=lambda place: place[1][: level + 1]):
        places = [i for i, _ in run]
        yield places[0], len(places), head[-1]


def _th(text: str, scope: str, span: str = "", n: int = 1) -> str:
    return (
        f'<th scope="{scope}"'
        + (f' {span}="{n}"' if n > 1 else "")
        + f">{escape(text)}</th>"
    )


def _tds(cells: Iterable[str]) -> str:
    return "".join(f"<td>{cell}</td>" for cell in cells)
