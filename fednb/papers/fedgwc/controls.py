"""Controls that fork from FedGWC, rules that watch one run, and what is measured.

`Shuffled` and `Replayed` are two controls with random members. `Shuffled` clusters on:
after the first split its own losses decide when and how it splits again. `Replayed`
repeats each split of a FedGWC that runs beside it, so that rounds and sizes of all
splits are the same. `Within` ends a FedGWC at a number of client updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ... import experiment, metrics
from ...door import num_sampled
from ...methods import FedGWC
from ...methods.fedgwc import Seen
from ...methods.fedgwc import State as Clustered
from ...views import ArmsState, follow, pack, tensor_bytes, unpack
from ..common import DIGITS

# --- controls that fork from FedGWC at its first split --------------------------------


@dataclass(frozen=True)
class Shuffled(FedGWC):
    """FedGWC's splits with their sizes, but who goes where is drawn at random."""

    def split(self, P: Tensor, sampled: int, seed: int) -> Tensor:
        """Permute the labels that FedGWC would give."""
        y = super().split(P, sampled, seed)
        return y[torch.as_tensor(np.random.default_rng(seed).permutation(len(y)))]


@dataclass(frozen=True)
class Told(FedGWC):
    """FedGWC's first attempt, but into given clusters; then no more."""

    truth: tuple[int, ...] = ()

    def split(self, P: Tensor, sampled: int, seed: int) -> Tensor:
        """Give the truth while all clients are together."""
        return (
            torch.tensor(self.truth)
            if len(P) == len(self.truth)
            else torch.zeros(len(P), dtype=torch.int64)
        )


@dataclass(frozen=True)
class Unsplit(FedGWC):
    """FedGWC that never looks: it trains in the clusters that it has."""

    def due(self, calm: Tensor, sampled: int, K: int) -> bool:
        """Never."""
        return False


@dataclass(frozen=True)
class Within:
    """FedGWC that stops before it would exceed a number of client updates.

    For rules that sample a fixed number of clients of every cluster: the more clusters
    they have, the more a round costs, up to all clients. Once it has stopped, its state
    stays as it is. Until then it is the FedGWC, bit for bit.
    """

    method: FedGWC
    updates: int

    def init(self, fed) -> Clustered:
        """Start as FedGWC does."""
        return self.method.init(fed)

    def step(self, state: Clustered, fed, t: int) -> Clustered:
        """Run a round if there are client updates left for all of it."""
        spent = int(fed.snapshot()["meter.updates"])
        _, sizes = state.clusters.unique(return_counts=True)
        sampled = [num_sampled(self.method.sampled, size) for size in sizes.tolist()]
        if spent + sum(sampled) > self.updates:
            return state
        return self.method.step(state, fed, t)


class Replay(NamedTuple):
    """The control's models and clusters, and the FedGWC whose splits it repeats."""

    theta: Tensor  # (C, D)
    labels: Tensor  # (K,)
    clusters: Tensor  # (K,)
    control: Clustered
    original: Clustered
    memory: dict[
        str, np.ndarray
    ]  # of the original's federation: visits, draws, traffic


