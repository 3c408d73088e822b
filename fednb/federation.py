"""The federation: clients with data of their own, behind the one door to them.

A method sees a :class:`~fednb.door.Fed`: the number of clients ``K``, their sizes
``n``, and the verbs ``start``, ``sample``, ``train``, ``loss`` and ``best_share``, with
``predict``, ``probe``, ``draw`` and ``tickets`` for the server's own needs. A judge
sees a :class:`~fednb.door.Judge`: also ``truth``, ``evaluate``, ``unmetered_loss``,
samples, and networks. What methods send through the door is counted by the ``meter``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import checks, door, entry
from .backends import (
    Batched,
    Correction,
    Lean,
    Loss,
    TaskError,
    choose_backend,
    cross_entropy,
    squared_error,
)
from .data import Dataset, fingerprint
from .door import Evaluation, Event, Meter, Truth, Update
from .door import Fed as Fed  # methods and judges find the types of the door here too
from .door import Judge as Judge
from .identity import describe_network, tell_apart
from .params import Layout
from .partition import Partition, class_counts
from .training import Inputs, Local, Plan, Seeded, plan

# Purposes: random streams of different purpose never meet.
START, SAMPLE, CLIENT, DRAW, PROBE, LOOK, EVALUATE = range(7)


class ClientError(RuntimeError):
    """A client's training failed or diverged, or its model is not finite.

    The message names the client.
    """


class Federation:
    """K clients with data of their own, a model recipe, and what clients do in a round.

    Parameters
    ----------
    data, parts
        A :class:`~fednb.data.Dataset` and a :class:`~fednb.partition.Partition` of its
        rows.
    model
        A function without arguments that makes a fresh network, such as
        ``partial(lenet5, classes=100)``. Parameters that require no gradient are not
        trained.
    local
        What a client does in a round.
    seed
        Seeds initial models, sampling and batches; each client has a random stream of
        its own.
    device, backend
        ``"auto"`` takes the GPU and the batched backend where there is one, else the
        CPU and the lean backend.
    workers
        Threads of the lean backend; as many as torch would use by default (so
        ``OMP_NUM_THREADS`` is heeded).
    chunk, memory
        Clients per pass of the batched backend, or the bytes that a pass may take.
    loss
        ``loss(outputs, targets)`` per sample; cross-entropy for integer labels, squared
        error for real ones.
    batch_stats
        Judge BatchNorm models by the statistics of each client's own samples instead of
        the running ones, as code does that never calls ``model.eval()`` (WeCFL's
        released code).
    diverged
        What to do with a client whose loss or row is no longer finite, and with a
        model of the server that is not finite when it is judged. ``"raise"`` stops.
        ``"record"`` adds to ``events`` and goes on: such a client is left out (its row
        comes back unchanged), such a model has an infinite loss and is always wrong.
    start
        A row (D,) from which every method starts, instead of fresh models: arms of a
        comparison fork from one model.
    ids
        Numbers of the clients' random streams: permuted clients with permuted ids give
        permuted results.
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
        loss: Loss | None = None,
        dtype: torch.dtype = torch.float32,
        batch_stats: bool = False,
        diverged: str = "raise",
        start: Tensor | None = None,
        ids: Sequence[int] | None = None,
    ) -> None:
        entry.check_options(
            local=local,
            seed=seed,
            backend=backend,
            workers=workers,
            chunk=chunk,
            memory=memory,
            loss=loss,
            dtype=dtype,
            batch_stats=batch_stats,
            diverged=diverged,
        )
        entry.check_recipe(model)
        if local is None:
            local = Local()
        self.local = local
        self.seed = seed
        self.batch_stats = batch_stats
        self.diverged = diverged
        self.device = entry.find_device(device)
        self.dtype = dtype
        self._model = model

        self._data = data
        self._x = entry.inputs(data, self.device, dtype)
        self._y = entry.targets(data, self.device, dtype)
        self._parts = entry.sample_lists(parts, len(self._x))
        self.K = len(self._parts.train)
        self.classes = data.classes
        sizes = [len(samples) for samples in self._parts.train]
        self.n = torch.tensor(sizes, device=self.device)  # (K,) training samples
        self._ids = entry.stream_ids(ids, self.K)
        aside = self._parts.validation or []
        used = np.concatenate([*self._parts.train, *self._parts.test, *aside])
        held_back = np.setdiff1d(np.arange(data.n_train, len(self._x)), used)
        self._server = torch.as_tensor(held_back, device=self.device)

        self.t = 0  # the round, set by run: schedules and events look at it
        self.meter = Meter()
        self.events: list[Event] = []
        self._visits = np.zeros(self.K, dtype=np.int64)
        self._samples = 0
        self._seeds = 0
        # what optimisers keep from round to round, by (client, slot)
        self._memory: dict[tuple[int, int], tuple[Tensor, ...]] = {}

        module = self._build(0)
        self.layout = Layout.of(module)
        entry.check_reproducible(
            self.layout.row(module), self.layout.row(self._build(0))
        )
        self._start = self._first_row(start)
        if self._y.is_floating_point():
            outputs = entry.check_outputs(module, self._x, None)
            usual_loss: Loss = squared_error
        else:
            outputs = entry.check_outputs(module, self._x, self.classes)
            usual_loss = cross_entropy
        if loss is None:
            loss = usual_loss
        entry.check_loss(loss, outputs, self._y)
        self._loss = loss
        if backend == "auto":
            backend = choose_backend(self.device, module, self._x)
        if backend == "batched":
            self.backend: Batched | Lean = Batched(
                module,
                self._x,
                self._y,
                loss,
                largest=max(sizes),
                chunk=chunk,
                memory=memory,
            )
            return
        if workers is None:
            workers = torch.get_num_threads()
        if self.device.type == "cuda":
            workers = 1
        self.backend = Lean(module, self._x, self._y, loss, workers)

    def __repr__(self) -> str:
        return (
            f"Federation({self.K} clients, {int(self.n.sum())} samples, "
            f"D={self.layout.D}, {self.local}, seed={self.seed}, "
            f"{type(self.backend).__name__.lower()} on {self.device})"
        )

    # --- the clients' verbs, as `Fed` explains them -----------------------------------

    def start(self, models: int = 1) -> Tensor:  # (models, D)
        """Initial rows, the same for all methods of one seed."""
        checks.argument("start", "models", models, checks.integer(1))
        if self._start is not None:
            row = self._start.to(device=self.device, dtype=self.dtype)
            return row.repeat(models, 1)
        return torch.stack([self.layout.row(self._build(j)) for j in range(models)])

    def sample(
        self, size: int | float = 1.0, among: Tensor | None = None
    ) -> Tensor:  # (n,)
        """Draw a number or a fraction of the clients, without replacement."""
        checks.argument("sample", "size", size, checks.sampled)
        pool = self._who("sample", among)
        order = self.tickets()[pool].argsort(stable=True)
        first = order[: door.num_sampled(size, len(pool))]
        return pool[first].sort().values

    def tickets(self) -> Tensor:  # (K,)
        """A random number in [0, 1) for each client; ``sample`` takes the least."""
        stream = self._stream(SAMPLE, self._samples)
        drawn = stream.random(self._ids.max() + 1)[self._ids]
        self._samples += 1
        return torch.as_tensor(drawn, device=self.device)

    def draw(self) -> int:
        """Draw an integer from the server's own stream."""
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
        sent: int | None = None,
        slot: int = 0,
        **changes: Any,
    ) -> Update:
        """Send rows to clients, let each train on its data, and bring new rows back."""
        checks.argument("train", "slot", slot, checks.integer(0))
        checks.argument("train", "sent", sent, checks.optional(checks.integer(0)))
        who = self._who("train", clients)
        numbers = who.tolist()
        rows = door.row_per_client(theta, self._rows("train", theta), len(who))
        if len(set(numbers)) < len(who):
            raise ValueError("train: a client is listed twice; train it in two calls")
        local = replace(self.local, **changes)
        args = [self._line_per_client(values, len(who)) for values in args]
        plans = [self._plan(k, local) for k in numbers]
        homes = [(k, slot) for k in numbers]
        states: list[tuple[Tensor, ...] | None] = [None] * len(homes)
        if local.keep_state:
            states = [self._memory.get(home) for home in homes]
        try:
            done = self.backend.train(
                rows, plans, local, local.lr_at(self.t), correct, args, states
            )
        except TaskError as error:
            cause = error.__cause__
            raise ClientError(
                f"client {numbers[error.i]}: {type(cause).__name__}: {cause}"
            ) from cause
        self._visits[who.cpu().numpy()] += 1
        if local.keep_state:
            self._memory |= zip(homes, done.states, strict=True)
        traffic = 0
        if travels:
            numbers_sent = self.layout.D
            if sent is not None:
                numbers_sent = sent
            traffic = len(who) * numbers_sent * rows.element_size()
        self._count(down=traffic, up=traffic, updates=len(who))
        theta = self._only_finite(rows, done.theta, done.losses, plans, homes, local)
        return Update(theta, done.losses, who)

    def loss(
        self,
        theta: Tensor,
        clients: Tensor | None = None,
        on: str = "train",
        *,
        batches: int | None = None,
        draw: int = 0,
        travels: bool = True,
    ) -> Tensor:
        """Mean loss of every row at every client: (C, D) -> (n, C), or (D,) -> (n,)."""
        checks.argument("loss", "batches", batches, checks.optional(checks.integer(1)))
        who = self._who("loss", clients)
        rows = self._rows("loss", theta)
        out = self._losses(rows, who, on, batches, draw)  # (n, C)
        down = 0
        if travels:
            down = len(who) * rows.nbytes
        self._count(down=down, up=out.nbytes)
        if door.is_one_row(theta):
            return out[:, 0]
        return out

    def best_share(self, theta: Tensor, clients: Tensor | None = None) -> Tensor:
        """Share of each client's training samples that each row fits best: (n, C)."""
        who = self._who("best_share", clients)
        rows = self._rows("best_share", theta)
        lists = self._sample_lists("train")
        index, owner, size = _flat([lists[k] for k in who.tolist()])
        losses = []
        for row in rows:
            outputs = self._outputs(row[None], torch.zeros_like(owner), index, owner)
            losses.append(self._loss(outputs, self._y[index]))
        best = F.one_hot(torch.stack(losses, 1).argmin(1), len(rows))  # (N, C)
        wins = torch.zeros(len(who), len(rows), dtype=self.dtype, device=self.device)
        wins.index_add_(0, owner, best.to(wins))
        self._count(down=len(who) * rows.nbytes, up=wins.nbytes)
        return wins / size[:, None]

    def probe(self, per_class: int) -> tuple[Tensor, Tensor]:  # (m, ...), (m,)
        """Labelled samples of the server, so many of each class."""
        checks.argument("probe", "per_class", per_class, checks.integer(1))
        if self._y.is_floating_point():
            raise ValueError("probe: need class labels, the data has real targets")
        rng = self._stream(PROBE)
        chosen = []
        for c in range(self.classes):
            of_class = self._server[self._y[self._server] == c].cpu().numpy()
            if len(of_class) == 0:
                raise ValueError(
                    f"probe: {per_class} samples of class {c} wanted, 0 are held by "
                    "no client"
                )
            chosen.append(rng.permutation(of_class)[:per_class])
        index = torch.as_tensor(np.concatenate(chosen), device=self.device)
        return self._x[index], self._y[index]

    def predict(self, theta: Tensor, x: Tensor) -> Tensor:
        """Outputs of every row on given inputs: (C, D), (m, ...) -> (C, m, classes)."""
        rows = self._rows("predict", theta)
        x = torch.as_tensor(x, dtype=self.dtype, device=self.device)
        if x.shape[1:] != self._x.shape[1:] or len(x) == 0 or len(rows) == 0:
            raise ValueError(
                f"predict: x has shape {tuple(x.shape)}, theta {tuple(rows.shape)}: "
                f"need inputs (m, {', '.join(map(str, self._x.shape[1:]))}), and a row"
            )
        out = torch.stack(self._logits([(row, x) for row in rows]))
        if door.is_one_row(theta):
            return out[0]
        return out

    # --- the judge's verbs, as `Judge` explains them ----------------------------------

    @property
    def truth(self) -> Truth:
        """Hidden clusters and class counts: for metrics, never for methods."""
        counts = class_counts(self._parts.train, self._y.cpu().numpy(), self.classes)
        return Truth(self._parts.truth, counts)

    def evaluate(self, theta: Tensor, labels: Tensor, on: str = "test") -> Evaluation:
        """Let every client be served by its row, and compare with the truth."""
        where = checks.choice("test", "train", "validation", "server")
        checks.argument("evaluate", "on", on, where)
        if self._y.is_floating_point():
            raise ValueError(
                "evaluate counts classes; for real targets use "
                'fed.loss(theta, on="test")'
            )
        rows = self._rows("evaluate", theta)
        votes = torch.as_tensor(labels, device=self.device)
        _check_votes(votes, self.K, len(rows))
        if votes.dim() == 1:
            votes = votes.long()
        if on == "server":  # clients with the same model share its evaluation
            votes, of = votes.unique(dim=0, return_inverse=True)
            lists = [self._server] * len(votes)
        else:
            lists = self._sample_lists(on)
            of = torch.arange(self.K, device=self.device)
        index, owner, size = _flat(lists)
        if not len(index):
            raise ValueError(f"evaluate(on={on!r}): there are no such samples")
        y = self._y[index]
        probability = self._vote(rows, votes, index, owner)  # (N, classes)
        pred = probability.argmax(1)
        surprise = -probability.gather(1, y[:, None])[:, 0].clamp_min(1e-30).log()
        broken = self._judge_votes(rows, votes, probability, owner, of)  # (N,)
        if broken is not None:
            pred = torch.where(broken, (y + 1) % self.classes, pred)
            surprise = surprise.masked_fill(broken, math.inf)
        total = torch.zeros_like(size, dtype=self.dtype).index_add_(0, owner, surprise)
        loss = total / size
        return Evaluation(owner, y, pred, loss[of], of, self.classes)

    def unmetered_loss(
        self, theta: Tensor, clients: Tensor | None = None, on: str = "test"
    ) -> Tensor:
        """Mean losses as ``loss`` gives them, without counting them as traffic."""
        who = self._who("unmetered_loss", clients)
        rows = self._rows("unmetered_loss", theta)
        out = self._losses(rows, who, on)
        if door.is_one_row(theta):
            return out[:, 0]
        return out

    def sample_numbers(
        self, clients: Tensor | None = None, on: str = "test"
    ) -> Tensor:  # (N,)
        """Which samples of the data set the clients hold, client after client."""
        rule = checks.choice("test", "train", "validation", "server")
        checks.argument("sample_numbers", "on", on, rule)
        if on == "server":
            return self._server
        lists = self._sample_lists(on)
        none = torch.empty(0, dtype=torch.long, device=self.device)
        who = self._who("sample_numbers", clients)
        return torch.cat([none, *(lists[k] for k in who.tolist())])

    def samples(self, numbers: Tensor) -> tuple[Tensor, Tensor]:  # (N, ...), (N,)
        """Inputs, as the network takes them, and targets of samples by number."""
        numbers = torch.as_tensor(numbers, device=self.device)
        return self._x[numbers], self._y[numbers]

    def network(self, row: Tensor) -> nn.Module:
        """A network of its own with the numbers of a row (D,), ready to predict."""
        rows = self._rows("network", row)
        if len(rows) > 1:
            raise ValueError(f"network: {len(rows)} rows, need one")
        module = self._build(0)
        self.layout.bind(module).copy_(rows[0])
        return module.eval()

    # --- checkpoints ------------------------------------------------------------------

    def identity(self) -> str:
        """A text that differs between federations that could give different results.

        It hashes the samples and who holds them, the network and its first row, the
        loss, the random streams and all options. A checkpoint is resumed only by a
        federation with the same text.
        """
        module = self._build(0)
        first = self.start()[0].double().cpu().numpy()
        truth = b""
        if self._parts.truth is not None:
            truth = np.asarray(self._parts.truth).tobytes()
        parts = [
            fingerprint(self._data).encode(),
            describe_network(module).encode(),
            tell_apart(self._loss).encode(),
            f"{self.dtype} {self.batch_stats} {self.diverged}".encode(),
            first.tobytes(),
            self._ids.tobytes(),
            truth,
            *(samples.tobytes() for samples in self._parts.train),
            *(samples.tobytes() for samples in self._parts.test),
            *(samples.tobytes() for samples in self._parts.validation or []),
        ]
        told = hashlib.sha256()
        for part in parts:
            told.update(f"{len(part)}:".encode() + part)
        return f"{self!r} {told.hexdigest()[:16]}"

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that changes in a federation while it runs, as arrays.

        restore() brings it back bit for bit.
        """
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
                f"restore: a snapshot of {len(arrays['visits'])} clients, this "
                f"federation has {self.K}"
            )
        self._visits = arrays["visits"].copy()
        self._samples, self._seeds = arrays["draws"].tolist()
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

    # --- inside -----------------------------------------------------------------------

    def _stream(self, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *(int(k) for k in key)])

    def _build(self, j: int) -> nn.Module:
        """A fresh network, the j-th of this seed."""
        with Seeded(int(self._stream(START, j).integers(2**62))):
            module = self._model()
        entry.check_network(module)
        return module.to(self.device, self.dtype)

    def _first_row(self, start: Tensor | None) -> Tensor | None:
        """The given first row, checked."""
        if start is None:
            return None
        row = torch.as_tensor(start).detach()
        if row.shape != (self.layout.D,) or not bool(row.isfinite().all()):
            raise ValueError(
                f"start has shape {tuple(row.shape)}: need a row of {self.layout.D} "
                "finite numbers, as this model has"
            )
        return row

    def _plan(self, k: int, local: Local) -> Plan:
        stream = self._stream(CLIENT, self._ids[k], self._visits[k])
        return plan(self._parts.train[k], local, stream)

    def _random_batches(
        self, k: int, samples: Tensor, batches: int, draw: int
    ) -> Tensor:
        """Samples of client k for so many random batches, none of them twice."""
        rng = self._stream(LOOK, draw, self._ids[k])
        count = batches * (self.local.batch_size or len(samples))
        chosen = rng.permutation(len(samples))[:count]
        return samples[torch.as_tensor(chosen).to(samples.device)]

    def _losses(
        self,
        rows: Tensor,
        who: Tensor,
        on: str,
        batches: int | None = None,
        draw: int = 0,
    ) -> Tensor:  # (n, C)
        """Mean loss of every row at every client in ``who``."""
        checks.argument("loss", "on", on, checks.choice("train", "test"))
        of_client = self._sample_lists(on)
        lists = [of_client[k] for k in who.tolist()]
        if batches is not None:
            lists = [
                self._random_batches(k, of_client[k], batches, draw)
                for k in who.tolist()
            ]
        out = torch.empty(len(who), len(rows), dtype=self.dtype, device=self.device)
        if len(who) == 0:
            return out
        index, owner, size = _flat(lists)
        y = self._y[index]
        for c, row in enumerate(rows):
            outputs = self._outputs(row[None], torch.zeros_like(owner), index, owner)
            losses = self._loss(outputs, y)
            total = torch.zeros_like(out[:, c]).index_add_(0, owner, losses)
            out[:, c] = total / size
        self._judge_losses(out, rows, who, size)
        return out

    def _sample_lists(self, on: str) -> list[Tensor]:
        """Every client's samples: its ``train``, ``test`` or ``validation`` list."""
        lists = getattr(self._parts, on)
        if lists is None:
            raise ValueError(
                f"on={on!r}: the partition set no samples aside; see "
                "partition.with_validation"
            )
        return [torch.as_tensor(samples, device=self.device) for samples in lists]

    def _who(self, verb: str, clients: Tensor | None) -> Tensor:  # (n,)
        return door.client_numbers(verb, clients, self.K, self.device)

    def _rows(self, verb: str, theta: Tensor) -> Tensor:  # (C, D)
        return door.matrix_of_rows(verb, theta, self.layout, self.dtype, self.device)

    def _line_per_client(self, values: Tensor, n: int) -> Tensor:  # (n, ...)
        """One of ``args``: a line for each client, or one for all."""
        values = torch.as_tensor(values, device=self.device)
        if values.dim() and len(values) not in (1, n):
            raise ValueError(
                f"train: a tensor of shape {tuple(values.shape)} in args, need one "
                f"line for each of {n} clients"
            )
        return values.expand(n, *values.shape[1:])

    def _count(self, down: int, up: int, updates: int = 0) -> None:
        self.meter = Meter(
            self.meter.down + down, self.meter.up + up, self.meter.updates + updates
        )

    def _vote(
        self, theta: Tensor, votes: Tensor, index: Tensor, owner: Tensor
    ) -> Tensor:  # (N, classes)
        """Weighted mean of the rows' class probabilities at each sample.

        A hard label is a weight of one.
        """
        # who votes where, row by row, and with what weight
        if votes.dim() == 1:
            row, sample = votes[owner].sort(stable=True)
            weight = torch.ones((), dtype=self.dtype, device=self.device)
        else:
            votes = votes[owner].to(self.dtype)  # (N, C)
            row, sample = votes.T.nonzero(as_tuple=True)
            weight = votes[sample, row, None]
        p = self._outputs(theta, row, index[sample], owner[sample]).softmax(1)
        total = torch.zeros(
            len(index), self.classes, dtype=self.dtype, device=self.device
        )
        total.index_add_(0, sample, weight * p)
        return total / total.sum(1, keepdim=True)

    def _outputs(
        self, theta: Tensor, row: Tensor, index: Tensor, owner: Tensor
    ) -> Tensor:  # (N, ...)
        """Outputs of row ``row[j]`` at sample ``index[j]``.

        Equal rows must be adjacent in ``row``, and equal owners adjacent within a row.
        With ``batch_stats`` a model meets one owner's samples at a time, because it is
        normalised by their statistics.
        """
        group = row
        if self.batch_stats:
            group = row * (int(owner.max()) + 1) + owner
        sizes = group.unique_consecutive(return_counts=True)[1].tolist()
        tasks = [
            (theta[c[0]], numbers)
            for c, numbers in zip(row.split(sizes), index.split(sizes), strict=True)
        ]
        outputs = self._logits(tasks, train=self.batch_stats, samples=self._x)
        return torch.cat(outputs)

    def _logits(
        self,
        tasks: Sequence[tuple[Tensor, Tensor]],
        train: bool = False,
        samples: Inputs | None = None,
    ) -> list[Tensor]:
        """Outputs of each (row, inputs), or of each (row, numbers of ``samples``).

        A model that draws random numbers always draws the same.
        """
        seed = int(self._stream(EVALUATE).integers(2**62))
        return self.backend.logits(tasks, train=train, seed=seed, samples=samples)

    # --- numbers that are not finite --------------------------------------------------

    def _only_finite(
        self,
        before: Tensor,
        after: Tensor,
        losses: Tensor,
        plans: Sequence[Plan],
        homes: Sequence[tuple[int, int]],
        local: Local,
    ) -> Tensor:  # (n, D)
        """The trained rows; a client whose row is not finite gets its old one back."""
        # one cheap pass; a sum that overflows is divergence too
        bad = ~after.sum(1).isfinite()
        if not bool(bad.any()):
            return after
        for i in bad.nonzero()[:, 0].tolist():
            lost = (~losses[i, : len(plans[i].size)].isfinite()).nonzero()
            step = "parameters not finite"
            if len(lost):
                step = f"loss not finite from local step {int(lost[0])}"
            self._report(
                homes[i][0],
                f"diverged in round {self.t}: {step} (lr={local.lr_at(self.t):g}); "
                "lower lr or check the data",
            )
            self._memory.pop(homes[i], None)  # its momentum is not finite either
        return torch.where(bad[:, None], before, after)

    def _judge_losses(
        self, out: Tensor, rows: Tensor, who: Tensor, size: Tensor
    ) -> None:
        """Make losses (n, C) infinite, in place, where a model is not finite."""
        broken = ~out.isfinite() | _not_finite(rows)
        broken &= (size > 0)[:, None]
        if not bool(broken.any()):
            return
        client, row = broken.nonzero()[0].tolist()
        self._report(
            int(who[client]),
            f"was given a model with NaN or infinite values in round {self.t}: row "
            f"{row} of theta, or its loss, is not finite",
        )
        out.masked_fill_(broken, math.inf)

    def _judge_votes(
        self,
        rows: Tensor,
        votes: Tensor,
        probability: Tensor,
        owner: Tensor,
        of: Tensor,
    ) -> Tensor | None:  # (N,)
        """Which samples are judged by a model that is not finite; None if none are."""
        bad_rows = _not_finite(rows)  # (C,)
        if votes.dim() == 1:
            bad_owners = bad_rows[votes]
        else:
            bad_owners = ((votes > 0) & bad_rows).any(1)
        broken = bad_owners[owner] | ~probability.isfinite().all(1)
        if not bool(broken.any()):
            return None
        bad_owners = bad_owners.index_fill(0, owner[broken], True)
        clients = bad_owners[of].nonzero()[:, 0].tolist()
        self._report(
            clients[0],
            f"is served by a model with NaN or infinite values in round {self.t}, as "
            f"are {len(clients) - 1} others: check the method's theta",
        )
        return broken

    def _report(self, client: int, what: str) -> None:
        """Raise, or add to the events, as ``diverged`` says."""
        if self.diverged == "raise":
            raise ClientError(f"client {client} {what}")
        self.events.append(Event(self.t, client, what))


