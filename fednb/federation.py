"""The federation: the only door through which a method reaches its clients.

A method sees the number of clients ``K``, their sizes ``n``, and a few verbs: ``start``, ``sample``, ``train``,
``loss``, ``predict`` and ``evaluate``, with ``draw``, ``tickets`` and ``probe`` for the server's own needs. It never
sees a sample of a client, and never the hidden ``truth`` about clusters. What passes the door is counted by the
``meter``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from .backends import Batched, Correction, Lean, TaskError, cross_entropy, squared_error
from .data import Dataset
from .params import Layout
from .partition import Partition, class_counts
from .training import Local, Seeded, plan

# Purposes: random streams of different purpose never meet.
START, SAMPLE, CLIENT, DRAW, PROBE, EVALUATE = range(6)


class ClientError(RuntimeError):
    """One client's training failed, or diverged; the message names the client."""


class Update(NamedTuple):
    """What comes back from local training of n clients."""

    theta: Tensor  # (n, D) the clients' new rows
    losses: Tensor  # (n, S) loss at every local step; a client with fewer steps than S has nan after its last
    clients: Tensor  # (n,) who they are


class Evaluation(NamedTuple):
    """How models do on labelled samples: for each sample its owner, its class, and the class predicted."""

    owner: Tensor  # (N,) whose sample: a client, or for the server's samples a model that several clients share
    true: Tensor  # (N,)
    pred: Tensor  # (N,)
    loss: Tensor  # (K,) mean cross-entropy of each client; nan without test samples
    of: Tensor  # (K,) the owner that stands for each client
    classes: int

    @property
    def confusion(self) -> Tensor:  # (K, classes, classes)
        """Counts of (true class, predicted class) for each client."""
        K, C = len(self.of), self.classes
        if K * C * C > 4e8:
            raise ValueError(
                f"{K} clients x {C} x {C} classes do not fit in memory: work on owner, true and pred"
            )
        owners = int(self.of.max()) + 1
        cells = (self.owner * C + self.true) * C + self.pred
        return torch.bincount(cells, minlength=owners * C * C).view(owners, C, C)[
            self.of
        ]


class Truth(NamedTuple):
    """What only the judge may see: hidden clusters (None if there are none) and class counts of each client."""

    labels: np.ndarray | None  # (K,)
    counts: np.ndarray  # (K, classes)


@dataclass
class Meter:
    """Traffic so far: bytes to the clients, bytes from them, and how many local trainings were done."""

    down: int = 0
    up: int = 0
    updates: int = 0

    @property
    def bytes(self) -> int:
        """Both directions together."""
        return self.down + self.up


class Event(NamedTuple):
    """Something that went wrong in a round, recorded because training went on."""

    round: int
    client: int
    what: str