@dataclass(frozen=True)
class Replayed:
    """Random members at FedGWC's own rounds and sizes, split by split.

    The original FedGWC runs beside the control, in a federation of its own with the
    same seed. Up to its first split the two are one. Whenever one of the original's
    clusters is split, the control's cluster of the same number, which has the same
    size, is split into parts of the same sizes, with members drawn at random. Sizes
    agree, so as many clients are sampled in every round. The meter counts the
    control's work only.
    """

    method: FedGWC

    def init(self, fed) -> Replay:
        """Start as FedGWC does."""
        state = self.method.init(fed)
        return self.state(state, state, fed.snapshot())

    def step(self, state: Replay, fed, t: int) -> Replay:
        """Run a round of the original, then one of the control, then split alike."""
        own = fed.snapshot()
        fed.restore(state.memory)
        original = self.method.step(state.original, fed, t)
        memory = fed.snapshot()
        if len(original.rows) == 1:  # not split yet: one round serves both
            return self.state(original, original, memory)
        fed.restore(own)
        control = Unsplit(**all_fields(self.method)).step(state.control, fed, t)
        sizes = split_sizes(state.original.clusters, original.clusters)
        control = self.divide(control, sizes, fed.draw())
        return self.state(control, original, memory)

    def divide(
        self, control: Clustered, sizes: list[list[int]], seed: int
    ) -> Clustered:
        """Split each of the control's clusters into parts of given sizes, at random."""
        rng = np.random.default_rng(seed)
        parts = []
        for c, (members, model) in enumerate(unpack(control, self.method.aggregator)):
            ordered = np.repeat(np.arange(len(sizes[c])), sizes[c])
            labels = torch.as_tensor(rng.permutation(ordered))
            for part in range(len(sizes[c])):
                inside = labels == part
                parts.append((members[inside], follow(model, inside), c))
        origin = torch.tensor([c for *_, c in parts])  # (C,) the cluster it came from
        return control._replace(
            **pack(parts), mse=control.mse[origin], calm=control.calm[origin]
        )

    @staticmethod
    def state(
        control: Clustered, original: Clustered, memory: dict[str, np.ndarray]
    ) -> Replay:
        """What serves the clients is the control."""
        return Replay(
            theta=control.theta,
            labels=control.labels,
            clusters=control.clusters,
            control=control,
            original=original,
            memory=memory,
        )


def split_sizes(before: Tensor, after: Tensor) -> list[list[int]]:
    """For each cluster of ``before`` (K,) the sizes of its parts in ``after`` (K,)."""
    out = []
    for c in range(int(before.max()) + 1):
        _, sizes = after[before == c].unique(return_counts=True)
        out.append(sizes.tolist())
    return out


def all_fields(method: FedGWC) -> dict[str, Any]:
    """The fields of a method by name, for a control that has the same ones."""
    return {field.name: getattr(method, field.name) for field in fields(method)}


class Watched(NamedTuple):
    """FedAvg's model, and what each of R rules makes of the clients' losses."""

    theta: Tensor  # (1, D)
    labels: Tensor  # (K,) zeros
    P: Tensor  # (R, K, K)
    visits: Tensor  # (R, K, K)
    mse: Tensor  # (R,)
    calm: Tensor  # (R,)
    first: Tensor  # (R,) the round of the first attempt, 0 before it
    found: Tensor  # (R, K) its labels
    block: Tensor  # (R, K, K) what it clustered


@dataclass(frozen=True)
class Watch:
    """FedAvg, watched by rules.

    Until its first split FedGWC is FedAvg, so one run tells when and how each rule
    would split.

    Each rule makes its first attempt and then only goes on to observe. Clients are
    sampled uniformly, whatever ``priority`` a rule has.
    """

    rules: tuple[tuple[str, FedGWC], ...]
    sampled: int | float = 1.0

    def init(self, fed) -> Watched:
        """Start with FedAvg's model and each rule's P."""
        theta = fed.start()
        first = [
            theta.new_full((fed.K, fed.K), rule.initial / fed.K**2)
            for _, rule in self.rules
        ]
        P = torch.stack(first)
        R = len(self.rules)
        return Watched(
            theta=theta,
            labels=torch.zeros_like(fed.n),
            P=P,
            visits=torch.zeros_like(P),
            mse=P.new_ones(R),
            calm=torch.zeros(R, dtype=torch.long),
            first=torch.zeros(R, dtype=torch.long),
            found=torch.zeros(R, fed.K, dtype=torch.long),
            block=P,
        )

    def step(self, state: Watched, fed, t: int) -> Watched:
        """Run a round of FedAvg, and let each rule see its losses."""
        sampled = fed.sample(self.sampled)
        seed = fed.draw()
        up = fed.train(state.theta[0], sampled)
        everyone = torch.arange(fed.K)
        rules_see = []
        first = state.first.clone()
        found = state.found.clone()
        block = state.block.clone()
        for r, (_, rule) in enumerate(self.rules):
            seen = Seen(state.P[r], state.visits[r], state.mse[r], state.calm[r])
            seen = rule.observe(seen, sampled, up.losses, fed.n[sampled], fed.K)
            if not first[r] and rule.due(seen.calm, len(sampled), fed.K):
                first[r] = t + 1
                block[r] = rule.block(seen.P, seen.visits, everyone)
                found[r] = rule.split(block[r], len(sampled), seed)
            rules_see.append(seen)
        share = fed.n[sampled] / fed.n[sampled].sum()
        return Watched(
            theta=(share @ up.theta)[None],
            labels=state.labels,
            P=torch.stack([seen.P for seen in rules_see]),
            visits=torch.stack([seen.visits for seen in rules_see]),
            mse=torch.stack([seen.mse for seen in rules_see]),
            calm=torch.stack([seen.calm for seen in rules_see]),
            first=first,
            found=found,
            block=block,
        )


