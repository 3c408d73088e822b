"""Models are rows of a matrix.

A model is a flat vector: its parameters first, its float buffers (BatchNorm's running
statistics) after them. The server's models are then ``theta`` (C, D), who is served by
which row is ``labels`` (K,), and what the papers do with models is matrix algebra on
those two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fnmatch import fnmatch

import numpy as np
import torch
from torch import Tensor, nn

from . import checks


@dataclass(frozen=True)
class Layout:
    """Where each tensor of a module lies in its row.

    Parameters are in columns ``[:P]``, float buffers in ``[P:]``.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    n_parameters: int  # the first tensors are parameters, the others float buffers
    P: int  # columns of the parameters: similarities should look at row[:P] only
    D: int  # length of a row

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """Read the layout off a module.

        Integer buffers (BatchNorm's batch counter) are left out of the row.
        """
        parameters = dict(module.named_parameters())
        buffers = {
            name: buffer
            for name, buffer in module.named_buffers()
            if buffer.is_floating_point()
        }
        if not parameters:
            raise ValueError(f"{type(module).__name__} has no parameters to train")
        tensors = {**parameters, **buffers}
        P = sum(p.numel() for p in parameters.values())
        D = sum(t.numel() for t in tensors.values())
        return cls(
            names=tuple(tensors),
            shapes=tuple(t.shape for t in tensors.values()),
            n_parameters=len(parameters),
            P=P,
            D=D,
        )

    @property
    def sizes(self) -> list[int]:
        """Number of columns of each tensor."""
        return [math.prod(shape) for shape in self.shapes]

    def row(self, module: nn.Module) -> Tensor:  # (D,)
        """Copy a module's tensors into a fresh row."""
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        return torch.cat([tensors[name].detach().reshape(-1) for name in self.names])

    def tensors(self, row: Tensor) -> dict[str, Tensor]:
        """View a row (D,), or its parameters (P,), as named tensors.

        The backward pass of ``split`` is a single ``cat``.
        """
        sizes = self.sizes
        if len(row) == self.P:
            sizes = sizes[: self.n_parameters]
        parts = zip(self.names, self.shapes, row.split(sizes), strict=False)
        return {name: part.view(shape) for name, shape, part in parts}

    def bind(self, module: nn.Module) -> Tensor:  # (D,)
        """Make the module's tensors views of one fresh row, and return that row.

        Copying a model into the row then loads it into the module.
        """
        row = self.row(module)
        for name, start, shape in zip(
            self.names, self._starts(), self.shapes, strict=True
        ):
            # each view comes from its own ``.data``, so that one BatchNorm's update
            # does not look to autograd like a change of all other tensors
            view = row.data[start : start + math.prod(shape)].view(shape)
            parent, _, leaf = name.rpartition(".")
            owner = module.get_submodule(parent)
            parameter = owner._parameters.get(leaf)
            if parameter is not None:
                parameter.data = view
            else:
                owner._buffers[leaf] = view
        return row

    def columns(self, pattern: str) -> Tensor:
        """Columns of the parameters whose names match a pattern.

        For example ``columns("*.weight")`` or ``columns("9.*")``.
        """
        hits = [
            torch.arange(start, start + size)
            for name, start, size in zip(
                self.names, self._starts(), self.sizes, strict=True
            )
            if start < self.P and fnmatch(name, pattern)
        ]
        if not hits:
            raise ValueError(
                f"no parameter matches {pattern!r}; there are {', '.join(self.names)}"
            )
        return torch.cat(hits)

    def dense_layers(self) -> list[str]:
        """Name prefixes of the fully connected layers, in order, such as ``"9."``.

        ``columns(prefix + "weight")`` are a layer's weights, ``columns(prefix + "*")``
        its weights and biases. A layer is fully connected if its weight is a matrix.
        """
        prefixes = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            if name.endswith("weight") and len(shape) == 2:
                prefixes.append(name.removesuffix("weight"))
        return prefixes

    def last_layers(self, layers: int) -> Tensor:  # (D,)
        """Mark the columns of a classifier's head, its last ``layers`` layers.

        Returns a boolean mask. A layer is a module with a weight matrix or kernel.
        Norms that come after the first layer of the head, and their statistics, belong
        to the head. With ``layers=0`` no column is marked.
        """
        owners = [name.rpartition(".")[0] for name in self.names]
        modules = list(dict.fromkeys(owners))  # in the order of the network
        is_layer = dict.fromkeys(modules, False)
        for owner, shape in zip(owners, self.shapes, strict=True):
            is_layer[owner] |= len(shape) > 1
        found = [module for module in modules if is_layer[module]]
        if not 0 <= layers <= len(found):
            raise ValueError(
                f"a head of {layers} layers: the model has {len(found)} layers with "
                "weights"
            )
        head = set()
        if layers > 0:
            head = set(modules[modules.index(found[-layers]) :])
        sizes = torch.tensor(self.sizes)
        inside = torch.tensor([owner in head for owner in owners])
        return inside.repeat_interleave(sizes)

    def _starts(self) -> list[int]:
        """First column of each tensor."""
        starts = [0]
        for size in self.sizes[:-1]:
            starts.append(starts[-1] + size)
        return starts


