"""``make bench``: how fast fednb trains, as ratios within one interleaved run.

Every contender does one round in turn, over and over, so that a disturbed minute
disturbs all alike; the ratio of two contenders is the median over turns of the ratio
within a turn. The engine of the first edition takes part where git has its files;
peers do once ``make bench-peers`` has installed them. The table is printed and written
to ``_build/bench.json``.
"""

import argparse
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from fednb import models
from fednb.data import Dataset
from fednb.federation import Federation
from fednb.methods import FedAvg
from fednb.partition import Partition
from fednb.training import Local

HERE = Path(__file__).parent
ROOT = Path(__file__).parents[2]
# workloads is shared with the peers, which know nothing of fednb
sys.path.insert(0, str(HERE))
from workloads import Limit, Workload, plain_round, tensors, workload  # noqa: E402

FIRST_EDITION = "43e1ada0e46d84c6d69c543e94f1b7b714db0c1d"
EDITION1 = ROOT / "_build" / "edition1"  # its engine

# name -> (environment, module, set-ups); the fastest set-up in a short heat takes part
PEERS = {
    "pfl-research": (
        "pfl",
        "peers.pfl_research",
        ["torchrun2", "threads2", "threads1"],
    ),
    "FedLab": ("fedlab", "peers.fedlab", ["threads1", "threads2"]),
    "Flower": ("flower", "peers.flower", ["ray2"]),
    "FedJAX": ("fedjax", "peers.fedjax", ["jit"]),
    "BlazeFL": ("blazefl", "peers.blazefl", ["threads2", "processes2", "threads1"]),
}


def federation(w: Workload, **options) -> Federation:
    """The workload as a federation: the same tensors, clients as index lists."""
    x, y = tensors(w)
    data = Dataset(
        w.name,
        x.flatten(0, 1).numpy(),
        y.flatten().numpy(),
        y.numel(),
        w.classes,
        "",
        "",
        None,
        None,
    )
    clients = torch.arange(y.numel()).view(y.shape).numpy()
    local = Local(
        lr=w.lr,
        epochs=w.epochs,
        batch_size=w.batch,
        momentum=w.momentum,
        weight_decay=w.weight_decay,
    )
    return Federation(
        data,
        Partition(list(clients), [c[:0] for c in clients], None),
        w.make_model,
        local=local,
        **options,
    )


def wait_for_gpu() -> None:
    """Let a GPU finish what it was asked to do, before the clock is read."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Fednb:
    """fednb's default backend, doing FedAvg."""

    def __init__(self, w: Workload, **options) -> None:
        self.fed, self.method = federation(w, **options), FedAvg(sampled=w.sampled)
        self.state = self.method.init(self.fed)

    def rounds(self, n: int) -> float:
        start = time.perf_counter()
        for t in range(n):
            self.state = self.method.step(self.state, self.fed, t)
        wait_for_gpu()
        return time.perf_counter() - start

    def close(self) -> None:
        pass


class Plain:
    """The plain loop on one thread, or on a GPU."""

    def __init__(self, w: Workload, threads: int = 1, device: str = "cpu") -> None:
        self.w, self.threads, self.model = w, threads, w.model().to(device)
        self.x, self.y = (tensor.to(device) for tensor in tensors(w))
        self.state, self.generator = (
            self.model.state_dict(),
            torch.Generator().manual_seed(0),
        )

    def rounds(self, n: int) -> float:
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        start = time.perf_counter()
        for _ in range(n):
            self.state = plain_round(
                self.w, self.model, self.state, self.x, self.y, self.generator
            )
        wait_for_gpu()
        torch.set_num_threads(before)
        return time.perf_counter() - start

    def close(self) -> None:
        pass


class Peer:
    """Another library, in an interpreter of its own, spoken to over a pipe."""

    def __init__(
        self,
        w: Workload,
        environment: str,
        module: str,
        setup: str,
        python: str | None = None,
        path: str | None = None,
    ) -> None:
        self.setup = setup
        if python is None:
            python = str(ROOT / ".venv-peers" / environment / "bin" / "python")
        variables = dict(os.environ)
        if path is not None:
            variables["PYTHONPATH"] = path
        words = [
            python,
            "-m",
            module,
            w.name,
            "--setup",
            setup,
            "--sampled",
            str(w.sampled),
        ]
        said = ROOT / "_build" / f"bench-{environment}-{setup}-{w.name}.log"
        log = said.open("w")  # noqa: SIM115
        self.process = subprocess.Popen(
            words,
            cwd=HERE,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            bufsize=1,
        )
        self._expect("READY")

    def _expect(self, word: str) -> str:
        line = self.process.stdout.readline()
        if not line.startswith(word):
            raise RuntimeError(
                f"{self.process.args[2]} did not answer {word} but {line!r}: "
                "see _build/bench-*.log"
            )
        return line

    def rounds(self, n: int) -> float:
        self.process.stdin.write(f"ROUNDS {n}\n")
        return float(self._expect("DONE").split()[1])

    def close(self) -> None:
        self.process.stdin.write("QUIT\n")
        self.process.stdin.close()
        self.process.wait(timeout=60)