class Looked(NamedTuple):
    """FedAvg's model, what each of R rules has learned, and every look so far."""

    theta: Tensor  # (1, D)
    labels: Tensor  # (K,) zeros
    P: Tensor  # (R, K, K)
    visits: Tensor  # (R, K, K)
    mse: Tensor  # (R,)
    calm: Tensor  # (R,)
    looks: Tensor  # (L, 2) rule and round of each look, from 1
    found: Tensor  # (L, K) what it found; all 0: no split


@dataclass(frozen=True)
class WatchAll:
    """FedAvg, watched by rules from round ``warmup`` on; every look of each is kept.

    Until its first split FedGWC is FedAvg. What a rule finds later on tells whether it
    would find the same again: nothing is split, so the rule goes on with all clients,
    and waits after every look as it does after a vain one. Clients are sampled
    uniformly, whatever ``priority`` a rule has.
    """

    rules: tuple[tuple[str, FedGWC], ...]
    sampled: int | float = 1.0
    warmup: int = 0  # rounds that no rule sees: a warm start

    def init(self, fed) -> Looked:
        """Start with FedAvg's model and each rule's P."""
        theta = fed.start()
        first = [
            theta.new_full((fed.K, fed.K), rule.initial / fed.K**2)
            for _, rule in self.rules
        ]
        P = torch.stack(first)
        return Looked(
            theta=theta,
            labels=torch.zeros_like(fed.n),
            P=P,
            visits=torch.zeros_like(P),
            mse=P.new_ones(len(P)),
            calm=torch.zeros(len(P), dtype=torch.long),
            looks=torch.zeros(0, 2, dtype=torch.long),
            found=torch.zeros(0, fed.K, dtype=torch.long),
        )

    def step(self, state: Looked, fed, t: int) -> Looked:
        """Run a round of FedAvg, and let each rule see its losses."""
        sampled = fed.sample(self.sampled)
        seed = fed.draw()
        up = fed.train(state.theta[0], sampled)
        share = fed.n[sampled] / fed.n[sampled].sum()
        trained = state._replace(theta=(share @ up.theta)[None])
        if t < self.warmup:
            return trained
        everyone = torch.arange(fed.K)
        rules_see = []
        looks = []
        found = []
        for r, (_, rule) in enumerate(self.rules):
            seen = Seen(state.P[r], state.visits[r], state.mse[r], state.calm[r])
            seen = rule.observe(seen, sampled, up.losses, fed.n[sampled], fed.K)
            if rule.due(seen.calm, len(sampled), fed.K):
                block = rule.block(seen.P, seen.visits, everyone)
                looks.append(torch.tensor([[r, t + 1]]))
                found.append(rule.split(block, len(sampled), seed)[None])
                if rule.retry == "reset":
                    seen = seen._replace(
                        mse=torch.ones_like(seen.mse), calm=torch.zeros_like(seen.calm)
                    )
            rules_see.append(seen)
        return trained._replace(
            P=torch.stack([seen.P for seen in rules_see]),
            visits=torch.stack([seen.visits for seen in rules_see]),
            mse=torch.stack([seen.mse for seen in rules_see]),
            calm=torch.stack([seen.calm for seen in rules_see]),
            looks=torch.cat([state.looks, *looks]),
            found=torch.cat([state.found, *found]),
        )


# --- measures -------------------------------------------------------------------------


def measure_fedgwc(fed, state) -> dict[str, Any]:
    """The usual numbers and two of the paper's.

    "Balanced accuracy" as the released code computes it, and the Rand index of Tables 4
    and 7.
    """
    result = fed.evaluate(state.theta, experiment.serving(state))
    clusters = experiment.clusters_of(state)
    out = experiment.measure_models(result) | experiment.measure_clusters(fed, clusters)
    counts = result.confusion.cpu().numpy()
    out |= {
        "balanced_released": metrics.average(
            metrics.share_weighted_accuracy(counts, fed.truth.counts)
        )
    }
    if fed.truth.labels is not None:
        out["rand"] = metrics.rand_index(fed.truth.labels, clusters.numpy())
    return out


