"""OCFL's Tables 1 and 2 from the authors' archived cluster maps, by the rules that made
them, and by corrected ones.

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
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ... import metrics
from .explain import MODES

if TYPE_CHECKING:
    from pandas import DataFrame

ALGORITHMS = {
    "baseline": "BNC",
    "sattler": "SCL",
    "briggs": "BCL",
    "kmeans": "OCFL-KM",
    "affinity": "OCFL-AFF",
    "meanshift": "OCFL-MS",
    "HDBSCAN": "OCFL-HDB",
}  # the archive's names and the paper's
OVERLAP = {"nonoverlaping": "non-overlapping", "overlaping": "overlapping"}
SIZES = {(15, "balanced"): (5, 5, 5), (30, "balanced"): (10, 10, 10)}
SIZES |= {
    (15, "imbalanced"): (3, 7, 5),
    (30, "imbalanced"): (7, 14, 9),
}  # clients of the true clusters, in blocks
COUNTED = 50  # rounds
KINDS = {
    "ari": metrics.adjusted_rand,
    "ami": metrics.ami,
    "homogeneity": metrics.homogeneity,
    "completeness": metrics.completeness,
}
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
    """Find the archive: ``path``, else ``$FEDNB_OCFL``, else ``../reference/ocfl``
    beside ``$FEDNB_DATA``.
    """
    data = os.environ.get("FEDNB_DATA")
    beside = (
        Path(data).expanduser().resolve().parent / "reference" / "ocfl"
        if data
        else None
    )
    found = path or os.environ.get("FEDNB_OCFL") or beside
    if found and (Path(found).expanduser() / FILES["cluster_maps"]).is_file():
        return Path(found).expanduser()
    raise FileNotFoundError(
        f"OCFL's archived runs were not found: looked for {FILES['cluster_maps']} in "
        f"{found or 'no folder: neither FEDNB_OCFL nor FEDNB_DATA is set'}. "
        "Set FEDNB_OCFL to the folder that holds "
        "it. Without the archive, printed() has the paper's numbers."
    )


def read(name: str, path: str | os.PathLike | None = None) -> DataFrame:
    """Read one table of the archive (a key of ``FILES``), with the paper's names of
    algorithms and splits.
    """
    import pandas as pd

    if name not in FILES:
        raise ValueError(
            f"no table {name!r} in the archive: choose from {', '.join(FILES)}"
        )
    frame = pd.read_csv(
        folder(path) / FILES[name],
        index_col=0 if name.startswith("insertion") else None,
    )
    names = {"algorithm": ALGORITHMS, "overlap": OVERLAP}
    return frame.assign(
        **{c: frame[c].map(new) for c, new in names.items() if c in frame}
    )


def cluster_maps(path: str | os.PathLike | None = None) -> dict[Run, np.ndarray]:
    """Read who was in which cluster: for each run the clusters' names (rounds,
    clients).
    """
    frame = read("cluster_maps", path).sort_values(["round", "client"])
    runs = frame.groupby(list(Run._fields), sort=False)
    return {
        Run(*key): own["cluster"].to_numpy(str).reshape(-1, key[1]) for key, own in runs
    }


def truth(run: Run) -> np.ndarray:  # (clients,)
    """The cluster to which each client's data belong."""
    return np.repeat(range(3), SIZES[run.clients, run.balance])


def scores(
    names: np.ndarray, true: np.ndarray, kinds: Iterable[str] = tuple(KINDS)
) -> dict[str, np.ndarray]:
    """Compare the clusters of every round (T, K) with the true groups (K,).

    Each of ``kinds`` (keys of ``KINDS``) is an array (T,).
    """
    kinds = tuple(kinds)
    groups = int(true.max()) + 1
    rounds = []
    for row in names.tolist():
        counts: dict[str, list[int]] = {}
        for name, group in zip(row, true.tolist(), strict=True):
            counts.setdefault(name, [0] * groups)[group] += 1
        clusters = tuple(sorted(tuple(own) for own in counts.values()))
        rounds.append([_score(kind, clusters) for kind in kinds])
    return dict(zip(kinds, np.array(rounds).T, strict=True))


@lru_cache(None)
def _score(kind: str, clusters: tuple[tuple[int, ...], ...]) -> float:
    """One score of clusters (C, groups) that hold so many clients of each true group.

    The names of clusters and the order of clients do not matter, so most rounds are
    alike, and each kind of round is scored once.
    """
    if kind == "ari":
        return adjusted_rand(clusters)
    counts = np.array(clusters)
    found, true = np.nonzero(counts)
    sizes = counts[found, true]
    return float(KINDS[kind](np.repeat(true, sizes), np.repeat(found, sizes)))


def adjusted_rand(clusters: Sequence[Sequence[int]]) -> float:
    """The adjusted Rand index from counts (C, groups), by pairs of clients.

    The same as `fednb.metrics.adjusted_rand`, a thousand times faster for few clients.
    """
    sizes = [sum(own) for own in clusters]
    groups = [sum(own) for own in zip(*clusters, strict=True)]
    both = sum(_pairs(n) for own in clusters for n in own)  # together in both
    only_found = sum(map(_pairs, sizes)) - both
    only_true = sum(map(_pairs, groups)) - both
    apart = _pairs(sum(sizes)) - both - only_found - only_true
    if only_found == only_true == 0:
        return 1.0
    scale = (both + only_true) * (only_true + apart)
    scale += (both + only_found) * (only_found + apart)
    return 2 * (both * apart - only_true * only_found) / scale


