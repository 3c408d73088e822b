"""Who holds which samples: partition laws, from labels to index lists.

Every law first decides a matrix of counts (K, C), how many samples of class c client k gets, and then deals
the shuffled samples of each class accordingly. So the laws below differ in a few lines each. Only `by_user`
decides nothing: its clients are found, not made.

Two laws carry the name Dirichlet, and the same α means different things in them:

- `dirichlet`: *client by client*. Client k draws its class mixture q_k ~ Dir(α·p), where p are the class
  shares of the pool [Hsu et al. 2019, arXiv:1909.06335; FedGWC]. α is the TOTAL concentration: with C
  balanced classes each class gets α/C, so α = 0.5 on 100 classes leaves a client of 500 samples with some
  four classes (2 to 13, on average 5, in the file FedGWC used). Sizes are equal.
- `dirichlet_per_class`: *class by class*. The shares of class c over the K clients are drawn from Dir(α·1)
  [Yurochkin et al. 2019, arXiv:1905.12022; WeCFL, FedCVR-Bolt]. α is the concentration PER CLIENT: α = 0.5
  gives each client something of most classes. Sizes differ from client to client.

Drawing q_k from Dir(α·1) over 100 classes, a common slip, is a third and nearly uniform law (some 65
classes per client at α = 0.5). Both laws treat their limits exactly: α = 0 never mixes, α ≥ 1000 (or inf)
is uniform.

All laws take the labels `y` (N,) of the training pool and return indices into it. `test` is the fraction of
each client's samples set aside for testing, stratified; `min_size` the fewest samples a client may hold,
both together. *Complete* means that every sample of the pool is dealt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from . import checks

UNIFORM = (
    1000.0  # from here on a Dirichlet is replaced by its limit: exactly equal shares
)
MOST_CLASSES = 100_000  # a larger label is a mistake, and would fill the memory
ALPHA = checks.number(least=0, infinite=True)  # 0 never mixes, inf is uniform
TRIES = 100  # draws of a per-class law that may starve a client, before the last one is repaired


class Partition(NamedTuple):
    """K clients: sample indices to train on, sample indices to test on, and the hidden cluster of each."""

    train: list[np.ndarray]  # K arrays of int64
    test: list[np.ndarray]  # K arrays of int64
    truth: np.ndarray | None = None  # (K,) int64; None where the law knows no clusters


def iid(
    y: np.ndarray, clients: int, *, seed: int = 0, test: float = 0.2, min_size: int = 2
) -> Partition:
    """Deal the pool at random into equal parts (±1): one hidden cluster. Complete."""
    y, sizes, rng = _start(y, clients, seed, test, min_size)
    counts = class_counts(
        np.array_split(rng.permutation(len(y)), clients), y, len(sizes)
    )
    return _deal(y, counts, rng, test, min_size, truth=np.zeros(clients, np.int64))


def dirichlet(
    y: np.ndarray,
    clients: int,
    alpha: float,
    *,
    seed: int = 0,
    test: float = 0.2,
    min_size: int = 2,
) -> Partition:
    """Give each client its own class mixture q_k ~ Dir(α·p), p = class shares of the pool. Complete.

    Clients have equal sizes (±1) and draw without replacement, one after the other; when a class runs out,
    q_k is renormalised over the others. α = 0 keeps classes apart, and sizes then follow the classes: with
    at least as many clients as classes each client holds ONE class and each class is shared evenly by whole
    clients; with fewer clients than classes no class is cut, each goes whole to the client that has least
    so far. α ≥ 1000 deals every class evenly.
    """
    y, sizes, rng = _start(y, clients, seed, test, min_size)
    counts = _limit(sizes, clients, alpha, rng)
    if counts is None:
        counts = _client_by_client(sizes, clients, alpha, rng)
    return _deal(y, counts, rng, test, min_size)


def dirichlet_per_class(
    y: np.ndarray,
    clients: int,
    alpha: float,
    *,
    seed: int = 0,
    test: float = 0.2,
    min_size: int = 2,
) -> Partition:
    """Divide each class among the clients by shares ~ Dir(α·1): label skew and unequal sizes. Complete.

    A draw that leaves a client with fewer than `min_size` samples is repeated, up to 100 times; then the
    largest clients give to the smallest. α = 0 hands each class whole to the client that has least so far
    (so it takes at least as many classes as clients), α ≥ 1000 deals every class evenly.
    """
    y, sizes, rng = _start(y, clients, seed, test, min_size)
    return _deal(
        y, _class_by_class(sizes, clients, alpha, min_size, rng), rng, test, min_size
    )


def n_class(
    y: np.ndarray,
    clients: int,
    n: int,
    *,
    seed: int = 0,
    test: float = 0.2,
    min_size: int = 2,
) -> Partition:
    """Let each client hold exactly n classes, each class shared evenly by its holders. Complete.

    Classes are picked at random among those held least so far, so each gets the same number of holders
    (±1).
    """
    y, sizes, rng = _start(y, clients, seed, test, min_size)
    classes = np.count_nonzero(sizes)
    _check_count("n", n, classes, "number of classes")
    _require(
        clients * n >= classes,
        f"{clients} clients x {n} cannot hold all {classes} classes; raise n",
    )
    return _deal(
        y, _even(_pick(clients, n, sizes > 0, rng), sizes, least=1), rng, test, min_size
    )


def cluster_dirichlet(
    y: np.ndarray,
    clients: int,
    clusters: int,
    alphas: tuple[float, float] = (0.1, 10.0),
    *,
    seed: int = 0,
    test: float = 0.2,
    min_size: int = 2,
) -> Partition:
    """Divide each class over clusters by Dir(α₁·1), then over the clients of each by Dir(α₂·1). Complete.

    WeCFL's first benchmark (Sec. 7.1): α₁ = 0.1 makes clusters differ, α₂ = 10 keeps their clients alike. A
    cluster gets at least 30 % of an equal share. Clusters are contiguous blocks of clients, equal in number
    (±1).
    """
    y, sizes, rng = _start(y, clients, seed, test, min_size)
    _check_list("alphas", alphas, ALPHA)
    _require(
        len(alphas) == 2, f"alphas = {alphas!r}: need two, of clusters and clients"
    )
    truth, members = _blocks(clients, clusters)
    floor = np.maximum(min_size * members, int(0.3 * len(y) / clusters))
    groups = _class_by_class(sizes, clusters, alphas[0], floor, rng)  # (G, C)
    counts = [
        _class_by_class(g, k, alphas[1], min_size, rng)
        for g, k in zip(groups, members, strict=True)
    ]
    return _deal(y, np.concatenate(counts), rng, test, min_size, truth)


def cluster_n_class(
    y: np.ndarray,
    clients: int,
    clusters: int,
    n: int = 3,
    m: int = 2,
    *,
    seed: int = 0,
    test: float = 0.2,
    min_size: int = 2,
) -> Partition:
    """Give each cluster n classes, and each of its clients m of those. Complete if clusters·n ≥ classes.

    WeCFL's second benchmark (Sec. 7.1, n = 3, m = 2). A class is shared evenly by all clients that hold it;
    a class that no cluster holds is left out.
    """
    y, sizes, rng = _start(y, clients, seed, test, min_size)
    truth, members = _blocks(clients, clusters)
    _check_count("n", n, np.count_nonzero(sizes), "number of classes")
    _check_count("m", m, n, "n of its cluster")
    few = members.min()
    _require(
        few * m >= n,
        f"{few} clients x m = {m} cannot hold a cluster's n = {n} classes; raise m",
    )
    sets = _pick(clusters, n, sizes > 0, rng)  # (G, C)
    holders = np.concatenate(
        [_pick(k, m, s, rng) for s, k in zip(sets, members, strict=True)]
    )
    return _deal(y, _even(holders, sizes, least=1), rng, test, min_size, truth)


def n_class_released(
    y: np.ndarray,
    clients: int,
    n: int,
    *,
    seed: int = 0,
    test: float = 0.2,
    min_size: int = 2,
) -> Partition:
    """Let each client draw n classes of its own, each class shared by its holders.

    The law of WeCFL's released code. A class is shared evenly, but how many clients
    hold it is left to chance, so the sizes of clients differ (200 clients of 2 out of
    10 classes: a coefficient of variation of about 0.1; fewer clients differ more).
    Complete unless a class is drawn by nobody: it is left out. `n_class` deals the
    holders evenly instead.
    """
    y, sizes, rng = _start(y, clients, seed, test, min_size)
    _check_count("n", n, np.count_nonzero(sizes), "number of classes")
    holders = _draw(clients, n, sizes > 0, rng)
    return _deal(y, _even(holders, sizes, least=1), rng, test, min_size)


def cluster_n_class_released(
    y: np.ndarray,
    clients: int,
    clusters: int,
    n: int = 3,
    m: int = 2,
    *,
    seed: int = 0,
    test: float = 0.2,
    min_size: int = 2,
) -> Partition:
    """Let each cluster draw n classes, and each of its clients m of those.

    The law of WeCFL's released code for its second benchmark (Sec. 7.1, n = 3, m = 2).
    A class is shared evenly by the clusters that drew it, and a cluster's share of it
    evenly by the clients that did. All draws are independent, so the sizes of clients
    differ (200 clients in 10 clusters: a coefficient of variation of about 0.4). A
    class that no cluster drew is left out, and so is a cluster's share of a class that
    none of its clients drew. `cluster_n_class` deals the holders evenly instead.
    """
    y, sizes, rng = _start(y, clients, seed, test, min_size)
    truth, members = _blocks(clients, clusters)
    _check_count("n", n, np.count_nonzero(sizes), "number of classes")
    _check_count("m", m, n, "n of its cluster")
    groups = _even(_draw(clusters, n, sizes > 0, rng), sizes, least=1)  # (G, C)
    counts = []
    for own, size in zip(groups, members, strict=True):
        holders = _draw(size, m, own > 0, rng)
        counts.append(_even(holders, own, least=1))
    return _deal(y, np.concatenate(counts), rng, test, min_size, truth)


def by_class_sets(
    y: np.ndarray,
    sizes: Sequence[int],
    class_sets: Sequence[Sequence[int]],
    *,
    seed: int = 0,
    test: float = 0.2,
    min_size: int = 2,
) -> Partition:
    """Make cluster c of `sizes[c]` clients that hold the classes `class_sets[c]`, as in OCFL's splits.

    Each class is shared evenly by all clients of all clusters that list it, so sets may overlap. Complete
    if the sets name every class; samples of other classes are left out.
    """
    _check_list("sizes", sizes, checks.integer(1))
    _check_list("class_sets", class_sets, CLASS_SET)
    _require(
        len(sizes) == len(class_sets) > 0,
        f"need a size >= 1 for each class set, got sizes {list(sizes)} for {len(class_sets)} sets",
    )
    y, totals, rng = _start(y, sum(sizes), seed, test, min_size)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    for wanted in class_sets:
        known = [c for c in wanted if 0 <= c < len(totals) and totals[c]]
        _require(
            0 < len(wanted) == len(known),
            f"class set {list(wanted)}: only {known} have samples",
        )
    sets = np.array(
        [np.isin(np.arange(len(totals)), list(wanted)) for wanted in class_sets]
    )  # (G, C)
    return _deal(y, _even(sets[truth], totals, least=1), rng, test, min_size, truth)


def by_user(
    y: np.ndarray,
    users: np.ndarray,
    clients: int | None = None,
    *,
    seed: int = 0,
    test: float = 0.2,
    min_size: int = 2,
) -> Partition:
    """Make a client of each user, with the user's own samples: a federation as it was found.

    `users` (N,) says whose each sample is; clients stand in the order of np.unique(users). Users with fewer than
    `min_size` samples are left out, and with `clients` all but the so many who have most, the first among equals.
    Complete if nobody is left out.
    """
    y = _labels(y)
    users = _users(users, len(y))
    _check_count("min_size", min_size, len(y), "number of samples")
    owner, sizes = np.unique(users, return_inverse=True, return_counts=True)[1:]
    enough = np.flatnonzero(sizes >= min_size)
    _require(len(enough) > 0, f"no user has min_size = {min_size} samples")
    if clients is not None:
        _check_count(
            "clients",
            clients,
            len(enough),
            f"number of users with {min_size} samples or more",
        )
    kept = np.sort(enough[np.argsort(-sizes[enough], kind="stable")[:clients]])
    y, _, rng = _start(y, len(kept), seed, test, min_size)
    order = rng.permutation(len(y))
    order = order[
        np.lexsort((y[order], owner[order]))
    ]  # user by user, each in class order, shuffled within a class
    own = np.split(order, np.cumsum(sizes)[:-1])
    pairs = [_split(own[k], test, rng) for k in kept]
    return Partition([a for a, _ in pairs], [b for _, b in pairs])


def mixed(
    y: np.ndarray,
    groups: Sequence[int],
    alphas: Sequence[float],
    size: int,
    *,
    shared: bool = False,
    seed: int = 0,
    test: float = 0.2,
    min_size: int = 2,
) -> Partition:
    """Deal `size` samples to each client, whose group says how mixed its classes are: FedGWC's Tables 3 and 6.

    Group g has `groups[g]` clients with class mixtures q ~ Dir(α_g·p), as in `dirichlet`. α = 0 is one class per
    client, different ones as far as they last, α ≥ 1000 exactly equal shares. The hidden cluster is the group. Not
    complete. Clients are disjoint; with `shared` only those of one group are, which FedGWC's numbers need:
    90 clients of one class and 500 samples each leave no ten classes for the others. Then use `match_test`.
    """
    _check_list("groups", groups, checks.integer(0))
    _check_list("alphas", alphas, ALPHA)
    _check("size", size, checks.integer(1))
    _check("shared", shared, checks.flag)
    _require(
        len(groups) == len(alphas),
        f"{len(groups)} groups and {len(alphas)} alphas: give one each",
    )
    y, sizes, rng = _start(y, sum(groups), seed, test, min_size)
    truth = np.repeat(np.arange(len(groups)), groups)
    left, counts = sizes.copy(), np.zeros((len(truth), len(sizes)), np.int64)
    for g in np.argsort(alphas, kind="stable"):  # whole classes first
        left = sizes.copy() if shared else left
        for k in np.flatnonzero(truth == g):
            counts[k] = _mixture(sizes / sizes.sum(), left, size, alphas[g], rng)
            left -= counts[k]
    if not shared:
        return _deal(y, counts, rng, test, min_size, truth)
    own = [_deal(y, counts[truth == g], rng, test, min_size) for g in np.unique(truth)]
    return Partition(
        [i for part in own for i in part.train],
        [i for part in own for i in part.test],
        truth,
    )


def match_test(
    part: Partition, y: np.ndarray, y_test: np.ndarray, seed: int = 0
) -> Partition:
    """Replace the test lists by official test samples with the class shares of each client's train data.

    Client k gets r·(its train count) samples of each class, rounded, with the largest r ≤ 1 that the test
    pool allows: clients are disjoint, and test sizes follow train sizes. Indices count on from len(y), as
    in `Dataset.x`. Train lists stay as they are: build `part` with test=0 to train on the whole pool. A
    very small client may get no sample.
    """
    y, y_test = _labels(y), _labels(y_test)
    _check("seed", seed, checks.seed)
    classes = max(y.max(), y_test.max()) + 1
    have = class_counts(part.train, y, classes)  # (K, C)
    pool, used = np.bincount(y_test, minlength=classes), have.sum(0)
    lacking = np.flatnonzero((used > 0) & (pool == 0)).tolist()
    _require(
        not lacking,
        f"the test pool has no samples of classes {lacking}, which clients train on",
    )
    ratio = min(1.0, (pool[used > 0] / used[used > 0]).min())
    rng = np.random.default_rng(seed)
    counts = _whole(ratio * have, np.floor(ratio * used + 1e-9), rng)
    return part._replace(
        test=[np.sort(own) + len(y) for own in _hand_out(y_test, counts, rng)]
    )


def subset(
    y: np.ndarray, law: Callable[..., Partition], samples: int, *, seed: int = 0
) -> Partition:
    """Partition only `samples` of the pool, drawn at random, by a law with its own keywords bound.

    `subset(y, partial(iid, clients=30), 6000)` keeps clients small when they are few.
    """
    y = _labels(y)
    _check_count("samples", samples, len(y), "size of the pool")
    _check("seed", seed, checks.seed)
    pick = np.sort(np.random.default_rng(seed).choice(len(y), samples, replace=False))
    part = law(y[pick], seed=seed)
    return part._replace(
        train=[pick[own] for own in part.train], test=[pick[own] for own in part.test]
    )


def refill(
    y: np.ndarray, law: Callable[..., Partition], least: int = 6, *, seed: int = 0
) -> Partition:
    """Replace each client with fewer than `least` test samples by a copy of another, drawn at random.

    What WeCFL's released code does to keep its number of clients: copies share all their samples, so they
    count twice in every average. Only for re-running that code.
    """
    _check("least", least, checks.integer(0))
    _check("seed", seed, checks.seed)
    part = law(y, seed=seed)
    good = np.flatnonzero([len(own) >= least for own in part.test])
    _require(len(good) > 0, f"no client has {least} test samples; lower least")
    stand_in = np.arange(len(part.test))
    bad = np.setdiff1d(stand_in, good)
    stand_in[bad] = np.random.default_rng(seed).choice(good, len(bad))
    truth = None if part.truth is None else part.truth[stand_in]
    return Partition(
        [part.train[k] for k in stand_in], [part.test[k] for k in stand_in], truth
    )


def class_counts(
    indices_list: Sequence[np.ndarray], y: np.ndarray, classes: int
) -> np.ndarray:
    """Count each client's samples per class -> (K, classes) int64."""
    y = _labels(y)
    _check("classes", classes, checks.integer(1, MOST_CLASSES))
    _require(
        y.max() < classes,
        f"labels go up to {y.max()}, so classes = {classes} is too few",
    )
    rows = [
        np.bincount(y[np.asarray(own, np.int64)], minlength=classes)
        for own in indices_list
    ]
    return np.array(rows, np.int64).reshape(-1, classes)


