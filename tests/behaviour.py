"""What every method computes, written down: ``python -m tests.behaviour``.

Records are found again by what was asked for, so a method that is mended must say so by
a higher ``revision``; otherwise old records would pass for new ones. This file holds
the outcome of a tiny run of each method and preset, and the default values of whatever
a record names. The test fails when one of them moves while its revision stays.

The command writes ``tests/behaviour.json`` anew. It refuses to overwrite an outcome or
a default that moved while the revision stayed.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch

from fednb import data, experiment, methods, models, partition
from fednb.identity import describe, revision
from fednb.papers.ocfl.arms import Arms
from fednb.training import Local

from .conftest import federation

FILE = Path(__file__).with_suffix(".json")
SIZES = (9, 14, 7, 20, 11, 8)
ROUNDS = 5


def cases() -> list[Any]:
    """Every method as it comes, every preset, and settings in which much happens."""
    out = []
    for cls in methods.ALL:
        if cls is methods.FixedClusters:
            out.append(cls([0, 1, 0, 1, 2, 2]))
            continue
        out.append(cls())
        for preset in ("as_printed", "as_released"):
            if hasattr(cls, preset):
                out.append(getattr(cls, preset)())
    out += [
        methods.FedAvg(sampled=3),
        methods.LocalOnly(sampled=0.5),
        methods.IFCA(3, sampled=4),
        methods.CFL(wait=1, eps1=2.0, eps2=0.0),
        methods.CFL(wait=1, eps1=2.0, eps2=0.0, sampled=4),
        methods.MTCFL(gamma_max=0.0, sampled=4),
        methods.FedGWC(sampled=1.0, eps=10.0),
        methods.FedGWC.as_released(sampled=3, eps=10.0),
        methods.FedGWC.as_printed(sampled=1.0, eps=10.0),
        methods.OCFL(at=2),
        methods.OCFL("kmeans", at=2, sampled=4),
        methods.BriggsHC(warmup=2, threshold=0.3),
        methods.FedCVRBolt(sampled=3, warmup=2),
        methods.FedCVRBolt.as_released(sampled=3, warmup=2),
        methods.FedCVRBolt.as_printed(sampled=3, warmup=2),
        methods.GCFL(latest=1, zeta=0.3),
        methods.GCFL(latest=1, sampled=4),
        methods.InTurn(2),
        methods.PowerOfChoice(2),
        methods.ActiveFL(2),
        methods.FedSoft(3, sampled=4),
        Arms((("FedAvg", methods.FedAvg()), ("LocalOnly", methods.LocalOnly()))),
    ]
    return out


def named() -> dict[str, Any]:
    """Classes and functions that a record names, by name."""
    things = [*methods.ALL, Local, experiment.measure]
    for module in (partition, models):
        for name, thing in vars(module).items():
            own = getattr(thing, "__module__", "") == module.__name__
            if inspect.isfunction(thing) and own and not name.startswith("_"):
                things.append(thing)
    things += data.GENERATORS.values()
    return {thing.__name__: thing for thing in things}


def outcome(method: Any) -> dict[str, Any]:
    """A tiny run of a method in double precision, in a few numbers."""
    fed = federation(
        sizes=SIZES,
        truth=[0, 0, 0, 1, 1, 1],
        local=Local(lr=0.2, batch_size=5, momentum=0.5),
        dtype=torch.float64,
    )
    state = method.init(fed)
    for t in range(ROUNDS):
        fed.t = t
        state = method.step(state, fed, t)
    labels = torch.as_tensor(state.labels)
    served = state.theta[labels if labels.dim() == 1 else labels[0]]
    return {
        "revision": revision(type(method)),
        "labels": labels.tolist(),
        "updates": fed.meter.updates,
        "bytes": fed.meter.bytes,
        "mean": float(served.mean()),
        "norms": served.norm(dim=1).tolist(),
    }


def local_outcome(local: Local) -> dict[str, Any]:
    """What one client's training of a network with BatchNorm gives."""
    fed = federation("cnn_bn", local=local, dtype=torch.float64)
    update = fed.train(fed.start()[0])
    losses = update.losses.nan_to_num().sum(1)
    return {"norms": update.theta.norm(dim=1).tolist(), "losses": losses.tolist()}


LOCALS = (
    Local(),
    Local(lr=0.1, steps=4, batch_size=3, momentum=0.9, weight_decay=0.01),
    Local(lr=0.01, epochs=2, batch_size=4, drop_last=True, augment=True),
    Local(lr=0.01, batch_size=None, optimizer="adam"),
)


def defaults(thing: Any) -> dict[str, Any]:
    """The default values of a class's fields or a function's arguments."""
    found = {}
    if is_dataclass(thing):
        for field in fields(thing):
            if field.default is not MISSING:
                found[field.name] = field.default
    else:
        for name, parameter in inspect.signature(thing).parameters.items():
            if parameter.default is not inspect.Parameter.empty:
                found[name] = parameter.default
    values = {name: describe(value) for name, value in found.items()}
    return {"revision": revision(thing), "defaults": values}


def now() -> dict[str, dict[str, Any]]:
    """All of it, as this version has it."""
    return {
        "methods": {describe(method): outcome(method) for method in cases()},
        "training": {describe(local): local_outcome(local) for local in LOCALS},
        "defaults": {name: defaults(thing) for name, thing in named().items()},
    }


def moved(was: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]) -> list[str]:
    """What changed although its revision did not."""
    out = []
    for kind, entries in was.items():
        for name, entry in entries.items():
            now = new[kind].get(name)
            if now is None or now.get("revision") != entry.get("revision"):
                continue  # gone, or declared
            if kind == "defaults":
                changed = {
                    key: (value, now["defaults"].get(key))
                    for key, value in entry["defaults"].items()
                    if now["defaults"].get(key, value) != value
                }
                if changed:
                    out.append(f"{name}: the defaults {changed} changed")
            elif not close(entry, now):
                out.append(f"{name} computes something else")
    return out


def close(a: Any, b: Any) -> bool:
    """Whether two JSON values are equal, numbers to within rounding."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) or isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)
    return a == b


def main() -> int:
    """Write the file anew, unless something moved that should not have."""
    new = now()
    if FILE.exists():
        wrong = moved(json.loads(FILE.read_text(encoding="utf-8")), new)
        if wrong:
            print("\n".join(wrong))
            print("Raise the revision of what was meant to change; see CONTRIBUTING.md")
            return 1
    FILE.write_text(json.dumps(new, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
