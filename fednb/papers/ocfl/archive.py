"""OCFL's Tables 1 and 2 from the authors' archived cluster maps.

They are computed by the rules that made them, and by corrected ones.

Zuziak, Pellungrini, Rinzivillo, *One-shot clustering for federated learning under
clustering-agnostic assumption*, 2025. The authors published who was in which cluster in
every round of all 280 runs (GitHub MKZuziak/ODFL_Archive, MIT licence). Those tables
are not part of this project: :func:`folder` says where they are looked for. What the
paper prints is here, as ``printed.csv``; an empty cell is a printed dash. Where the
text of the paper at hand was not legible, the cell is taken from the LaTeX tables in
the same archive, and named in the column ``restored``.

| printed column | what it is |
|---|---|
| RAND | the *adjusted* Rand index |
| AMI | adjusted mutual information; in the rows OCFL-HDB the RAND column again |
| COM | homogeneity: completeness with its arguments swapped |
| all three | means over the first 50 of up to 80 rounds; 0 before the first split |
| a dash | never more than one cluster |
| Table 2 | the last round in which a client's cluster changed its name |
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ... import metrics
from .explain import MODES

if TYPE_CHECKING:
    from pandas import DataFrame

# the archive's names: the paper's
ALGORITHMS = {
    "baseline": "BNC",
    "sattler": "SCL",
    "briggs": "BCL",
    "kmeans": "OCFL-KM",
    "affinity": "OCFL-AFF",
    "meanshift": "OCFL-MS",
    "HDBSCAN": "OCFL-HDB",
}
OVERLAP = {"nonoverlaping": "non-overlapping", "overlaping": "overlapping"}
# (clients, balance): how many clients each true cluster has; they come in blocks
SIZES = {
    (15, "balanced"): (5, 5, 5),
    (15, "imbalanced"): (3, 7, 5),
    (30, "balanced"): (10, 10, 10),
    (30, "imbalanced"): (7, 14, 9),
}
COUNTED = 50  # rounds
FILES = {
    "cluster_maps": "cluster_maps.csv.gz",
    "round_means": "round_means.csv.gz",
    "temperatures": "temperatures.csv",
    "split_blueprints": "split_blueprints.csv",
    "insertion_deletion_A": "insertion_deletion_A.csv",
    "insertion_deletion_B": "insertion_deletion_B.csv",
    "insertion_deletion_C": "insertion_deletion_C.csv",
}


class Run(NamedTuple):
    """One of the 280 runs; the index of all tables here."""

    dataset: str
    clients: int
    overlap: str
    balance: str
    algorithm: str


def folder(path: str | os.PathLike | None = None) -> Path:
    """Find the archive.

    It is ``path``, else ``$FEDNB_OCFL``, else ``../reference/ocfl`` beside
    ``$FEDNB_DATA``.
    """
    found = path or os.environ.get("FEDNB_OCFL")
    data = os.environ.get("FEDNB_DATA")
    if not found and data:
        found = Path(data).expanduser().resolve().parent / "reference" / "ocfl"
    if found and (Path(found).expanduser() / FILES["cluster_maps"]).is_file():
        return Path(found).expanduser()
    raise FileNotFoundError(
        f"OCFL's archived runs were not found: looked for {FILES['cluster_maps']} in "
        f"{found or 'no folder: neither FEDNB_OCFL nor FEDNB_DATA is set'}. "
        "Set FEDNB_OCFL to the folder that holds "
        "it. Without the archive, printed() has the paper's numbers."
    )


def read(name: str, path: str | os.PathLike | None = None) -> DataFrame:
    """Read one table of the archive (a key of ``FILES``).

    Algorithms and splits have the paper's names.
    """
    import pandas as pd

    if name not in FILES:
        raise ValueError(
            f"no table {name!r} in the archive: choose from {', '.join(FILES)}"
        )
    frame = pd.read_csv(folder(path) / FILES[name])
    if name.startswith("insertion"):  # its first column numbers the lines
        frame = frame.iloc[:, 1:]
    names = {"algorithm": ALGORITHMS, "overlap": OVERLAP}
    for column, new in names.items():
        if column in frame:
            frame[column] = frame[column].map(new)
    return frame


def cluster_maps(path: str | os.PathLike | None = None) -> dict[Run, np.ndarray]:
    """Read who was in which cluster: clusters' names (rounds, clients) for each run."""
    frame = read("cluster_maps", path).sort_values(["round", "client"])
    runs = frame.groupby(list(Run._fields), sort=False)
    found = {}
    for key, lines in runs:
        run = Run(*key)
        found[run] = lines["cluster"].to_numpy(str).reshape(-1, run.clients)
    return found


