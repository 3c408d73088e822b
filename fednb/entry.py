"""What a federation is given: converted where that makes sense, refused where not.

Every refusal is one sentence that names the argument and says what is needed. The
checks stand here, at the door, so that nothing behind it has to check again.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from . import checks
from .data import Dataset
from .partition import Partition
from .training import Inputs, Local, Pixels, Seeded

LARGEST_ID = 10**7 - 1  # ``Federation.tickets`` draws a number for every id up to it

OPTIONS = {
    "local": checks.optional(
        checks.Rule(lambda value: isinstance(value, Local), "a Local(...)")
    ),
    "seed": checks.seed,
    "backend": checks.choice("auto", "lean", "batched"),
    "workers": checks.optional(checks.integer(1)),
    "chunk": checks.optional(checks.integer(1)),
    "memory": checks.optional(checks.number(above=0)),
    "loss": checks.optional(
        checks.Rule(callable, "a function loss(outputs, targets) of each sample")
    ),
    "dtype": checks.Rule(
        lambda value: isinstance(value, torch.dtype) and value.is_floating_point,
        "a floating-point type such as torch.float32",
    ),
    "batch_stats": checks.flag,
    "diverged": checks.choice("raise", "record"),
}


def check_options(**options: Any) -> None:
    """Check those keywords of ``Federation`` that need no further look."""
    for name, value in options.items():
        checks.argument("Federation", name, value, OPTIONS[name])


def find_device(device: str | torch.device) -> torch.device:
    """The device of that name; ``"auto"`` is the GPU if there is one."""
    if isinstance(device, str) and device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("cpu")
    try:
        if isinstance(device, str | torch.device):
            torch.empty(0, device=device)
            return torch.device(device)
    except (RuntimeError, AssertionError):  # the latter: torch knows no CUDA
        pass
    raise ValueError(
        f"Federation(device={device!r}): need 'auto', 'cpu', or a device that torch "
        "finds on this machine, such as 'cuda'"
    )


# --- samples --------------------------------------------------------------------------


def inputs(data: Dataset, device: torch.device, dtype: torch.dtype) -> Inputs:
    """The samples' inputs: a tensor, or pixels that become inputs batch by batch."""
    if not isinstance(data, Dataset):
        raise ValueError(
            f"Federation(data={type(data).__name__}): need a Dataset, such as "
            "data.load('digits')"
        )
    array = _numbers(data.x, "data.x")
    mean = std = None
    if data.mean is not None or data.std is not None:
        mean, std = (m.to(device, dtype) for m in _moments(data, array))
    if array.dtype == np.uint8:
        if array.flags.writeable:  # whoever owns it may write into it later
            array = array.copy()
        return Pixels(_tensor(array).to(device), mean, std, dtype)
    x = _tensor(array).to(device, dtype)
    if mean is not None and std is not None:
        x = (x - mean) / std
    _check_finite(x, "data.x")
    return x