class Federation:
    """K clients with data of their own, a model recipe, and the local training that they do.

    Parameters
    ----------
    data, parts
        A :class:`~fednb.data.Dataset` and a :class:`~fednb.partition.Partition` of its rows.
    model
        A function without arguments that makes a fresh network, such as ``partial(lenet5, classes=100)``.
    local
        What a client does in a round.
    seed
        Seeds initial models, sampling and batches; each client has a random stream of its own.
    device, backend
        ``"auto"`` takes the GPU and the batched backend where there is one, else the CPU and the lean backend.
    workers
        Threads of the lean backend; as many as torch would use by default (so ``OMP_NUM_THREADS`` is heeded).
    chunk, memory
        Clients per pass of the batched backend, or the bytes that a pass may take.
    loss
        ``loss(outputs, targets)`` per sample; cross-entropy for integer labels, squared error for real ones.
    batch_stats
        Judge BatchNorm models by the statistics of each client's own samples instead of the running ones, as code does
        that never calls ``model.eval()`` (WeCFL's released code).
    diverged
        ``"raise"`` stops when a client's loss or row is no longer finite; ``"record"`` leaves that client out (its row
        comes back unchanged) and adds to ``events``.
    start
        A row (D,) from which every method starts, instead of fresh models: arms of a comparison fork from one model.
    ids
        Numbers of the clients' random streams: permuted clients with permuted ids give permuted results.
    """

    def __init__(
        self,
        data: Dataset,
        parts: Partition,
        model: Callable[[], nn.Module],
        *,
        local: Local | None = None,
        seed: int = 0,
        device: str = "auto",
        backend: str = "auto",
        workers: int | None = None,
        chunk: int | None = None,
        memory: float | None = None,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
        dtype: torch.dtype = torch.float32,
        batch_stats: bool = False,
        diverged: str = "raise",
        start: Tensor | None = None,
        ids: Sequence[int] | None = None,
    ) -> None:
        _check_choice("backend", backend, ("auto", "lean", "batched"))
        _check_choice("diverged", diverged, ("raise", "record"))
        _check_parts(data, parts)
        self.local, self.seed, self.diverged, self.batch_stats = (
            local or Local(),
            seed,
            diverged,
            batch_stats,
        )
        self.device = torch.device(
            ("cuda" if torch.cuda.is_available() else "cpu")
            if device == "auto"
            else device
        )
        self.K, self.classes = len(parts.train), data.classes
        self.n = torch.tensor(
            [len(i) for i in parts.train], device=self.device
        )  # (K,) training samples
        self.t = (
            0  # the round, set by run: learning-rate schedules and events look at it
        )
        self.meter, self.events = Meter(), []
        self._x, self._y = _tensors(data, self.device, dtype)
        self._loss = loss or (
            squared_error if self._y.is_floating_point() else cross_entropy
        )
        self._parts, self._model, self._dtype, self._start = parts, model, dtype, start
        self._ids = np.arange(self.K) if ids is None else np.asarray(ids)
        self._visits, self._samples, self._seeds = (
            np.zeros(self.K, dtype=np.int64),
            0,
            0,
        )
        self._memory: dict[
            tuple[int, int], tuple[Tensor, ...]
        ] = {}  # optimiser state by (client, slot), if kept
        used = np.concatenate([*parts.train, *parts.test])
        self._server = torch.as_tensor(
            np.setdiff1d(np.arange(data.n_train, len(data.x)), used), device=self.device
        )

        module = self._build(0)
        self.layout = Layout.of(module)
        if start is not None and start.shape != (self.layout.D,):
            raise ValueError(
                f"start has shape {tuple(start.shape)}, a row of this model has {self.layout.D} columns"
            )
        _check_model(module, self._x, self.classes, self._y.is_floating_point())
        if backend == "auto":
            backend = "batched" if self.device.type == "cuda" else "lean"
        if backend == "batched":
            self.backend = Batched(
                module, self._x, self._y, self._loss, int(self.n.max()), chunk, memory
            )
        else:
            threads = (
                1 if self.device.type == "cuda" else workers or torch.get_num_threads()
            )
            self.backend = Lean(module, self._x, self._y, self._loss, threads)

    def __repr__(self) -> str:
        return (
            f"Federation({self.K} clients, {int(self.n.sum())} samples, D={self.layout.D}, {self.local}, "
            f"seed={self.seed}, {type(self.backend).__name__.lower()} on {self.device})"
        )

    # --- the verbs ---------------------------------------------------------------------------------------------------

    def start(self, models: int = 1) -> Tensor:  # (models, D)
        """Initial rows; row j depends on the seed and on j only, so all methods of one seed start alike."""
        if models < 1:
            raise ValueError(f"start: asked for {models} models")
        if self._start is not None:
            return torch.as_tensor(
                self._start, dtype=self._dtype, device=self.device
            ).repeat(models, 1)
        return torch.stack([self.layout.row(self._build(j)) for j in range(models)])

    def sample(
        self, size: int | float = 1.0, among: Tensor | None = None
    ) -> Tensor:  # (n,)
        """Draw clients without replacement: a number of them, or a fraction; ``among`` a mask (K,) or their numbers."""
        pool, fraction = self._who(among), isinstance(size, float)
        count = math.ceil(size * len(pool)) if fraction else int(size)
        if not size > 0 or (fraction and size > 1):
            raise ValueError(
                f"sample: {size!r} is neither a positive number of clients nor a fraction in (0, 1]"
            )
        order = self.tickets()[pool].argsort(stable=True)
        return pool[order[:count]].sort().values

    def tickets(self) -> Tensor:  # (K,)
        """A random number in [0, 1) for each client, whatever its place in the list; ``sample`` takes the least ones.

        Gumbel numbers made of them draw clients with unequal probabilities.
        """
        drawn = self._stream(SAMPLE, self._samples).random(self._ids.max() + 1)[
            self._ids
        ]
        self._samples += 1
        return torch.as_tensor(drawn, device=self.device)

    def draw(self) -> int:
        """Draw an integer from the server's own random stream, to seed its k-means, say; samples stay as they are."""
        self._seeds += 1
        return int(self._stream(DRAW, self._seeds).integers(2**31))

    def train(
        self,
        theta: Tensor,
        clients: Tensor | None = None,
        *,
        correct: Correction | None = None,
        args: Sequence[Tensor] = (),
        travels: bool = True,
        slot: int = 0,
        **changes: Any,
    ) -> Update:
        """Send rows to clients, let each train on its own data, and bring the new rows back.

        ``theta`` is one row (D,) for all, or a row per client (n, D).

        ``correct(g, th)`` may change every gradient before it is used: FedProx is
        ``correct=lambda g, th: g + mu * (th - w)``. What differs from client to client is passed along in ``args``,
        tensors with one line per client: ``correct=lambda g, th, w: ..., args=(w,)``. Both g and th are rows, (D,) or
        (n, D), with zeros where g meets buffers.

        With ``travels=False`` the rows are the clients' own and stay with them: the meter counts updates but no bytes.
        A method that trains several models at a client numbers them by ``slot``: each has its own momentum, if kept.
        Further keywords change :class:`Local` for this call: ``train(theta, S, lr=0.1, steps=5)``.
        """
        who = self._who(clients)
        rows = self._rows(theta, len(who))
        if len(set(who.tolist())) < len(who):
            raise ValueError("train: a client is listed twice; train it in two calls")
        local = replace(self.local, **changes)
        args = [
            torch.as_tensor(a, device=self.device).expand(len(who), *a.shape[1:])
            for a in args
        ]
        plans = [self._plan(k, local) for k in who.tolist()]
        homes = [(k, slot) for k in who.tolist()]
        states = [
            self._memory.get(home) if local.keep_state else None for home in homes
        ]
        try:
            done = self.backend.train(
                rows, plans, local, local.lr_at(self.t), correct, args, states
            )
        except TaskError as error:
            cause = error.__cause__
            raise ClientError(
                f"client {int(who[error.i])}: {type(cause).__name__}: {cause}"
            ) from cause
        self._visits[who.cpu().numpy()] += 1
        if local.keep_state:
            self._memory |= zip(homes, done.states, strict=True)
        sent = rows.nbytes if travels else 0
        self._count(down=sent, up=sent, updates=len(who))
        theta = self._only_finite(rows, done.theta, done.losses, plans, homes, local)
        return Update(theta, done.losses, who)

    def loss(
        self, theta: Tensor, clients: Tensor | None = None, on: str = "train"
    ) -> Tensor:
        """Mean loss of every row at every client: (C, D) -> (n, C), or (D,) -> (n,); IFCA chooses by it."""
        who, parts = self._who(clients), self._own(on)
        rows = theta[None] if theta.dim() == 1 else theta
        index, owner, size = _flat([parts[k] for k in who.tolist()])
        out = torch.empty(len(who), len(rows), dtype=self._dtype, device=self.device)
        y = self._y[index]
        for c, row in enumerate(rows):
            logits = self._outputs(row[None], torch.zeros_like(owner), index, owner)
            total = torch.zeros_like(out[:, c]).index_add_(
                0, owner, self._loss(logits, y)
            )
            out[:, c] = total / size
        self._count(down=len(who) * rows.nbytes, up=out.nbytes)
        return out[:, 0] if theta.dim() == 1 else out

    def probe(self, per_class: int) -> tuple[Tensor, Tensor]:  # (m, ...), (m,)
        """Labelled samples of the server that no client holds, so many of each class or as many as there are.

        The same ones whenever it is asked. They are among those of ``evaluate(on="server")``.
        """
        rng, mine = self._stream(PROBE), []
        for c in range(self.classes):
            own = self._server[self._y[self._server] == c].cpu().numpy()
            if not len(own) or per_class < 1:
                raise ValueError(
                    f"probe: {per_class} samples of class {c} wanted, {len(own)} are held by no client"
                )
            mine.append(rng.permutation(own)[:per_class])
        index = torch.as_tensor(np.concatenate(mine), device=self.device)
        return self._x[index], self._y[index]

    def predict(self, theta: Tensor, x: Tensor) -> Tensor:
        """Outputs of every row on given inputs, computed at the server: (C, D), (m, ...) -> (C, m, classes)."""
        rows = theta[None] if theta.dim() == 1 else theta
        x = torch.as_tensor(x, dtype=self._dtype, device=self.device)
        out = torch.stack(self._logits([(row, x) for row in rows]))
        return out[0] if theta.dim() == 1 else out

    def evaluate(self, theta: Tensor, labels: Tensor, on: str = "test") -> Evaluation:
        """Let every client be served by its row and compare with the truth, on its ``test`` or ``train`` samples, or
        on those of the ``server`` that no client holds.

        ``labels`` is (K,), the row of each client; or (K, C), the weight of each row in a soft vote of probabilities.
        """
        if self._y.is_floating_point():
            raise ValueError(
                'evaluate counts classes; for real targets use fed.loss(theta, on="test")'
            )
        votes = torch.as_tensor(labels, device=self.device)
        _check_votes(votes, self.K, len(theta))
        if on == "server":  # clients with the same model share its evaluation
            votes, of = votes.unique(dim=0, return_inverse=True)
            own = [self._server] * len(votes)
        else:
            own, of = self._own(on), torch.arange(self.K, device=self.device)
        index, owner, size = _flat(own)
        y = self._y[index]
        probability = self._vote(theta, votes, index, owner)  # (N, classes)
        surprise = -probability.gather(1, y[:, None])[:, 0].clamp_min(1e-30).log()
        loss = (
            torch.zeros_like(size, dtype=self._dtype).index_add_(0, owner, surprise)
            / size
        )
        return Evaluation(owner, y, probability.argmax(1), loss[of], of, self.classes)

    # --- what the judge, and a checkpoint, may see -------------------------------------------------------------------

    @property
    def truth(self) -> Truth:
        """Hidden clusters and class counts: for metrics, never for methods."""
        counts = class_counts(self._parts.train, self._y.cpu().numpy(), self.classes)
        return Truth(self._parts.truth, counts)

    def identity(self) -> str:
        """Name that tells this federation from others: its partition, model size, local training, seed and backend."""
        parts = hashlib.sha256(self._ids.tobytes())
        for samples in (*self._parts.train, *self._parts.test):
            parts.update(samples.tobytes() + b"|")
        return f"{self!r} {parts.hexdigest()[:12]}"

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that changes in a federation while it runs, as arrays: restore() brings it back bit for bit."""
        arrays = {
            "visits": self._visits.copy(),
            "draws": np.array([self._samples, self._seeds]),
        }
        arrays |= {
            f"meter.{name}": np.array(v) for name, v in asdict(self.meter).items()
        }
        for (k, slot), state in self._memory.items():
            arrays |= {
                f"memory.{k}.{slot}.{i}": t.cpu().numpy() for i, t in enumerate(state)
            }
        return arrays

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Take back what snapshot() gave."""
        if arrays["visits"].shape != (self.K,):
            raise ValueError(
                f"restore: a snapshot of {len(arrays['visits'])} clients, this federation has {self.K}"
            )
        self._visits, (self._samples, self._seeds) = (
            arrays["visits"].copy(),
            arrays["draws"].tolist(),
        )
        self.meter = Meter(
            **{name: int(arrays[f"meter.{name}"]) for name in asdict(self.meter)}
        )
        memory: dict[tuple[int, int], dict[int, Tensor]] = {}
        for key in (key.split(".") for key in arrays if key.startswith("memory.")):
            value = torch.as_tensor(arrays[".".join(key)], device=self.device)
            memory.setdefault((int(key[1]), int(key[2])), {})[int(key[3])] = value
        self._memory = {
            home: tuple(v[i] for i in range(len(v))) for home, v in memory.items()
        }

    # --- inside ------------------------------------------------------------------------------------------------------

    def _stream(self, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *(int(k) for k in key)])

    def _build(self, j: int) -> nn.Module:
        if isinstance(self._model, nn.Module) or not callable(self._model):
            raise TypeError(
                "model must be a recipe, not a network: pass a function, e.g. lambda: lenet5(classes=10)"
            )
        with Seeded(int(self._stream(START, j).integers(2**62))):
            return self._model().to(self.device, self._dtype)

    def _plan(self, k: int, local: Local):
        return plan(
            self._parts.train[k],
            local,
            self._stream(CLIENT, self._ids[k], self._visits[k]),
        )

    def _own(self, on: str) -> list[Tensor]:
        _check_choice("on", on, ("train", "test", "server"))
        return [
            torch.as_tensor(i, device=self.device) for i in getattr(self._parts, on)
        ]

    def _who(self, clients: Tensor | None) -> Tensor:
        if clients is None:
            return torch.arange(self.K, device=self.device)
        who = torch.as_tensor(clients, device=self.device)
        if who.dtype == torch.bool:
            if len(who) != self.K:
                raise ValueError(f"a mask of {len(who)} for {self.K} clients")
            return who.nonzero()[:, 0]
        who = who.long().reshape(-1)
        if len(who) and not (int(who.min()) >= 0 and int(who.max()) < self.K):
            raise ValueError(
                f"clients are numbered 0..{self.K - 1}, found {int(who.min())}..{int(who.max())}"
            )
        return who

    def _rows(self, theta: Tensor, n: int) -> Tensor:
        rows = theta.expand(n, -1) if theta.dim() == 1 else theta
        if rows.shape != (n, self.layout.D):
            raise ValueError(
                f"train: theta of shape {tuple(theta.shape)} for {n} clients of {self.layout.D} columns"
            )
        return rows

    def _count(self, down: int, up: int, updates: int = 0) -> None:
        self.meter = Meter(
            self.meter.down + down, self.meter.up + up, self.meter.updates + updates
        )

    def _vote(
        self, theta: Tensor, votes: Tensor, index: Tensor, owner: Tensor
    ) -> Tensor:  # (N, classes)
        """Weighted mean of the rows' class probabilities at each sample; a hard label is a weight of one."""
        if votes.dim() == 1:
            votes = F.one_hot(votes, len(theta))
        votes = votes[owner].to(self._dtype)  # (N, C)
        row, sample = votes.T.nonzero(
            as_tuple=True
        )  # who votes at which sample, row by row
        p = self._outputs(theta, row, index[sample], owner[sample]).softmax(1)
        total = torch.zeros(
            len(index), self.classes, dtype=self._dtype, device=self.device
        )
        total.index_add_(0, sample, votes[sample, row, None] * p)
        return total / total.sum(1, keepdim=True)

    def _outputs(
        self, theta: Tensor, row: Tensor, index: Tensor, owner: Tensor
    ) -> Tensor:  # (N, ...)
        """Outputs of row ``row[j]`` at sample ``index[j]``; equal rows stand together, and so do equal owners in them.

        With ``batch_stats`` a model meets one owner's samples at a time, for their statistics are its own.
        """
        group = row * (int(owner.max()) + 1) + owner if self.batch_stats else row
        sizes = group.unique_consecutive(return_counts=True)[1].tolist()
        tasks = [
            (theta[c[0]], self._x[i])
            for c, i in zip(row.split(sizes), index.split(sizes), strict=True)
        ]
        return torch.cat(self._logits(tasks, train=self.batch_stats))

    def _logits(
        self, tasks: Sequence[tuple[Tensor, Tensor]], train: bool = False
    ) -> list[Tensor]:
        """Outputs of each (row, inputs); a model that draws always draws the same."""
        seed = int(self._stream(EVALUATE).integers(2**62))
        return self.backend.logits(tasks, train=train, seed=seed)

    def _only_finite(self, before, after, losses, plans, homes, local) -> Tensor:
        bad = ~after.sum(
            1
        ).isfinite()  # one cheap pass; a sum that overflows is divergence too
        if not bool(bad.any()):
            return after
        for i in bad.nonzero()[:, 0].tolist():
            lost = (~losses[i, : len(plans[i].size)].isfinite()).nonzero()
            step = (
                f"loss not finite from local step {int(lost[0])}"
                if len(lost)
                else "parameters not finite"
            )
            what = f"diverged in round {self.t}: {step} (lr={local.lr_at(self.t):g}); lower lr or check the data"
            if self.diverged == "raise":
                raise ClientError(f"client {homes[i][0]} {what}")
            self.events.append(Event(self.t, homes[i][0], what))
            self._memory.pop(homes[i], None)  # its momentum is not finite either
        return torch.where(bad[:, None], before, after)