def _not_finite(rows: Tensor) -> Tensor:  # (C,)
    """Which rows (C, D) have NaN or infinite values."""
    suspect = ~rows.sum(1).isfinite()  # one cheap pass; a sum may overflow, though
    if not bool(suspect.any()):
        return suspect
    return ~rows.isfinite().all(1)


def _flat(lists: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Lists of samples as one list, with the owners and the sizes of the lists."""
    size = torch.tensor([len(samples) for samples in lists], device=lists[0].device)
    return torch.cat(list(lists)), torch.repeat_interleave(size), size


def _check_votes(votes: Tensor, K: int, C: int) -> None:
    """Labels (K,) must name rows, votes (K, C) must be weights."""
    if votes.dim() == 0 or len(votes) != K:
        raise ValueError(f"evaluate: {votes.numel()} labels for {K} clients")
    if votes.dim() == 1:
        integers = not votes.is_floating_point() and not votes.is_complex()
        if not integers or int(votes.min()) < 0 or int(votes.max()) >= C:
            raise ValueError(
                f"evaluate: labels must be integers in 0..{C - 1}: one of the {C} rows "
                "serves each client"
            )
        return
    weights = votes.shape == (K, C) and bool((votes.isfinite() & (votes >= 0)).all())
    if not weights or not bool((votes.sum(1) > 0).all()):
        raise ValueError(
            f"evaluate: votes must be ({K}, {C}) finite weights >= 0 with a positive "
            "sum for each client"
        )