def targets(data: Dataset, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The samples' labels: classes as int64, or real numbers for a regression."""
    checks.argument("Dataset", "classes", data.classes, checks.integer(0))
    array = _numbers(data.y, "data.y")
    if len(array) != len(data.x):
        raise ValueError(f"{len(data.x)} samples but {len(array)} labels")
    if array.dtype.kind == "f":
        if data.classes > 1:
            raise ValueError(
                f"data.y has type {array.dtype}, and data.classes is {data.classes}: "
                "need integers for class labels, or classes=0 for a regression"
            )
        y = _tensor(array).to(device, dtype)
        _check_finite(y, "data.y")
        return y
    if array.ndim != 1:
        raise ValueError(f"data.y has shape {array.shape}: need one label per sample")
    if len(array) and not (array.min() >= 0 and array.max() < data.classes):
        raise ValueError(
            f"labels {array.min()}..{array.max()} do not lie in 0..{data.classes - 1}"
        )
    return _tensor(array.astype(np.int64, copy=False)).to(device)


def sample_lists(parts: Partition, samples: int) -> Partition:
    """The partition with its lists as int64 vectors of sample numbers."""
    if not isinstance(parts, Partition):
        raise ValueError(
            f"Federation(parts={type(parts).__name__}): need a Partition, such as "
            "partition.iid(y, clients=10)"
        )
    if len(parts.train) == 0 or len(parts.train) != len(parts.test):
        raise ValueError(
            f"{len(parts.train)} training lists and {len(parts.test)} test lists: "
            "one each per client"
        )
    train = [_sample_list(held, k, samples) for k, held in enumerate(parts.train)]
    test = [_sample_list(held, k, samples) for k, held in enumerate(parts.test)]
    for k, held in enumerate(train):
        if len(held) == 0:
            raise ValueError(
                f"client {k} has no training samples: raise min_size in the "
                "partition, or drop it"
            )
    if parts.truth is not None and len(parts.truth) != len(train):
        raise ValueError(
            f"parts.truth has {len(parts.truth)} labels for {len(train)} clients"
        )
    validation = parts.validation
    if validation is not None:
        if len(validation) != len(train):
            raise ValueError(
                f"{len(validation)} validation lists for {len(train)} clients"
            )
        validation = [
            _sample_list(held, k, samples) for k, held in enumerate(validation)
        ]
        for k, lists in enumerate(zip(train, validation, test, strict=True)):
            if len(np.unique(np.concatenate(lists))) < sum(map(len, lists)):
                raise ValueError(
                    f"client {k} has a sample in two of its lists: training, "
                    "validation and test samples must differ"
                )
    return parts._replace(train=train, test=test, validation=validation)


def stream_ids(ids: Sequence[int] | None, clients: int) -> np.ndarray:
    """Numbers of the clients' random streams, (K,) int64."""
    if ids is None:
        return np.arange(clients)
    array = _numbers(ids, "ids")
    fits = array.shape == (clients,) and array.dtype.kind in "iu"
    if not fits or array.min() < 0 or array.max() > LARGEST_ID:
        raise ValueError(
            f"Federation(ids={ids!r}): need {clients} integers, one per client, in "
            f"0..{LARGEST_ID}"
        )
    return array.astype(np.int64, copy=False)


def _numbers(value: Any, name: str) -> np.ndarray:
    """An array of real numbers in a form that torch can take over."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        if value.dtype == torch.bfloat16:  # numpy has no such type
            value = value.float()
    array = checks.array("Federation", name, value)
    if array.ndim == 0:
        raise ValueError(f"Federation({name}={value!r}): need an array of numbers")
    if array.dtype.kind == "b" or (array.dtype.kind in "iu" and array.itemsize > 1):
        return np.array(array, dtype=np.int64)
    if array.dtype.kind == "f" and array.itemsize > 8:  # torch has no longer floats
        return np.array(array, dtype=np.float64)
    if any(stride < 0 for stride in array.strides):
        return np.array(array, order="C")
    return array


def _tensor(array: np.ndarray) -> Tensor:
    """The array as a tensor, without a copy: nobody writes into samples."""
    with warnings.catch_warnings():  # torch warns of arrays that are read-only
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


def _moments(data: Dataset, array: np.ndarray) -> tuple[Tensor, Tensor]:
    """Mean and std, shaped so that they fit the channels of (N, C, ...)."""
    given = f"data.mean={data.mean!r} and data.std={data.std!r}"
    if data.mean is None or data.std is None:
        raise ValueError(f"{given}: need both, or neither")
    if array.dtype.kind in "bi":
        raise ValueError(
            f"data.x has type {array.dtype}, and a mean: need uint8 pixels, which are "
            "divided by 255 first, or real numbers in the units of the mean"
        )
    moments = []
    for values in (data.mean, data.std):
        vector = torch.tensor(values, dtype=torch.float64).reshape(-1)
        fits = array.ndim > 1 and len(vector) in (1, array.shape[1])
        if not fits or not bool(vector.isfinite().all()):
            raise ValueError(f"{given}: need one finite number for each channel")
        moments.append(vector.view(1, -1, *[1] * (array.ndim - 2)))
    if not bool((moments[1] > 0).all()):
        raise ValueError(f"{given}: need positive standard deviations")
    return moments[0], moments[1]


def _check_finite(values: Tensor, name: str) -> None:
    """Refuse NaN and infinite numbers: they would spread into models and scores."""
    if bool(values.sum().isfinite()):  # one cheap pass; a sum may overflow, though
        return
    finite = values.reshape(len(values), -1).isfinite().all(1)
    if not bool(finite.all()):
        first = int((~finite).nonzero()[0])
        raise ValueError(
            f"sample {first} of {name} has NaN or infinite values: need finite numbers"
        )


def _sample_list(held: Any, client: int, samples: int) -> np.ndarray:
    """One client's list of samples, int64."""
    if isinstance(held, Tensor):
        held = held.detach().cpu()
    array = checks.array("Federation", f"parts, client {client}", held)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"a sample list of client {client} has type {array.dtype} and shape "
            f"{array.shape}: need a vector of integers"
        )
    outside = array[(array < 0) | (array >= samples)]
    if len(outside):
        raise ValueError(
            f"client {client} names sample {outside[0]}, but the data has {samples}"
        )
    return array.astype(np.int64, copy=False)