# From counts (K, C) to index lists.


def _deal(y, counts, rng, test, min_size, truth=None) -> Partition:
    """Deal the samples by `counts` (K, C) and set a stratified share of each client's aside for testing."""
    k, least = counts.sum(1).argmin(), counts.sum(1).min()
    _require(
        least >= min_size,
        f"client {k} gets {least} samples; take fewer clients or min_size <= {least}",
    )
    pairs = [_split(own, test, rng) for own in _hand_out(y, counts, rng)]
    return Partition([a for a, _ in pairs], [b for _, b in pairs], truth)


def _hand_out(y, counts, rng) -> list[np.ndarray]:
    """Shuffle each class and cut it by its column of `counts` (K, C): K index arrays, in class order."""
    piles = [rng.permutation(np.flatnonzero(y == c)) for c in range(counts.shape[1])]
    cut = [
        np.split(pile, np.cumsum(column))[:-1]
        for pile, column in zip(piles, counts.T, strict=True)
    ]
    return [np.concatenate(pieces) for pieces in zip(*cut, strict=True)]


def _split(own, test, rng) -> tuple[np.ndarray, np.ndarray]:
    """Test on every (s/t)-th of s samples in class order: each class gives its share, to within one."""
    s = len(own)
    t = min(max(round(test * s), 1), s - 1) if test else 0
    at = (np.arange(t) * s + rng.integers(s)) // max(
        t, 1
    )  # a random start keeps ties fair
    return np.sort(np.delete(own, at)), np.sort(own[at])


