"""Drawn: data made together with their clients, and the law that deals them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from .. import checks
from ..partition import Partition, match_test, mixed
from .catalogue import call_in, check_name
from .dataset import Dataset
from .photographs import load_found


def regression(
    clusters: int = 2,
    intercept: bool = False,
    *,
    features: int = 1,
    clients: int = 100,
    samples: int = 100,
    tests: int = 100,
    x_mean: tuple[float, float] = (-1.0, 1.0),
    x_std: float = 0.5,
    theta_mean: tuple[float, float] = (-5.0, 0.0),
    theta_std: float = 0.1,
    seed: int = 0,
) -> tuple[Dataset, Partition]:
    """Draw FedCVR-Bolt's federated linear regression and its clients.

    Section 5.1 and appendix C.3. Client k is of a hidden cluster j, drawn uniformly.
    Its inputs are N(μ_j, x_std² I) in `features` dimensions, after a column of ones if
    there is an `intercept`, so that D = features + intercept. Each sample i has
    coefficients of its own, θ_i ~ N(θ̄_j, theta_std² I), and y_i = θ_iᵀ x_i. The best a
    model can do in cluster j is then a squared error of theta_std² E‖x‖². One cluster
    is the IID case.

    The paper draws μ_j and θ̄_j uniformly and does not say from where; the defaults are
    those of its released code.
    """
    given = dict(locals())
    _check_arguments(
        "regression",
        given,
        clusters=checks.integer(1),
        intercept=checks.flag,
        features=checks.integer(1),
        clients=checks.integer(1),
        samples=checks.integer(1),
        tests=checks.integer(1),
        x_mean=RANGE,
        x_std=checks.number(least=0),
        theta_mean=RANGE,
        theta_std=checks.number(least=0),
        seed=checks.seed,
    )
    rng = np.random.default_rng(seed)
    D = features + int(intercept)
    mu = rng.uniform(*x_mean, (clusters, features))
    theta_bar = rng.uniform(*theta_mean, (clusters, D))
    truth = rng.integers(clusters, size=clients)
    sizes = [samples + tests] * clients
    j = np.repeat(truth, sizes)  # (N,) the cluster of each sample
    x = rng.normal(mu[j], x_std)  # (N, features)
    if intercept:
        x = np.concatenate([np.ones((len(x), 1)), x], axis=1)  # (N, D)
    theta = rng.normal(theta_bar[j], theta_std)  # (N, D)
    y = (theta * x).sum(1).astype(np.float32)
    dataset = _generated("regression", given, x, y, classes=0)
    return dataset, _blocks(sizes, [tests] * clients, truth)


def synthetic(
    alpha: float = 1.0,
    beta: float = 1.0,
    *,
    clients: int = 100,
    samples: int | None = 100,
    test: float = 0.2,
    shared: bool = False,
    seed: int = 0,
) -> tuple[Dataset, Partition]:
    """Draw Synthetic(α, β) of Li et al. (FedProx, MLSys 2020) and its clients.

    60 features, 10 classes, one linear law per client: y = argmax(W_k x + b_k) with
    entries of W_k and b_k from N(u_k, 1), u_k ~ N(0, α), and x ~ N(v_k, Σ) with
    v_k ~ N(B_k, 1), B_k ~ N(0, β), Σ diagonal, Σ_jj = j^-1.2. α says how much models
    differ, β how much inputs do.

    With `shared`, u_k and B_k are one number for a client, as in Li et al.; then u_k
    adds the same to all ten classes, and α changes no label. Otherwise u_k is drawn for
    each class and B_k for each feature, as in FedCVR-Bolt's code.

    Clients have `samples` each, training and test together; None draws the long-tailed
    sizes of Li et al., 50 + lognormal(4, 2). A share `test` of them, but at least one,
    is for testing; test=0 leaves none.
    """
    given = dict(locals())
    _check_arguments(
        "synthetic",
        given,
        alpha=checks.number(least=0),
        beta=checks.number(least=0),
        clients=checks.integer(1),
        samples=checks.optional(checks.integer(1)),
        test=checks.number(least=0, below=1),
        shared=checks.flag,
        seed=checks.seed,
    )
    rng = np.random.default_rng(seed)
    F = 60  # features
    C = 10  # classes
    if samples is None:
        long_tailed = 50 + rng.lognormal(4, 2, clients).astype(int)
        sizes = long_tailed.tolist()
    else:
        sizes = [samples] * clients
    sigma = np.arange(1, F + 1) ** -0.6  # the roots of Σ_jj
    xs = []
    ys = []
    for size in sizes:
        if shared:
            u = rng.normal(0, np.sqrt(alpha), 1)
            B = rng.normal(0, np.sqrt(beta), 1)
        else:
            u = rng.normal(0, np.sqrt(alpha), C)
            B = rng.normal(0, np.sqrt(beta), F)
        W = rng.normal(u[:, None], 1, (C, F))
        b = rng.normal(u, 1, C)
        v = rng.normal(B, 1, F)
        x = rng.normal(v, sigma, (size, F)).astype(np.float32)
        xs.append(x)
        ys.append((x @ W.T + b).argmax(1))
    tests = [0] * clients
    if test > 0:
        tests = [min(max(round(test * size), 1), size - 1) for size in sizes]
    x = np.concatenate(xs)
    y = np.concatenate(ys)
    return _generated("synthetic", given, x, y, C), _blocks(sizes, tests)


def domains(
    base: str = "cifar100",
    clients: Sequence[int] = (15, 15, 0),
    size: int = 200,
    *,
    noise: float = 1.0,
    blur: float = 2.0,
    alpha: float = 100.0,
    test: float = 0.2,
    official: bool = False,
    anew: bool = False,
    seed: int = 0,
) -> tuple[Dataset, Partition]:
    """Deal a data set to clients that see it clean, noisy or blurred.

    FedGWC's visual domains (Tables 4 and 7). `clients` counts the clients of each
    domain, the hidden clusters; each gets `size` training samples of the base, nearly
    uniform in class (`alpha`, see `partition.mixed`). As in the authors' code noise is
    N(0, noise²) on every normalised pixel, and blur is a Gaussian of `blur` pixels
    before normalisation. Neither number is published. A share `test` of the samples is
    for testing. With test=0 and `official`, clients are tested on official test samples
    instead, dealt by `partition.match_test`.

    Noise is drawn here, once for each image. The authors' code draws it whenever an
    image is looked at. With `anew` it is left to the network: images stay clean, and
    one channel more says how strong the noise of each pixel is. `models.noisy` makes a
    network that draws it.
    """
    given = dict(locals())
    from scipy.ndimage import gaussian_filter

    _check_arguments(
        "domains",
        given,
        base=TEXT,
        clients=THREE_COUNTS,
        size=checks.integer(2),
        noise=checks.number(least=0),
        blur=checks.number(least=0),
        alpha=checks.number(least=0, infinite=True),
        test=checks.number(least=0, below=1),
        official=checks.flag,
        anew=checks.flag,
        seed=checks.seed,
    )
    source = _images("domains", base)
    assert source.mean is not None and source.std is not None
    part = _equal_clients(
        source,
        clients=sum(clients),
        size=size,
        alpha=alpha,
        test=test,
        official=official,
        seed=seed,
    )
    rows = [np.concatenate(both) for both in zip(part.train, part.test, strict=True)]
    sizes = [len(both) for both in rows]
    tests = [len(samples) for samples in part.test]
    every_row = np.concatenate(rows)  # (N,)
    truth = np.repeat(np.arange(3), clients)  # (K,)
    domain = np.repeat(truth, sizes)  # (N,)
    noisy = domain == 1
    blurred = domain == 2
    x = source.x[every_row] / np.float32(255)  # (N, C, H, W)
    x[blurred] = gaussian_filter(x[blurred], (0, 0, blur, blur))
    mean = np.reshape(source.mean, (-1, 1, 1))
    std = np.reshape(source.std, (-1, 1, 1))
    x = (x - mean) / std
    if anew:
        strength = np.zeros_like(x[:, :1])  # (N, 1, H, W)
        strength[noisy] = noise
        x = np.concatenate([x, strength], axis=1)
    else:
        rng = np.random.default_rng([seed, 1])
        x[noisy] += rng.normal(0, noise, x[noisy].shape)
    dataset = _generated("domains", given, x, source.y[every_row], source.classes)
    return replace(dataset, note=source.note), _blocks(sizes, tests, truth)


VIEWS = ("plain", "rotate 90", "rotate 180", "rotate 270", "invert", "noise", "blur")


def shifted(
    base: str = "fashion_mnist",
    kinds: Sequence[str] = ("plain", "rotate 90", "rotate 180", "rotate 270"),
    clients: Sequence[int] = (5, 5, 5, 5),
    size: int = 250,
    *,
    noise: float = 1.0,
    blur: float = 2.0,
    alpha: float = 1000.0,
    test: float = 0.2,
    official: bool = False,
    server: int = 0,
    seed: int = 0,
) -> tuple[Dataset, Partition]:
    """Deal a data set to groups of clients that each see it in a way of their own.

    Group g, a hidden cluster, has `clients[g]` clients of the kind `kinds[g]`:

    - "plain", "rotate 90" (or 180, 270), "invert" (the negative), "noise" of
      N(0, noise²) on normalised pixels, and "blur" by a Gaussian of `blur` pixels are
      covariate shifts: other inputs, the same classes.
    - "relabel" is a concept shift: the same inputs, but classes have new numbers, by
      a permutation drawn for this group.

    Each client gets `size` samples of the base, uniform in class (`alpha`, see
    `partition.mixed`). A share `test` of them is for testing. With test=0 and
    `official`, clients are tested on official test samples instead. The server gets
    `server` official test samples of each class that no client holds, as they are.
    """
    given = dict(locals())
    _check_arguments(
        "shifted",
        given,
        base=TEXT,
        kinds=KINDS,
        clients=checks.integers(),
        size=checks.integer(2),
        noise=checks.number(least=0),
        blur=checks.number(least=0),
        alpha=checks.number(least=0),
        test=checks.number(least=0, below=1),
        official=checks.flag,
        server=checks.integer(0),
        seed=checks.seed,
    )
    if len(kinds) != len(clients):
        raise ValueError(
            f"shifted(kinds={kinds}, clients={clients}): need a number of clients for "
            "each kind"
        )
    source = _images("shifted", base)
    assert source.mean is not None and source.std is not None
    part = _equal_clients(
        source,
        clients=sum(clients),
        size=size,
        alpha=alpha,
        test=test,
        official=official,
        seed=seed,
        keep=server,
    )
    rows = [np.concatenate(both) for both in zip(part.train, part.test, strict=True)]
    sizes = [len(both) for both in rows]
    tests = [len(samples) for samples in part.test]
    dealt = np.concatenate(rows)  # (N,)
    held = _held_by_the_server(source, dealt, server, seed)  # (M,)
    truth = np.repeat(np.arange(len(kinds)), clients)  # (K,)
    group = np.repeat(truth, sizes)  # (N,)
    x = source.x[np.concatenate([dealt, held])] / np.float32(255)  # (N + M, C, H, W)
    y = source.y[np.concatenate([dealt, held])]
    mean = np.reshape(source.mean, (-1, 1, 1)).astype(np.float32)
    std = np.reshape(source.std, (-1, 1, 1)).astype(np.float32)
    for g, kind in enumerate(kinds):
        mine = np.flatnonzero(group == g)
        rng = np.random.default_rng([seed, 2, g])
        if kind == "relabel":
            y[mine] = rng.permutation(source.classes)[y[mine]]
        elif kind == "noise":
            drawn = rng.standard_normal(x[mine].shape, np.float32)
            x[mine] += noise * std * drawn
        else:
            x[mine] = _seen_as(x[mine], kind, blur)
    dataset = _generated("shifted", given, (x - mean) / std, y, source.classes)
    dataset = replace(dataset, n_train=len(dealt), note=source.note)
    return dataset, _blocks(sizes, tests, truth)


def _seen_as(x: np.ndarray, kind: str, blur: float) -> np.ndarray:
    """Images (n, C, H, W) with values in [0, 1], rotated, inverted or blurred."""
    if kind == "plain":
        return x
    if kind == "invert":
        return 1 - x
    if kind == "blur":
        from scipy.ndimage import gaussian_filter

        return gaussian_filter(x, (0, 0, blur, blur))
    turns = int(kind.removeprefix("rotate ")) // 90
    if x.shape[2] != x.shape[3]:
        raise ValueError(f"shifted: {kind!r} needs square images, not {x.shape[2:]}")
    return np.rot90(x, turns, axes=(2, 3))


def _images(owner: str, base: str) -> Dataset:
    """The named data set, which must be one of images."""
    check_name(owner, base)
    if base.partition("(")[0] in GENERATORS:
        raise ValueError(f"{owner}(base={base!r}): need a data set of images")
    return load_found(base)


def _equal_clients(
    source: Dataset,
    clients: int,
    size: int,
    alpha: float,
    test: float,
    official: bool,
    seed: int,
    keep: int = 0,
) -> Partition:
    """Clients of one size and nearly one class mixture, before they are made to
    differ.
    """
    y = source.y[: source.n_train]
    part = mixed(y, [clients], [alpha], size, seed=seed, test=test)
    if official:
        part = match_test(part, y, source.y[source.n_train :], seed=seed, keep=keep)
    return part


def _held_by_the_server(
    source: Dataset, dealt: np.ndarray, per_class: int, seed: int
) -> np.ndarray:
    """Official test rows that no client holds: so many of each class."""
    free = np.setdiff1d(np.arange(source.n_train, len(source.y)), dealt)
    free = np.random.default_rng([seed, 1]).permutation(free)
    held = [np.empty(0, np.int64)]
    for c in range(source.classes):
        of_class = free[source.y[free] == c][:per_class]
        if len(of_class) < per_class:
            raise ValueError(
                f"shifted(server={per_class}): only {len(of_class)} official test "
                f"samples of class {c} are held by no client; lower server, size or "
                "clients"
            )
        held.append(of_class)
    return np.concatenate(held)


GENERATORS: dict[str, Callable[..., tuple[Dataset, Partition]]] = {
    "regression": regression,
    "synthetic": synthetic,
    "domains": domains,
    "shifted": shifted,
}


def generate(name: str) -> tuple[Dataset, Partition]:
    """Draw data and clients from a call written as text.

    Such as `generate("regression(clusters=2, seed=3)")`. The last few stay in memory.
    """
    check_name("generate", name)
    return _generate(name)


@lru_cache(maxsize=3)
def _generate(name: str) -> tuple[Dataset, Partition]:
    try:
        make, values, keywords = call_in(name)
        if make not in GENERATORS:
            raise ValueError(f"unknown function {make!r}")
        return GENERATORS[make](*values, **keywords)
    except (SyntaxError, TypeError, ValueError) as error:
        raise ValueError(
            f"{name!r} is no call of {' or '.join(GENERATORS)} with plain values: "
            f"{error}"
        ) from error


def as_generated(y: np.ndarray, name: str, *, seed: int = 0) -> Partition:
    """Deal a drawn data set to the clients that it was drawn for.

    A law for `Task`, next to `dataset=name`. Everything is settled by the seed in
    `name`; the `seed` that every law takes changes nothing here.
    """
    dataset, parts = generate(name)
    if not np.array_equal(y, dataset.y[: dataset.n_train]):
        raise ValueError(
            f"these {np.size(y)} labels are not those of {name!r}: load that data set"
        )
    return parts


def _generated(
    kind: str, given: dict, x: np.ndarray, y: np.ndarray, classes: int
) -> Dataset:
    """Freeze what was drawn; its name is the call that draws it again."""
    x = np.ascontiguousarray(x, dtype=np.float32)
    x.setflags(write=False)
    y.setflags(write=False)
    values = ", ".join(f"{word}={value!r}" for word, value in given.items())
    return Dataset(
        name=f"{kind}({values})",
        x=x,
        y=y,
        n_train=len(x),
        classes=classes,
        sha256=hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest(),
        note="drawn",
    )


def _blocks(
    sizes: Sequence[int], tests: Sequence[int], truth: np.ndarray | None = None
) -> Partition:
    """Give client k the k-th block of rows, the last `tests[k]` of them for testing."""
    train = []
    test = []
    end = 0
    for size, held_out in zip(sizes, tests, strict=True):
        start = end
        end = start + size
        train.append(np.arange(start, end - held_out))
        test.append(np.arange(end - held_out, end))
    return Partition(train, test, truth)


def _check_arguments(owner: str, given: dict[str, Any], **rules: checks.Rule) -> None:
    """Check the arguments that a function was given, each against its rule."""
    for name, rule in rules.items():
        checks.argument(owner, name, given[name], rule)


def _is_range(value: Any) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    finite = all(checks.number().holds(end) for end in value)
    return finite and value[0] <= value[1]


def _is_three_counts(value: Any) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 3:
        return False
    counts = all(checks.integer(0).holds(count) for count in value)
    return counts and sum(value) > 0


def _is_kinds(value: Any) -> bool:
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(kind in (*VIEWS, "relabel") for kind in value)


KINDS = checks.Rule(_is_kinds, f"a list of {', '.join(VIEWS)} or relabel")
RANGE = checks.Rule(_is_range, "two finite numbers, the smaller one first")
THREE_COUNTS = checks.Rule(
    _is_three_counts, "three integers >= 0, not all 0: clean, noisy, blurred clients"
)
TEXT = checks.Rule(lambda value: isinstance(value, str), "a text")