def _pairs(n: int) -> int:
    return n * (n - 1) // 2


def clustering_round(names: np.ndarray) -> float:
    """The last round (from 1) in which a client's cluster changed its name; nan if none
    did: Table 2.
    """
    changed = np.flatnonzero((names[1:] != names[:-1]).any(1))
    return float(changed[-1] + 2) if len(changed) else np.nan


def as_printed(maps: dict[Run, np.ndarray]) -> DataFrame:
    """Recompute Tables 1 and 2 by the rules above: columns as in :func:`printed`, nan
    for a dash.
    """

    def row(run: Run, names: np.ndarray) -> dict[str, float]:
        mean = {
            name: float(v[:COUNTED].mean())
            for name, v in scores(names, truth(run)).items()
        }
        second = mean["ari" if run.algorithm == "OCFL-HDB" else "ami"]
        split = any(len(set(now)) > 1 for now in names[:COUNTED].tolist())
        cells = (mean["ari"], second, mean["homogeneity"]) if split else (np.nan,) * 3
        return dict(zip(("rand", "ami", "com"), cells, strict=True)) | {
            "round": clustering_round(names)
        }

    return _frame(
        {run: row(run, names) for run, names in maps.items() if run.algorithm != "BNC"}
    )


def corrected(maps: dict[Run, np.ndarray]) -> DataFrame:
    """What Table 1 says it shows, for every run, and what it leaves out.

    ``ari``, ``ami`` and ``homogeneity`` are means over *all* rounds, which reward an
    early split. Completeness is 1 until the first split, so its mean would reward none:
    it stands with the others at the last round only (``final_...``). ``rounds`` and
    ``round`` are the rounds run and that of the last split into at least two,
    ``clusters`` how many there are in the end.
    """

    def row(run: Run, names: np.ndarray) -> dict[str, float]:
        found = scores(names, truth(run))
        means = {
            name: float(found[name].mean()) for name in ("ari", "ami", "homogeneity")
        }
        count = [len(set(now)) for now in names.tolist()]
        when = {
            "rounds": len(names),
            "round": clustering_round(names) if max(count) > 1 else np.nan,
        }
        return (
            means
            | {f"final_{k}": float(v[-1]) for k, v in found.items()}
            | when
            | {"clusters": count[-1]}
        )

    return _frame({run: row(run, names) for run, names in maps.items()})


def printed() -> DataFrame:
    """The numbers of Tables 1 and 2 in the paper: rand, ami, com, round, indexed by
    run; nan for a dash.
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
    numbers, by = read("round_means", path), list(Run._fields)
    files = {"after_update_metrics": {"f1": "pf1", "accuracy": "accuracy"}}
    files |= {"after_update_generalizability": {"f1": "gf1"}}
    for file, names in files.items():
        part = (
            numbers[numbers["file"] == file]
            .sort_values("round")
            .groupby(by)[list(names)]
        )
        runs = runs.join(part.mean().rename(columns=names))
        runs = runs.join(
            part.last().rename(columns={k: f"final_{v}" for k, v in names.items()})
        )
    return {
        "runs": runs.reset_index().round(4),
        "temperatures": read("temperatures", path),
        "explanations": _explanations(path),
    }


def _explanations(path: str | os.PathLike | None) -> DataFrame:
    """Insertion and deletion areas of all modes; the paper's A, B, C are in, out,
    server.
    """
    import pandas as pd

    parts = {
        mode: read(f"insertion_deletion_{letter}", path)
        for letter, mode in zip("ABC", MODES, strict=True)
    }
    frame = pd.concat(
        [part.assign(mode=mode) for mode, part in parts.items()], ignore_index=True
    )
    words = frame.pop("dataset_name").str.split(expand=True)
    frame[["dataset", "overlap", "balance"]] = words.assign(
        **{"1": words[1].map(OVERLAP)}
    )[[0, "1", 2]].to_numpy()
    return frame.round(4)


def keep(path: str | os.PathLike, source: str | os.PathLike | None = None) -> None:
    """Write the summary of the archive as JSON: each table as columns and lines."""
    tables = {
        name: json.loads(frame.to_json(orient="split", index=False))
        for name, frame in summarise(source).items()
    }
    Path(path).write_text(json.dumps(tables, separators=(",", ":")) + "\n")


def kept(path: str | os.PathLike) -> dict[str, DataFrame]:
    """The summary of the archive as `keep` wrote it."""
    import pandas as pd

    stored = json.loads(Path(path).read_text())
    return {
        name: pd.DataFrame(table["data"], columns=table["columns"])
        for name, table in stored.items()
    }


def summary(
    stored: str | os.PathLike, source: str | os.PathLike | None = None
) -> tuple[dict[str, DataFrame], str]:
    """The archive's summary, computed if the archive is here, else as it was kept; and
    which of the two it is.
    """
    try:
        return summarise(source), "computed from the archive"
    except FileNotFoundError:
        words = "read from the summary that is kept with the book"
        return kept(stored), f"{words}; the archive is not here"