# --- the network and its loss ---------------------------------------------------------


def check_recipe(model: Callable[[], nn.Module]) -> None:
    """A model must be a function without arguments."""
    if isinstance(model, nn.Module) or not callable(model):
        raise TypeError(
            "model must be a recipe, not a network: pass a function, e.g. "
            "lambda: lenet5(classes=10)"
        )
    try:
        signature = inspect.signature(model)
    except ValueError:  # some callables written in C do not tell
        return
    try:
        signature.bind()
    except TypeError as error:
        raise TypeError(
            f"the model recipe {_name(model)} needs arguments ({error}): bind them, "
            "e.g. functools.partial(nn.Linear, 64, 10)"
        ) from error


def check_network(module: Any) -> None:
    """A recipe must return a network with something to train."""
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"the model recipe returned {type(module).__name__}: need an nn.Module"
        )
    if not any(p.requires_grad for p in module.parameters()):
        raise ValueError(
            f"{type(module).__name__} has no parameters to train: need one that "
            "requires a gradient"
        )
    for layer in module.modules():
        counts = isinstance(layer, _BatchNorm) and layer.track_running_stats
        if counts and layer.momentum is None:
            raise ValueError(
                "BatchNorm(momentum=None) counts batches, and a row holds no "
                "integers: set a momentum"
            )


def check_reproducible(first: Tensor, again: Tensor) -> None:
    """Two networks of one seed, as rows, must be the same."""
    if first.shape != again.shape or not torch.equal(first, again):
        raise ValueError(
            "the model recipe gave two different networks for one seed: need one that "
            "draws from torch only, not from numpy's or random's global stream, and "
            "leaves no parameter without a value"
        )


def check_outputs(module: nn.Module, x: Inputs, classes: int | None) -> Tensor:
    """Outputs for two samples, one per class unless ``classes`` is None."""
    samples = x[:2]
    module.eval()
    try:
        with torch.no_grad(), Seeded(0):
            outputs = module(samples)
    except Exception as error:
        hint = ""
        if "indices" in str(error):  # an embedding was given real numbers
            hint = f"; inputs arrive as {x.dtype}: call x.long() before an embedding"
        raise ValueError(
            f"the model cannot take inputs of shape {tuple(x.shape[1:])}: {error}{hint}"
        ) from error
    if not isinstance(outputs, Tensor):
        raise ValueError(
            f"the model gives {type(outputs).__name__}: need one tensor of outputs"
        )
    if classes is not None and outputs.shape != (len(samples), classes):
        raise ValueError(
            f"the model gives outputs {tuple(outputs.shape[1:])} per sample, the data "
            f"has {classes} classes"
        )
    return outputs


def check_loss(
    loss: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, y: Tensor
) -> None:
    """A loss must give one number per sample, with a gradient."""
    outputs = outputs.detach().requires_grad_()
    name = f"Federation(loss={_name(loss)})"
    try:
        with Seeded(0):
            values = loss(outputs, y[: len(outputs)])
    except Exception as error:
        raise ValueError(
            f"{name} fails for outputs {tuple(outputs.shape)} and targets "
            f"{tuple(y[: len(outputs)].shape)}: {error}"
        ) from error
    per_sample = isinstance(values, Tensor) and values.shape == outputs.shape[:1]
    if not per_sample or not values.requires_grad:
        raise ValueError(
            f"{name}: need one number per sample that depends on the outputs; torch's "
            "own losses give that with reduction='none'"
        )


def _name(function: Any) -> str:
    """What to call a function in an error."""
    while isinstance(function, partial):
        function = function.func
    if not hasattr(function, "__qualname__"):
        function = type(function)
    return f"{function.__module__}.{function.__qualname__}"
