"""FedJAX on one workload, spoken to through `protocol`.

Its idiom: `fed_avg.federated_averaging` over `for_each_client`, whose steps XLA has
compiled, one client after the other on all cores. (Its other backend, pmap, gives
arrays of a wrong shape with the newest jax that FedJAX 0.0.17 runs on.) Images lie
channels last, as XLA likes them on a CPU. The network is the workload's, layer by
layer; BatchNorm normalises by the batch, and its running statistics are not kept: a
little less work than the others do.
"""

# ruff: noqa: E402
import sys

SETUPS = ("jit",)
# this file is called fedjax, too: only the library may answer to that name
sys.path[:] = [p for p in sys.path if not p.rstrip("/").endswith("peers")]

import random

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
import torch
from fedjax.algorithms import fed_avg
from peers.protocol import arguments, channel, on_sigterm, serve
from torch import nn
from workloads import Workload, probe_loss, tensors

Params = dict[str, jax.Array]


def parameters(module: nn.Module) -> Params:
    """The torch module's parameters as jax arrays, in the layouts that jax uses."""
    found = {}
    for name, value in module.named_parameters():
        array = value.detach().numpy()
        if array.ndim == 4:
            array = array.transpose(2, 3, 1, 0)  # OIHW -> HWIO
        found[name] = jnp.asarray(array.T if array.ndim == 2 else array)
    return found


def put_back(params: Params, module: nn.Module) -> None:
    """Write jax's parameters into the torch module."""
    for name, value in module.named_parameters():
        array = np.asarray(params[name])
        if array.ndim == 4:
            array = array.transpose(3, 2, 0, 1)
        elif array.ndim == 2:
            array = array.T
        value.data.copy_(torch.from_numpy(np.array(array)))


def apply_layer(layer: nn.Module, name: str, params: Params, x: jax.Array) -> jax.Array:
    """What a layer of torch does, in jax: x is (N, H, W, C), or (N, F)."""
    if isinstance(layer, nn.Conv2d):
        pad = [(p, p) for p in layer.padding]
        shapes = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(
            x, params[f"{name}.weight"], layer.stride, pad, dimension_numbers=shapes
        )
        return y + params[f"{name}.bias"]
    if isinstance(layer, nn.BatchNorm2d):
        mean = x.mean((0, 1, 2))
        scale = jax.lax.rsqrt(x.var((0, 1, 2)) + layer.eps)
        y = (x - mean) * scale
        return y * params[f"{name}.weight"] + params[f"{name}.bias"]
    if isinstance(layer, nn.MaxPool2d):
        window = (1, layer.kernel_size, layer.kernel_size, 1)
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")
    if isinstance(layer, nn.Linear):
        return x @ params[f"{name}.weight"] + params[f"{name}.bias"]
    if isinstance(layer, nn.Flatten):
        if x.ndim == 4:
            x = x.transpose(0, 3, 1, 2)
        return x.reshape(len(x), -1)
    if isinstance(layer, nn.ReLU):
        return jax.nn.relu(x)
    raise TypeError(f"no such layer here: {layer}")


def gradient(w: Workload, module: nn.Module):
    """grad_fn(params, batch, rng) of the mean cross-entropy, with weight decay."""

    def loss(params: Params, batch: dict) -> jax.Array:
        x = batch["x"]
        for name, layer in module.named_children():
            x = apply_layer(layer, name, params, x)
        found = jax.nn.log_softmax(x)
        return -jnp.take_along_axis(found, batch["y"][:, None], axis=1).mean()

    def grad_fn(params: Params, batch: dict, rng: jax.Array) -> Params:
        grads = jax.grad(loss)(params, batch)
        if not w.weight_decay:
            return grads
        return jax.tree_util.tree_map(
            lambda g, p: g + w.weight_decay * p, grads, params
        )

    return grad_fn


def datasets(w: Workload, seed: int) -> list[fedjax.ClientDataset]:
    """The clients' tensors, channels last."""
    x, y = tensors(w, seed)
    inputs = x.numpy()
    if len(w.shape) == 3:
        inputs = np.ascontiguousarray(inputs.transpose(0, 1, 3, 4, 2))
    labels = y.numpy().astype(np.int32)
    return [
        fedjax.ClientDataset({"x": inputs[k], "y": labels[k]}) for k in range(w.clients)
    ]


def main() -> None:
    """Set up and serve."""
    send = channel()
    w, chosen = arguments(list(SETUPS))
    on_sigterm(lambda: None)
    fedjax.set_for_each_client_backend(chosen.setup)
    module = w.model(chosen.seed)
    momentum = w.momentum or None
    algorithm = fed_avg.federated_averaging(
        gradient(w, module),
        fedjax.optimizers.sgd(w.lr, momentum),
        fedjax.optimizers.sgd(1.0),  # the server takes the average as it is
        fedjax.ShuffleRepeatBatchHParams(batch_size=w.batch, num_epochs=w.epochs),
    )
    clients = datasets(w, chosen.seed)
    state = algorithm.init(parameters(module))
    draw = random.Random(chosen.seed)
    key = jax.random.PRNGKey(chosen.seed)

    def rounds(n: int) -> None:
        nonlocal state
        for _ in range(n):
            sampled = draw.sample(range(w.clients), w.sampled)
            state, _ = algorithm.apply(state, [(k, clients[k], key) for k in sampled])
        jax.block_until_ready(state.params)

    def loss() -> float:
        put_back(state.params, module)
        return probe_loss(w, module, chosen.seed)

    serve(send, rounds, loss)


if __name__ == "__main__":
    main()