def first_edition(w: Workload) -> Peer | None:
    """The first edition's engine in a process of its own; None where git lacks it."""
    words = ["git", "-C", str(ROOT), "archive", FIRST_EDITION, "fednb"]
    try:
        files = subprocess.run(words, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"  the first edition is left out: {error}", file=sys.stderr)
        return None
    with tarfile.open(fileobj=io.BytesIO(files)) as archive:
        archive.extractall(EDITION1, filter="data")
    path = os.pathsep.join([str(EDITION1), str(ROOT)])
    return Peer(w, "edition1", "peers.edition1", "threads", sys.executable, path)


def contenders(w: Workload, only_core: bool, device: str | None = None):
    """Name -> contender; peers that are not installed are left out.

    On a ``device`` of its own only the plain loop and fednb take part.
    """
    if device is not None:
        batched = partial(Fednb, w, device=device, backend="batched")
        found = {"plain": Plain(w, device=device), "fednb": batched()}
        for name in ("unfold", "grouped"):
            found[name] = batched()
            found[name].fed.backend.convolve_by(name)
        return found
    found = {"plain": Plain(w), "limit": Limit(w), "fednb": Fednb(w)}
    old = first_edition(w)
    if old is not None:
        found["edition1"] = old
    for name, (environment, module, setups) in PEERS.items():
        if only_core or not (ROOT / ".venv-peers" / environment).exists():
            continue
        peer = best_setup(w, name, environment, module, setups)
        if peer is not None:
            found[f"{name} {peer.setup}"] = peer
    return found


def best_setup(
    w: Workload, name: str, environment: str, module: str, setups: list[str]
) -> Peer | None:
    """A heat between a peer's set-ups, one at a time: the best of three rounds each
    decides.
    """
    heats = {}
    for setup in setups:
        try:
            peer = Peer(w, environment, module, setup)
            heats[setup] = min(
                peer.rounds(1) for _ in range(3 if len(setups) > 1 else 1)
            )
            peer.close()
        except (RuntimeError, OSError) as error:
            print(f"  {name} {setup} left out: {error}", file=sys.stderr)
    return Peer(w, environment, module, min(heats, key=heats.get)) if heats else None