def truth(run: Run) -> np.ndarray:  # (clients,)
    """The cluster to which each client's data belong."""
    return np.repeat(range(3), SIZES[run.clients, run.balance])


def scores(names: np.ndarray, true: np.ndarray) -> dict[str, np.ndarray]:
    """Compare the clusters of every round (T, K) with the true ones (K,).

    Returns ari, ami, homogeneity and completeness, each (T,).
    """
    rounds = []
    for row in names.tolist():
        number = {name: c for c, name in enumerate(dict.fromkeys(row))}
        found = tuple(number[name] for name in row)
        rounds.append(_scores(tuple(true.tolist()), found))
    return {kind: np.array([each[kind] for each in rounds]) for kind in rounds[0]}


@lru_cache(4096)  # most rounds are alike
def _scores(true: tuple[int, ...], found: tuple[int, ...]) -> dict[str, float]:
    return metrics.cluster_scores(np.array(true), np.array(found))


def clustering_round(names: np.ndarray) -> float:
    """The last round, from 1, in which a client's cluster changed its name: Table 2.

    It is nan if none did.
    """
    changed = np.flatnonzero((names[1:] != names[:-1]).any(1))
    if len(changed) == 0:
        return np.nan
    return float(changed[-1] + 2)


def as_printed(maps: dict[Run, np.ndarray]) -> DataFrame:
    """Recompute Tables 1 and 2 by the rules above.

    The columns are those of :func:`printed`, with nan for a dash.
    """
    rows = {
        run: _printed_row(run, names)
        for run, names in maps.items()
        if run.algorithm != "BNC"
    }
    return _frame(rows)


def _printed_row(run: Run, names: np.ndarray) -> dict[str, float]:
    """A row of `as_printed`, from the clusters' names (rounds, clients)."""
    row = dict.fromkeys(("rand", "ami", "com"), np.nan)
    row["round"] = clustering_round(names)
    if all(len(set(now)) == 1 for now in names[:COUNTED].tolist()):
        return row  # never split
    found = scores(names, truth(run))
    mean = {name: float(values[:COUNTED].mean()) for name, values in found.items()}
    row["rand"] = mean["ari"]
    row["ami"] = mean["ami"]
    if run.algorithm == "OCFL-HDB":
        row["ami"] = mean["ari"]
    row["com"] = mean["homogeneity"]
    return row


def corrected(maps: dict[Run, np.ndarray]) -> DataFrame:
    """What Table 1 says it shows, for every run, and what it leaves out.

    ``ari``, ``ami`` and ``homogeneity`` are means over *all* rounds, which reward an
    early split. Completeness is 1 until the first split, so its mean would reward none:
    it stands with the others at the last round only (``final_...``). ``rounds`` and
    ``round`` are the rounds run and that of the last split into at least two,
    ``clusters`` how many there are in the end.
    """
    return _frame({run: _corrected_row(run, names) for run, names in maps.items()})


def _corrected_row(run: Run, names: np.ndarray) -> dict[str, float]:
    """A row of `corrected`, from the clusters' names (rounds, clients)."""
    found = scores(names, truth(run))
    count = [len(set(now)) for now in names.tolist()]
    row = {name: float(found[name].mean()) for name in ("ari", "ami", "homogeneity")}
    for name, values in found.items():
        row[f"final_{name}"] = float(values[-1])
    row["rounds"] = len(names)
    row["round"] = np.nan
    if max(count) > 1:
        row["round"] = clustering_round(names)
    row["clusters"] = count[-1]
    return row


