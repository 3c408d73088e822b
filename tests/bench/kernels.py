"""``python -m tests.bench kernels``: how the server's kernels grow with the clients.

Each kernel is run once for each number of clients, in a process of its own and on one
thread: CPU seconds, and the most memory that it took, its input included. Both are
fitted by a power of K, over the three largest sizes. What was measured before stays in
``fednb/arena/kernels.json``, which the arena draws, so that a larger size can be added
later; a cell that would take longer than ``--limit`` seconds, by the growth so far, is
left out.
"""

import argparse
import json
import math
import multiprocessing
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse.linalg  # noqa: F401  here once, not in every process
import sklearn.cluster  # noqa: F401
import torch
from threadpoolctl import threadpool_limits

import fednb.arena
from fednb import clustering, similarity
from fednb.methods.cflgp import CFLGP
from fednb.methods.ocfl import temperature
from fednb.sweeps import _peak_memory, _reset_peak_memory

FILE = Path(fednb.arena.__file__).with_name("kernels.json")
SIZES = (100, 300, 1000, 3000)
GROUPS = 4  # hidden clusters in the inputs
FEATURES = 1000


def rows(K: int, features: int = FEATURES) -> torch.Tensor:
    """Updates of K clients: noise around the direction of their group."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(GROUPS, features, generator=generator)
    noise = torch.randn(K, features, generator=generator)
    return centres[torch.arange(K) % GROUPS] + noise


def affinity(K: int) -> torch.Tensor:
    """Affinities of K clients: two groups, and within each two that are nearer."""
    return similarity.rbf(rows(K), 0.5 / FEATURES)


def perceptions(K: int) -> torch.Tensor:
    """An interaction matrix: how each client perceives the others."""
    return similarity.cosine(rows(K))


def clustered(clusterer: str) -> Callable[[torch.Tensor], Any]:
    """Cosine distances of updates, and one of OCFL's clusterers."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        D = similarity.cosine_distance(x)
        return clustering.by_distance(D, clusterer, k=GROUPS)

    return kernel


def attract(z: torch.Tensor) -> torch.Tensor:
    """GCFL's pull between clients, and its cut."""
    A = similarity.attraction(z, torch.ones(len(z)), zeta=0.1)
    return clustering.otsu_components(A)


def partition(x: torch.Tensor) -> torch.Tensor:
    """CFL-GP's clusters of gradient features."""
    old = torch.zeros(len(x), dtype=torch.long)
    return CFLGP(GROUPS).partition(x[:, None], old, seed=0)


# name -> (input of K clients, kernel)
KERNELS: dict[str, tuple[Callable[[int], Any], Callable[[Any], Any]]] = {
    "perception affinity": (
        perceptions,
        lambda P: similarity.perception_affinity(P, beta=0.1),
    ),
    "attraction + Otsu": (lambda K: rows(K, 50), attract),
    "cosine + k-means": (rows, clustered("kmeans")),
    "cosine + HDBSCAN": (rows, clustered("hdbscan")),
    "cosine + affinity propagation": (rows, clustered("affinity")),
    "cosine + mean shift": (rows, clustered("meanshift")),
    "weighted k-means": (
        rows,
        lambda x: clustering.weighted_kmeans(x, torch.ones(len(x)), GROUPS, seed=0),
    ),
    "spectral choice": (
        affinity,
        lambda W: clustering.best_spectral(W, n_max=8, seed=0),
    ),
    "RBF kernel + spectral": (
        rows,
        lambda x: clustering.spectral(similarity.rbf(x, 0.5 / FEATURES), 10, seed=0),
    ),
    "CFL-GP's partition": (rows, partition),
    "temperature": (
        lambda K: similarity.cosine_distance(rows(K)),
        temperature,
    ),
}