def ratio(seconds: dict[str, list[float]], a: str, b: str) -> list[float]:
    """How many times faster a is than b: [median, lower and upper quartile] over
    turns.
    """
    ratios = [tb / ta for ta, tb in zip(seconds[a], seconds[b], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return [round(v, 3) for v in (middle, low, high)]


def race(w: Workload, turns: int, only_core: bool, device: str | None = None) -> dict:
    """Let all contenders take turns, and compare."""
    field = contenders(w, only_core, device)
    seconds: dict[str, list[float]] = {name: [] for name in field}
    try:
        for contender in field.values():
            contender.rounds(1)  # warm up
        for turn in range(turns):
            for name, contender in field.items():
                seconds[name].append(contender.rounds(1))
            print(f"\r  {w.name}: turn {turn + 1} of {turns}", end="", file=sys.stderr)
    finally:
        for contender in field.values():
            contender.close()
        print(file=sys.stderr)
    peers = [name for name in field if " " in name]
    best = min(peers, key=lambda name: statistics.median(seconds[name]), default=None)
    limit = "limit" if "limit" in field else None
    rivals = {"vs_plain": "plain", "vs_limit": limit, "vs_peer": best}
    if "edition1" in field:
        rivals["vs_edition1"] = "edition1"
    ratios = {
        name: ratio(seconds, "fednb", rival) if rival else [None] * 3
        for name, rival in rivals.items()
    }
    return {
        "sampled": w.sampled,
        "turns": turns,
        **{name: middle for name, (middle, _, _) in ratios.items()},
        "quartiles": {name: [low, high] for name, (_, low, high) in ratios.items()},
        "best_peer": best,
        "rounds_per_second": {
            name: round(1 / statistics.median(s), 4) for name, s in seconds.items()
        },
        "all_vs_plain": {name: ratio(seconds, name, "plain")[0] for name in field},
    }


def server_share(clients: int = 1000, sampled: int = 10, turns: int = 20) -> float:
    """Part of a round spent outside local training: sampling, drawing batches,
    averaging, bookkeeping (W1's model).
    """
    w = replace(workload("W1"), clients=clients, samples=128, sampled=sampled)
    bench = Fednb(w)
    inner, spent = bench.fed.backend.train, []

    def timed(*args):
        start = time.perf_counter()
        out = inner(*args)
        spent.append(time.perf_counter() - start)
        return out

    bench.fed.backend.train = timed
    shares = []
    for _ in range(turns):
        whole = bench.rounds(1)
        shares.append(1 - spent[-1] / whole)
    return round(statistics.median(shares), 4)


def growth(turns: int = 20) -> dict[int, float]:
    """Milliseconds per round for K = 10 ... 10,000 clients, 10 of them sampled (MLP
    64-64-10, 50 samples each).
    """
    base = replace(
        workload("W3"),
        samples=50,
        shape=(64,),
        batch=32,
        epochs=1,
        make_model=partial(models.mlp, 64, (64,), 10),
    )
    runners = {
        K: Fednb(replace(base, clients=K, sampled=10)) for K in (10, 100, 1000, 10_000)
    }
    for runner in runners.values():
        runner.rounds(3)
    seconds = {K: [] for K in runners}
    for _ in range(turns):
        for K, runner in runners.items():
            seconds[K].append(runner.rounds(1))
    return {K: round(1000 * statistics.median(s), 2) for K, s in seconds.items()}


def table(result: dict) -> str:
    """The outcome as the README shows it."""
    columns = {
        "vs_plain": "vs plain loop",
        "vs_limit": "vs limit",
        "vs_edition1": "vs first edition",
        "vs_peer": "vs best peer",
    }
    workloads = result["workloads"]
    shown = [key for key in columns if any(key in r for r in workloads.values())]
    titles = ["workload", *(columns[key] for key in shown), "best peer"]
    lines = [_line(titles), "|" + "---|" * len(titles)]
    for name, r in workloads.items():
        cells = [_ratio_of(r, key) for key in shown]
        lines.append(_line([name, *cells, r["best_peer"] or "–"]))
    if "server_share" in result:
        lines += [
            "",
            "Server's share of a round at K = 1,000: "
            f"{100 * result['server_share']:.1f} %",
        ]
        steps = ", ".join(
            f"K = {int(K):,}: {ms} ms" for K, ms in result["growth_ms"].items()
        )
        lines += [f"Time per round, 10 clients sampled: {steps}"]
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _ratio_of(r: dict, key: str) -> str:
    """Median and quartiles of a ratio; a dash where there was no such rival."""
    if r.get(key) is None:
        return "–"
    low, high = r["quartiles"][key]
    return f"{r[key]:.2f} [{low:.2f}–{high:.2f}]"


def main() -> None:
    """Run the benchmark, or another one of this folder if its name comes first."""
    if sys.argv[1:2] == ["kernels"]:
        from . import kernels

        kernels.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["profile"]:
        from . import spent  # not profile: that would hide Python's own

        spent.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("workloads", nargs="*", default=["W1", "W2", "W3"])
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--core", action="store_true", help="without the peers")
    parser.add_argument("--gpu", action="store_true", help="on this machine's GPU")
    parser.add_argument(
        "--sampled-w2",
        type=int,
        default=20,
        help="clients per round of W2 (the full 200 take minutes)",
    )
    args = parser.parse_args()
    device = None
    if args.gpu:
        if not torch.cuda.is_available():
            sys.exit("torch finds no GPU on this machine: there is nothing to measure")
        device = "cuda"
    (ROOT / "_build").mkdir(exist_ok=True)
    torch.set_num_threads(
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count()
    )
    cores = f"{torch.get_num_threads()} cores"
    machine = f"{platform.machine()}, {cores}, torch {torch.__version__}"
    if device is not None:
        machine += f", {torch.cuda.get_device_name()}"
    result: dict = {"machine": machine}
    result["workloads"] = {}
    for name in args.workloads:
        w = workload(name, args.sampled_w2 if name == "W2" else None)
        result["workloads"][name] = race(w, args.turns, args.core, device)
    if len(args.workloads) == 3 and device is None:
        result["server_share"], result["growth_ms"] = server_share(), growth()
    (ROOT / "_build" / "bench.json").write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))
    if device is not None:
        print(f"\n{machine}; rounds per second, and how often plain:")
        for name, r in result["workloads"].items():
            print(name, r["rounds_per_second"], r["all_vs_plain"])


if __name__ == "__main__":
    main()