def _tensors(
    data: Dataset, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    x = data.x if data.x.flags.writeable else np.array(data.x)
    x = torch.from_numpy(x).to(device, dtype)
    if data.x.dtype == np.uint8:
        x /= 255
    if data.mean is not None:
        wide = (1, -1, *[1] * (x.dim() - 2))
        x = (
            x - torch.tensor(data.mean, device=device, dtype=dtype).view(wide)
        ) / torch.tensor(data.std, device=device, dtype=dtype).view(wide)
    y = torch.from_numpy(np.array(data.y)).to(device)
    return x, y.to(dtype) if y.is_floating_point() else y


def _flat(own: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Lists of samples as one list, with the owner of each and the size of each list."""
    size = torch.tensor([len(i) for i in own], device=own[0].device)
    return torch.cat(list(own)), torch.repeat_interleave(size), size


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name}={value!r}: choose from {', '.join(choices)}")


def _check_votes(votes: Tensor, K: int, C: int) -> None:
    if len(votes) != K:
        raise ValueError(f"evaluate: {len(votes)} labels for {K} clients")
    hard = votes.dim() == 1
    if hard and (
        votes.is_floating_point() or int(votes.min()) < 0 or int(votes.max()) >= C
    ):
        raise ValueError(
            f"labels must be integers in 0..{C - 1}: one of the {C} rows serves each client"
        )
    if not hard and (
        votes.shape != (K, C)
        or not bool((votes >= 0).all() and (votes.sum(1) > 0).all())
    ):
        raise ValueError(
            f"votes must be ({K}, {C}) weights >= 0 with a positive sum for each client"
        )


def _check_parts(data: Dataset, parts: Partition) -> None:
    if not parts.train or len(parts.train) != len(parts.test):
        raise ValueError(
            f"{len(parts.train)} training lists and {len(parts.test)} test lists: one each per client"
        )
    for k, (train, test) in enumerate(zip(parts.train, parts.test, strict=True)):
        if len(train) == 0:
            raise ValueError(
                f"client {k} has no training samples: raise min_size in the partition, or drop it"
            )
        both = np.concatenate([train, test])
        if both.min() < 0 or both.max() >= len(data.x):
            raise ValueError(
                f"client {k} names sample {both.max()}, but the data has {len(data.x)}"
            )
    if len(data.y) != len(data.x):
        raise ValueError(f"{len(data.x)} samples but {len(data.y)} labels")
    integer = np.issubdtype(data.y.dtype, np.integer)
    if integer and not (data.y.min() >= 0 and data.y.max() < data.classes):
        raise ValueError(
            f"labels {data.y.min()}..{data.y.max()} do not lie in 0..{data.classes - 1}"
        )


def _check_model(module: nn.Module, x: Tensor, classes: int, regression: bool) -> None:
    if any(
        isinstance(m, _BatchNorm) and m.track_running_stats and m.momentum is None
        for m in module.modules()
    ):
        raise ValueError(
            "BatchNorm(momentum=None) counts batches, and a row holds no integers: set a momentum"
        )
    module.eval()
    try:
        with torch.no_grad(), Seeded(0):
            out = module(x[:2])
    except RuntimeError as error:
        raise ValueError(
            f"the model cannot take inputs of shape {tuple(x.shape[1:])}: {error}"
        ) from error
    if not regression and out.shape != (len(x[:2]), classes):
        raise ValueError(
            f"the model gives outputs {tuple(out.shape[1:])} per sample, the data has {classes} classes"
        )