def measure(name: str, K: int) -> dict[str, float]:
    """CPU seconds and MB of one kernel for K clients, in a process of its own."""
    context = multiprocessing.get_context("fork")  # what is imported stays imported
    ours, theirs = context.Pipe()
    child = context.Process(target=_child, args=(name, K, theirs))
    child.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        raise RuntimeError(f"{name} at K = {K:,} died: out of memory?") from None
    finally:
        child.join()


def _child(name: str, K: int, pipe: Any) -> None:
    torch.set_num_threads(1)
    make, kernel = KERNELS[name]
    with threadpool_limits(1):
        kernel(make(24))  # what is imported late is no part of the kernel
        _reset_peak_memory()
        before = _peak_memory() or 0
        given = make(K)
        _reset_peak_memory()
        start = time.process_time()
        kernel(given)
        seconds = time.process_time() - start
    peak = _peak_memory() or 0
    pipe.send({"seconds": round(seconds, 4), "mb": peak - before})


def exponent(sizes: list[int], values: list[float]) -> float | None:
    """The power of K that fits the three largest sizes, None for fewer than two."""
    kept = [(K, v) for K, v in zip(sizes, values, strict=True) if v > 0][-3:]
    if len(kept) < 2:
        return None
    x, y = np.log(kept).T
    return round(float(np.polyfit(x, y, 1)[0]), 2)


def forecast(cells: dict[str, dict[str, float]], K: int) -> float:
    """Seconds that K clients would take, by the growth between the last two sizes."""
    known = sorted((int(size), cell["seconds"]) for size, cell in cells.items())
    known = [(size, seconds) for size, seconds in known if size < K]
    if not known:
        return 0.0
    last, seconds = known[-1]
    power = 3.0
    if len(known) > 1:
        before, earlier = known[-2]
        power = math.log(seconds / max(earlier, 1e-4)) / math.log(last / before)
    return seconds * (K / last) ** max(power, 1.0)


def table(found: dict[str, Any]) -> str:
    """What was measured, for people."""
    kernels = found["kernels"]
    sizes = sorted({int(K) for cell in kernels.values() for K in cell["cells"]})
    heads = [f"K = {K:,}" for K in sizes]
    lines = [
        f"| kernel | {' | '.join(heads)} | grows like |",
        f"|---|{'---|' * len(heads)}---|",
    ]
    for name, entry in kernels.items():
        words = []
        for K in sizes:
            cell = entry["cells"].get(str(K))
            if cell is None:
                words.append("–")
            else:
                words.append(f"{cell['seconds']:.2f} s, {cell['mb']:,.0f} MB")
        power = entry["exponent"]
        growth = "–" if power is None else f"K^{power}"
        lines.append(f"| {name} | {' | '.join(words)} | {growth} |")
    return "\n".join(lines)


def main(words: list[str]) -> None:
    """Measure what is asked for and write it down."""
    parser = argparse.ArgumentParser("python -m tests.bench kernels", None, __doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--only", nargs="+", default=KERNELS, choices=KERNELS)
    parser.add_argument("--limit", type=float, default=120, help="seconds for a cell")
    asked = parser.parse_args(words)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    found: dict[str, Any] = {"kernels": {}}
    if FILE.exists():
        found = json.loads(FILE.read_text())
    found["machine"] = f"{platform.machine()}, 1 thread, torch {torch.__version__}"
    for K in sorted(asked.sizes):
        for name in asked.only:
            entry = found["kernels"].setdefault(name, {"cells": {}})
            cells = entry["cells"]
            expected = forecast(cells, K)
            if expected > asked.limit:
                print(f"{name}, K = {K:,}: left out, it would take {expected:,.0f} s")
                continue
            cells[str(K)] = measure(name, K)
            print(f"{name}, K = {K:,}: {cells[str(K)]}", flush=True)
            sizes = sorted(cells, key=int)
            numbers = [int(size) for size in sizes]
            entry["exponent"] = exponent(numbers, [cells[s]["seconds"] for s in sizes])
            entry["memory_exponent"] = exponent(
                numbers, [cells[s]["mb"] for s in sizes]
            )
            FILE.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))