def mean(rows: Tensor, weights: Tensor | None = None) -> Tensor:
    """Weighted mean of rows (n, D) -> (D,).

    FedAvg's aggregation when the weights are the client sizes.
    """
    rows = _floats("mean", rows)
    if rows.dim() == 0 or len(rows) == 0:
        raise ValueError("mean: need at least one row")
    if weights is None:
        return _finite("mean", rows.mean(dim=0), rows)
    weights = _weights("mean", weights, rows)
    if not weights.sum() > 0:
        raise ValueError("mean: the weights sum to zero")
    return _finite("mean", (weights / weights.sum()) @ rows, rows)


def mean_by(rows: Tensor, weights: Tensor, labels: Tensor, old: Tensor) -> Tensor:
    """Weighted mean of the rows (n, D) of each cluster -> (C, D).

    ``labels`` (n,) say which cluster each row belongs to. A cluster without rows, or
    whose weights are all zero, keeps its row of ``old`` (C, D). One-hot membership
    times weight, each line normalised, is a (C, n) matrix A: the means are A @ rows.
    """
    rows = _floats("mean_by", rows)
    old = _floats("mean_by", old)
    labels = torch.as_tensor(labels)
    C = len(old)
    if len(labels) != len(rows):
        raise ValueError(f"mean_by: {len(rows)} rows but {len(labels)} labels")
    if labels.is_floating_point() and labels.numel():
        raise ValueError(f"mean_by: labels have type {labels.dtype}, need integers")
    if labels.numel() and not (int(labels.min()) >= 0 and int(labels.max()) < C):
        raise ValueError(
            f"mean_by: labels must lie in 0..{C - 1}, found "
            f"{int(labels.min())}..{int(labels.max())}"
        )
    A = torch.zeros(C, len(rows), dtype=rows.dtype, device=rows.device)  # (C, n)
    place = torch.arange(len(rows), device=rows.device)
    A[labels.long(), place] = _weights("mean_by", weights, rows)
    total = A.sum(dim=1, keepdim=True)  # (C, 1)
    means = torch.where(total > 0, (A / total.where(total > 0, 1)) @ rows, old)
    return _finite("mean_by", means, rows)


def _floats(owner: str, rows: Tensor) -> Tensor:
    """The rows as a tensor of floats; integers become float64."""
    if not isinstance(rows, Tensor):
        rows = torch.as_tensor(np.ascontiguousarray(checks.array(owner, "rows", rows)))
    if rows.is_complex():
        raise ValueError(f"{owner}(rows of {rows.dtype}): need real numbers")
    if rows.is_floating_point():
        return rows
    return rows.double()


def _weights(owner: str, weights: Tensor, rows: Tensor) -> Tensor:  # (n,)
    """Weights of the rows (n, D), in their type; finite and not negative."""
    weights = torch.as_tensor(weights, dtype=rows.dtype, device=rows.device)
    if weights.shape != rows.shape[:1]:
        raise ValueError(
            f"{owner}: {len(rows)} rows but weights of shape {tuple(weights.shape)}"
        )
    if not bool((weights.isfinite() & (weights >= 0)).all()):
        raise ValueError(f"{owner}: weights must be finite, non-negative numbers")
    return weights


def _finite(owner: str, means: Tensor, rows: Tensor) -> Tensor:
    """Return the means; raise if a row (n, D) is not finite.

    A row of weight zero counts too: 0 times NaN is NaN.
    """
    if bool(means.sum().isfinite()):  # one cheap pass, over fewer rows
        return means
    bad = (~rows.reshape(len(rows), -1).isfinite().all(1)).nonzero()
    if len(bad):
        raise ValueError(
            f"{owner}: row {int(bad[0])} has NaN or infinite values: that client has "
            "diverged"
        )
    return means