def printed() -> DataFrame:
    """The numbers of Tables 1 and 2 in the paper, indexed by run; nan for a dash.

    The columns are rand, ami, com and round.
    """
    import pandas as pd

    frame = pd.read_csv(
        Path(__file__).with_name("printed.csv"), keep_default_na=False, dtype=str
    )
    frame["clients"] = frame["clients"].astype(int)
    numbers = frame[["rand", "ami", "com", "round"]].replace("", "nan").astype(float)
    return frame.assign(**numbers).set_index(list(Run._fields)).sort_index()


def _frame(rows: dict[Run, dict[str, float]]) -> DataFrame:
    import pandas as pd

    index = pd.MultiIndex.from_tuples(list(rows), names=Run._fields)
    return pd.DataFrame(list(rows.values()), index=index).sort_index()


# --- what the archive says, small enough to be kept -----------------------------------


def summarise(path: str | os.PathLike | None = None) -> dict[str, DataFrame]:
    """What the chapter needs of the archive.

    ``runs``: a line for each of the 280 runs, with :func:`as_printed` (``printed_...``)
    and :func:`corrected`; the mean over rounds and the last round of ``pf1``,
    ``accuracy`` (a client's model on its own test samples, after averaging) and ``gf1``
    (the clients' own models on the server's, *before* averaging). ``temperatures`` of
    the runs without clustering; ``explanations``: areas in the three modes.
    """
    maps = cluster_maps(path)
    runs = corrected(maps).join(as_printed(maps).add_prefix("printed_"))
    numbers = read("round_means", path)
    files = {
        "after_update_metrics": {"f1": "pf1", "accuracy": "accuracy"},
        "after_update_generalizability": {"f1": "gf1"},
    }
    for file, names in files.items():
        part = numbers[numbers["file"] == file].sort_values("round")
        by_run = part.groupby(list(Run._fields))[list(names)]
        final_names = {old: f"final_{new}" for old, new in names.items()}
        runs = runs.join(by_run.mean().rename(columns=names))
        runs = runs.join(by_run.last().rename(columns=final_names))
    return {
        "runs": runs.reset_index().round(4),
        "temperatures": read("temperatures", path),
        "explanations": _explanations(path),
    }


def _explanations(path: str | os.PathLike | None) -> DataFrame:
    """Insertion and deletion areas; the paper's A, B, C are in, out, server."""
    import pandas as pd

    parts = []
    for letter, mode in zip("ABC", MODES, strict=True):
        part = read(f"insertion_deletion_{letter}", path)
        parts.append(part.assign(mode=mode))
    frame = pd.concat(parts, ignore_index=True)
    words = frame.pop("dataset_name").str.split(expand=True)
    frame["dataset"] = words[0]
    frame["overlap"] = words[1].map(OVERLAP)
    frame["balance"] = words[2]
    return frame.round(4)


def keep(path: str | os.PathLike, source: str | os.PathLike | None = None) -> None:
    """Write the summary of the archive as JSON: each table as columns and lines."""
    tables = {
        name: json.loads(frame.to_json(orient="split", index=False))
        for name, frame in summarise(source).items()
    }
    Path(path).write_text(json.dumps(tables, separators=(",", ":")) + "\n")


def summary(
    kept: str | os.PathLike, source: str | os.PathLike | None = None
) -> tuple[dict[str, DataFrame], str]:
    """The archive's summary, and in words where it comes from.

    It is computed if the archive is here, else read as it was kept.
    """
    import pandas as pd

    try:
        return summarise(source), "computed from the archive"
    except FileNotFoundError:
        tables = json.loads(Path(kept).read_text())
        frames = {
            name: pd.DataFrame(table["data"], columns=table["columns"])
            for name, table in tables.items()
        }
        return (
            frames,
            "read from the summary that is kept with the book; the archive is not here",
        )