# Counts: rounded, shared evenly, or drawn.


def _whole(ideal, totals, rng) -> np.ndarray:
    """Round `ideal` (K, C) to column sums `totals`: largest remainders first, ties at random."""
    counts = np.floor(ideal).astype(np.int64)
    order = np.lexsort((rng.random(ideal.shape), counts - ideal), axis=0)
    return counts + (order.argsort(axis=0) < totals - counts.sum(0))


def _even(holders, sizes, least=0) -> np.ndarray:
    """Share each class evenly by its `holders` (K, C); odd samples go round, so that totals even out too."""
    h = np.maximum(holders.sum(0), 1)
    turn = (
        holders.cumsum(0) - 1 - (sizes.cumsum() - sizes)
    ) % h  # 0 = next in turn for an odd sample
    counts = holders * (sizes // h + (turn < sizes % h))
    short = np.flatnonzero((holders & (counts < least)).any(0)).tolist()
    _require(
        not short,
        f"classes {short} have fewer samples than clients to hold them; take fewer clients",
    )
    return counts


def _pick(rows, n, allowed, rng) -> np.ndarray:
    """Let each row hold n of the `allowed` (C,) classes, those held least so far first -> (rows, C) bool."""
    holders = np.zeros((rows, len(allowed)), bool)
    for k in range(rows):
        holders[
            k, np.lexsort((rng.random(len(allowed)), holders[:k].sum(0), ~allowed))[:n]
        ] = True
    return holders


def _draw(rows, n, allowed, rng) -> np.ndarray:
    """Let each row hold n of the `allowed` (C,) classes, drawn independently of the
    others -> (rows, C) bool.
    """
    holders = np.zeros((rows, len(allowed)), bool)
    for own in holders:
        own[rng.choice(np.flatnonzero(allowed), n, replace=False)] = True
    return holders


def _limit(sizes, rows, alpha, rng) -> np.ndarray | None:
    """Counts (rows, C) at the two ends of a Dirichlet law, None between them."""
    _check("alpha", alpha, ALPHA)
    if 0 < alpha < UNIFORM:
        return None
    return _even(
        _unmixed(sizes, rows, rng) if alpha == 0 else np.ones((rows, len(sizes)), bool),
        sizes,
    )


def _unmixed(sizes, clients, rng) -> np.ndarray:
    """The holders (K, C) at α = 0: one class per client, or, with too few clients, one client per class."""
    holders = np.zeros((clients, len(sizes)), bool)
    present = rng.permutation(np.flatnonzero(sizes))
    if clients >= len(present):
        owners = np.ones(len(present), np.int64)
        for _ in range(
            clients - len(present)
        ):  # one more for the class with most samples per owner
            owners[(sizes[present] / owners).argmax()] += 1
        holders[np.arange(clients), rng.permutation(np.repeat(present, owners))] = True
    else:
        for c in sorted(
            present, key=lambda c: -sizes[c]
        ):  # large classes first, to the emptiest client
            holders[(holders @ sizes).argmin(), c] = True
    return holders


def _client_by_client(sizes, clients, alpha, rng) -> np.ndarray:
    """Counts (K, C) of clients that draw in turn, each from its own q ~ Dir(α·p) over the open classes."""
    counts, left = np.zeros((clients, len(sizes)), np.int64), sizes.copy()
    base = np.maximum(alpha * sizes / sizes.sum(), np.finfo(float).tiny)
    for own, quota in zip(counts, _blocks(sizes.sum(), clients)[1], strict=True):
        q = np.zeros(len(sizes))
        while need := quota - own.sum():
            q[left == 0] = 0
            # A first draw; or its classes ran out and the other shares underflowed to 0: renormalised,
            # they follow a Dirichlet over the open classes whatever the rest was (neutrality), so draw that.
            if not q.any():
                q[left > 0] = rng.dirichlet(base[left > 0])
            take = np.minimum(rng.multinomial(need, q / q.sum()), left)
            own += take
            left -= take
    return rng.permutation(
        counts
    )  # the last to draw get leftovers: not always the last client


def _mixture(p, left, size, alpha, rng) -> np.ndarray:
    """Counts (C,) of a client that takes `size` of the samples `left` (C,) of a pool with class shares p (C,)."""
    _require(
        left.sum() >= size,
        f"{left.sum()} samples are left for a client of {size}; lower size",
    )
    own, q = np.zeros(len(left), np.int64), np.zeros(len(left))
    if alpha == 0:  # a class that most is left of: different clients, different classes
        c = np.lexsort((rng.random(len(left)), -left))[0]
        _require(
            left[c] >= size,
            f"no class has {size} samples left for a client of one class; lower size",
        )
        own[c] = size
    elif alpha >= UNIFORM:
        own = np.minimum(_whole(size * p[:, None], size, rng)[:, 0], left)
    while need := size - own.sum():
        q[left == own] = 0
        if not q.any():  # a first draw, or one whose classes ran out
            q[left > own] = rng.dirichlet(
                np.maximum(alpha * p, np.finfo(float).tiny)[left > own]
            )
        own += np.minimum(rng.multinomial(need, q / q.sum()), left - own)
    return own


def _class_by_class(sizes, rows, alpha, floor, rng) -> np.ndarray:
    """Counts (rows, C) with class shares ~ Dir(α·1), and at least `floor` samples in each row."""
    counts = _limit(sizes, rows, alpha, rng)
    if alpha == 0:
        ok = rows <= np.count_nonzero(sizes) and (counts.sum(1) >= floor).all()
        _require(
            ok,
            f"alpha = 0 deals whole classes, not enough for {rows} parts; take fewer or alpha > 0",
        )
    for _ in range(TRIES if counts is None else 0):
        counts = _whole(
            rng.dirichlet(np.full(rows, alpha), len(sizes)).T * sizes, sizes, rng
        )
        if (counts.sum(1) >= floor).all():
            break
    return _repair(counts, floor)


def _repair(counts, floor) -> np.ndarray:
    """Move samples from the richest row's largest class to the poorest row until each row has its `floor`."""
    while ((spare := counts.sum(1) - floor) < 0).any():
        poor, rich = spare.argmin(), spare.argmax()
        c = counts[rich].argmax()
        move = min(-spare[poor], spare[rich], counts[rich, c])
        counts[[rich, poor], c] += [-move, move]
    return counts


def _blocks(members, blocks) -> tuple[np.ndarray, np.ndarray]:
    """Contiguous blocks, equal (±1): the block of each member, and the size of each block."""
    _check_count("clusters", blocks, members, "number of clients")
    truth = np.sort(np.arange(members) % blocks)
    return truth, np.bincount(truth)


# Checks.


def _require(ok, message: str) -> None:
    if not ok:
        raise ValueError(message)


def _check(name: str, value, rule: checks.Rule) -> None:
    _require(rule.holds(value), f"{name} = {value!r}: need {rule.need}")


def _check_list(name: str, values, rule: checks.Rule) -> None:
    ok = _is_list(values) and all(rule.holds(value) for value in values)
    _require(ok, f"{name} = {values!r}: need a list, each entry {rule.need}")


def _is_list(values) -> bool:
    return isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)