def measure_watch(fed, state) -> dict[str, Any]:
    """For each rule its MSE, its first attempt and how good that is.

    For the first rule also what it saw.
    """
    out = {f"mse_{r}": float(x) for r, x in enumerate(state.mse)}
    out |= {f"first_{r}": int(x) for r, x in enumerate(state.first)}
    for r, labels in enumerate(state.found):
        out |= {
            f"{name}_{r}": value
            for name, value in experiment.measure_clusters(fed, labels).items()
        }
    rounded = [[round(float(x), 4) for x in row] for row in state.block[0]]
    return out | {
        "P": rounded,
        "found": state.found.tolist(),
        "counts": fed.truth.counts.tolist(),
    }


def members(labels: Tensor) -> str | None:
    """Who is in which cluster (K,), a character for each client; None: too many."""
    if int(labels.max()) >= len(DIGITS):
        return None
    return "".join(DIGITS[c] for c in labels.tolist())


def measure_members(fed, state, at: Sequence[int] = ()) -> dict[str, Any]:
    """`measure_fedgwc`, and in the rounds ``at``, from 1, who is in which cluster."""
    out = measure_fedgwc(fed, state)
    if fed.t + 1 in at:
        out["members"] = members(getattr(state, "clusters", state.labels))
    return out


def measure_arms(fed, state: ArmsState, at: Sequence[int] = ()) -> dict[str, Any]:
    """`measure_members` of each arm, as ``"arm|score"``, and what it costs alone.

    Arms with the same models and clusters are measured once.
    """
    known: dict[bytes, dict[str, Any]] = {}
    out = {}
    for name, arm, memory in zip(state.names, state.arms, state.memory, strict=True):
        same = tensor_bytes(arm.theta) + tensor_bytes(experiment.clusters_of(arm))
        if same not in known:
            known[same] = measure_members(fed, arm, at)
        alone = {
            "client_updates": int(memory["meter.updates"]),
            "bytes": int(memory["meter.down"] + memory["meter.up"]),
        }
        for score, value in (known[same] | alone).items():
            out[arm_key(name, score)] = value
    return out


def arm_key(arm: str, score: str) -> str:
    """The name under which `measure_arms` writes a score of an arm."""
    return f"{arm}|{score}"


def measure_looks(fed, state: Looked, final: int = 0) -> dict[str, Any]:
    """FedAvg's usual numbers and each rule's MSE; in round ``final`` also every look.

    Of rule r, ``looks_r`` are [round, clusters found, Rand index] of its looks; where
    it split first, ``split_r`` is the round (0: it never did), ``members_r`` tells who
    went where, and ``was_r``, ``rand_r`` and others how good that is.
    """
    out = measure_fedgwc(fed, state)
    out |= {f"mse_{r}": float(x) for r, x in enumerate(state.mse)}
    if fed.t + 1 != final:
        return out
    for r in range(len(state.mse)):
        own = state.looks[:, 0] == r
        rounds = state.looks[own, 1].tolist()
        found = state.found[own]
        out[f"looks_{r}"] = [
            [t, int(labels.max()) + 1, rand_with_truth(fed, labels)]
            for t, labels in zip(rounds, found, strict=True)
        ]
        splits = found.any(1).nonzero()[:, 0].tolist()
        out[f"split_{r}"] = rounds[splits[0]] if splits else 0
        if splits:
            labels = found[splits[0]]
            out[f"members_{r}"] = members(labels)
            out[f"rand_{r}"] = rand_with_truth(fed, labels)
            for name, value in experiment.measure_clusters(fed, labels).items():
                out[f"{name}_{r}"] = value
    out["counts"] = fed.truth.counts.tolist()
    return out


def rand_with_truth(fed, labels: Tensor) -> float | None:
    """The Rand index of labels (K,), to three digits; None without hidden groups."""
    if fed.truth.labels is None:
        return None
    return round(metrics.rand_index(fed.truth.labels, labels.numpy()), 3)