def _is_class_set(values) -> bool:
    is_set = _is_list(values) or isinstance(values, set | frozenset)
    return is_set and all(map(checks.integer(0).holds, values))


CLASS_SET = checks.Rule(_is_class_set, "a list of classes, integers >= 0")


def _check_count(name, value, most, what) -> None:
    ok = checks.integer(1, most).holds(value)
    _require(ok, f"{name} = {value!r}: need an integer from 1 to {most}, the {what}")


def _labels(y) -> np.ndarray:
    y = np.asarray(y)
    ok = y.ndim == 1 and y.size and y.dtype.kind in "iu"
    _require(
        ok,
        f"labels must be a non-empty vector of integers, got shape {y.shape} of {y.dtype}",
    )
    _require(y.min() >= 0, f"labels must be >= 0, got {y.min()}")
    _require(
        y.max() < MOST_CLASSES,
        f"labels must be class numbers below {MOST_CLASSES:,}, got {y.max()}",
    )
    return y.astype(np.int64, copy=False)


def _users(users, samples: int) -> np.ndarray:
    """Check who owns each sample -> (N,) numbers or texts, none missing."""
    users = np.asarray(users)
    _require(
        users.shape == (samples,),
        f"users of shape {users.shape} for labels of shape {(samples,)}",
    )
    known = users.dtype.kind in "biuUS"
    if users.dtype.kind == "f":
        known = np.isfinite(users).all()
    if users.dtype.kind == "O":  # pandas' texts; other objects may not sort
        known = all(isinstance(user, str) for user in users)
    _require(known, f"users must be numbers or texts, none missing, got {users.dtype}")
    return users


def _start(y, clients, seed, test, min_size):
    """Check what all laws share -> labels (N,), class sizes (C,), generator."""
    y = _labels(y)
    _check_count("min_size", min_size, len(y), "number of samples")
    _check_count(
        "clients",
        clients,
        len(y) // min_size,
        f"{len(y)} samples over min_size = {min_size}",
    )
    _check("test", test, checks.number(least=0, below=1))
    _check("seed", seed, checks.seed)
    return y, np.bincount(y), np.random.default_rng(seed)
