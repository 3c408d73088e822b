"""Who holds which samples: partition laws, from labels to index lists.

Every law first decides a matrix of counts (K, C), how many samples of class c client k
gets, and then deals the shuffled samples of each class by these counts. So the laws
differ in a few lines each. Only `by_user` decides nothing: its clients are given.

Two laws carry the name Dirichlet, and the same α means different things in them:

- `dirichlet`: *client by client*. Client k draws its class mixture q_k ~ Dir(α·p),
  where p are the class shares of the pool [Hsu et al. 2019, arXiv:1909.06335; FedGWC].
  α is the TOTAL concentration: with C balanced classes each class gets α/C, so α = 0.5
  on 100 classes leaves a client of 500 samples with some four classes (2 to 13, on
  average 5, in the file FedGWC used). Sizes are equal.
- `dirichlet_per_class`: *class by class*. The shares of class c over the K clients are
  drawn from Dir(α·1) [Yurochkin et al. 2019, arXiv:1905.12022; WeCFL, FedCVR-Bolt]. α
  is the concentration PER CLIENT: α = 0.5 gives each client something of most classes.
  Sizes differ from client to client.

Drawing q_k from Dir(α·1) over 100 classes, a common slip, is a third and nearly uniform
law (some 65 classes per client at α = 0.5). Both laws treat their limits exactly: α = 0
never mixes, α ≥ 1000 (or inf) is uniform.

All laws take the labels `y` (N,) of the training pool and return indices into it.
`test` is the fraction of each client's samples set aside for testing, stratified;
`min_size` is the fewest samples that a client may hold, both together. *Complete* means
that every sample of the pool is dealt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from . import checks

UNIFORM = 1000.0  # from here on a Dirichlet is replaced by its limit, equal shares
MOST_CLASSES = 100_000  # a larger label is a mistake, and would fill the memory
ALPHA = checks.number(least=0, infinite=True)  # 0 never mixes, inf is uniform
TRIES = 100  # draws of a per-class law; if all have too small clients, repair the last


class Partition(NamedTuple):
    """The sample indices of K clients, and the hidden cluster of each."""

    train: list[np.ndarray]  # K arrays of int64
    test: list[np.ndarray]  # K arrays of int64
    truth: np.ndarray | None = None  # (K,) int64; None where the law knows no clusters
    # K arrays of int64: samples to choose settings by, see `with_validation`
    validation: list[np.ndarray] | None = None


def iid(
    y: np.ndarray, clients: int, *, seed: int = 0, test: float = 0.2, min_size: int = 2
) -> Partition:
    """Deal the pool at random into equal parts (±1): one hidden cluster. Complete."""
    y, sizes, rng = _start(y, clients, seed, test, min_size)
    parts = np.array_split(rng.permutation(len(y)), clients)
    counts = class_counts(parts, y, len(sizes))
    truth = np.zeros(clients, np.int64)
    return _deal(y, counts, rng, test, min_size, truth)


def dirichlet(
    y: np.ndarray,
    clients: int,
    alpha: float,
    *,
    seed: int = 0,
    test: float = 0.2,
    min_size: int = 2,
) -> Partition:
    """Give each client its own class mixture q_k ~ Dir(α·p), p the pool's class shares.

    Complete. Clients have equal sizes (±1) and draw without replacement, one after the
    other; when a class runs out, q_k is renormalised over the others.

    α = 0 keeps classes apart, and sizes then follow the classes. With at least as many
    clients as classes, each client holds ONE class, and the clients of a class share it
    evenly. With fewer clients than classes, each class goes whole to the client that
    has the fewest samples so far. α ≥ 1000 deals every class evenly.
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
    """Divide each class among the clients by shares ~ Dir(α·1).

    Complete. Clients differ in their classes and in size. A draw that leaves a client
    with fewer than `min_size` samples is repeated, up to 100 times; then the largest
    clients give to the smallest. α = 0 hands each class whole to the client that has
    the fewest samples so far (so it takes at least as many classes as clients); α ≥
    1000 deals every class evenly.
    """
    y, sizes, rng = _start(y, clients, seed, test, min_size)
    counts = _class_by_class(sizes, clients, alpha, min_size, rng)
    return _deal(y, counts, rng, test, min_size)


def quantity_skew(
    y: np.ndarray,
    clients: int,
    alpha: float = 1.0,
    *,
    seed: int = 0,
    test: float = 0.2,
    min_size: int = 2,
) -> Partition:
    """Give clients very different numbers of samples, all drawn from the same pool.
    Complete.

    Shares of the pool are drawn from Dir(α·1): the smaller α, the more unequal; α ≥
    1000 is `iid`'s equal sizes. Each client first gets `min_size` samples, and the rest
    is shared out. One hidden cluster: clients differ in size only.
    """
    y, sizes, rng = _start(y, clients, seed, test, min_size)
    _check("alpha", alpha, checks.number(above=0, infinite=True))
    rest = len(y) - clients * min_size
    shares = np.full(clients, 1 / clients)
    if alpha < UNIFORM:
        shares = rng.dirichlet(np.full(clients, alpha))
    numbers = min_size + _whole(rest * shares[:, None], rest, rng)[:, 0]  # (K,)
    dealt = np.split(rng.permutation(len(y)), np.cumsum(numbers)[:-1])
    counts = class_counts(dealt, y, len(sizes))
    return _deal(y, counts, rng, test, min_size, truth=np.zeros(clients, np.int64))


def n_class(
    y: np.ndarray,
    clients: int,
    n: int,
    *,
    seed: int = 0,
    test: float = 0.2,
    min_size: int = 2,
) -> Partition:
    """Let each client hold exactly n classes, each class shared evenly by its holders.

    Complete. Classes are picked at random among those with the fewest holders so far,
    so each gets the same number of holders (±1).
    """
    y, sizes, rng = _start(y, clients, seed, test, min_size)
    classes = np.count_nonzero(sizes)
    _check_count("n", n, classes, "number of classes")
    _require(
        clients * n >= classes,
        f"{clients} clients x {n} cannot hold all {classes} classes; raise n",
    )
    holders = _pick(clients, n, sizes > 0, rng)
    return _deal(y, _even(holders, sizes, least=1), rng, test, min_size)


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
    """Divide each class over clusters by Dir(α₁·1), then over clients by Dir(α₂·1).

    Complete. WeCFL's first benchmark (Sec. 7.1): α₁ = 0.1 makes clusters differ,
    α₂ = 10 keeps their clients alike. A cluster gets at least 30 % of an equal share.
    Clusters are contiguous blocks of clients, equal in number (±1).
    """
    y, sizes, rng = _start(y, clients, seed, test, min_size)
    _check_list("alphas", alphas, ALPHA)
    _require(
        len(alphas) == 2, f"alphas = {alphas!r}: need two, of clusters and clients"
    )
    truth, members = _blocks(clients, clusters)
    floor = np.maximum(min_size * members, int(0.3 * len(y) / clusters))
    groups = _class_by_class(sizes, clusters, alphas[0], floor, rng)  # (G, C)
    counts = []
    for group, size in zip(groups, members, strict=True):
        counts.append(_class_by_class(group, size, alphas[1], min_size, rng))
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
    """Give each cluster n classes, and each of its clients m of those.

    Complete if clusters·n ≥ classes. WeCFL's second benchmark (Sec. 7.1, n = 3, m = 2).
    A class is shared evenly by all clients that hold it; a class that no cluster holds
    is left out.
    """
    y, sizes, rng = _start(y, clients, seed, test, min_size)
    truth, members = _blocks(clients, clusters)
    _check_count("n", n, np.count_nonzero(sizes), "number of classes")
    _check_count("m", m, n, "n of its cluster")
    fewest = members.min()
    _require(
        fewest * m >= n,
        f"{fewest} clients x m = {m} cannot hold a cluster's n = {n} classes; raise m",
    )
    sets = _pick(clusters, n, sizes > 0, rng)  # (G, C)
    holders = []
    for allowed, size in zip(sets, members, strict=True):
        holders.append(_pick(size, m, allowed, rng))
    counts = _even(np.concatenate(holders), sizes, least=1)
    return _deal(y, counts, rng, test, min_size, truth)


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
    for group, size in zip(groups, members, strict=True):
        holders = _draw(size, m, group > 0, rng)
        counts.append(_even(holders, group, least=1))
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
    """Make cluster c of `sizes[c]` clients that hold the classes `class_sets[c]`.

    OCFL's splits. Each class is shared evenly by all clients of all clusters that list
    it, so sets may overlap. Complete if the sets name every class; samples of other
    classes are left out.
    """
    _check_list("sizes", sizes, checks.integer(1))
    _check_list("class_sets", class_sets, CLASS_SET)
    _require(
        len(sizes) == len(class_sets) > 0,
        f"need a size >= 1 for each class set, got sizes {list(sizes)} for "
        f"{len(class_sets)} sets",
    )
    y, totals, rng = _start(y, sum(sizes), seed, test, min_size)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    for wanted in class_sets:
        known = [c for c in wanted if 0 <= c < len(totals) and totals[c]]
        _require(
            0 < len(wanted) == len(known),
            f"class set {list(wanted)}: only {known} have samples",
        )
    classes = np.arange(len(totals))
    sets = np.array([np.isin(classes, list(wanted)) for wanted in class_sets])  # (G, C)
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
    """Make a client of each user, with the user's own samples.

    `users` (N,) says to whom each sample belongs; clients are in the order of
    np.unique(users). Users with fewer than `min_size` samples are left out. With
    `clients`, only so many users are kept: those with the most samples, the first among
    equals. Complete if no user is left out.
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
    # user by user, each in class order, shuffled within a class
    order = rng.permutation(len(y))
    order = order[np.lexsort((y[order], owner[order]))]
    samples = np.split(order, np.cumsum(sizes)[:-1])  # of all users
    return _with_tests([samples[k] for k in kept], test, rng)


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
    """Deal `size` samples to each client; its group says how mixed its classes are.

    FedGWC's Tables 3 and 6. Group g has `groups[g]` clients with class mixtures
    q ~ Dir(α_g·p), as in `dirichlet`. α = 0 is one class per client, with different
    classes for different clients as long as there are enough; α ≥ 1000 is exactly equal
    shares. The hidden cluster is the group. Not complete.

    Clients are disjoint. With `shared` only those of the same group are, as FedGWC's
    numbers require: 90 clients of one class and 500 samples each leave too few samples
    for the others. Then use `match_test`.
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
    counts = np.zeros((len(truth), len(sizes)), np.int64)
    left = sizes.copy()
    for g in np.argsort(alphas, kind="stable"):  # clients of one class first
        if shared:
            left = sizes.copy()
        for k in np.flatnonzero(truth == g):
            counts[k] = _mixture(sizes / sizes.sum(), left, size, alphas[g], rng)
            left -= counts[k]
    if not shared:
        return _deal(y, counts, rng, test, min_size, truth)
    both = Partition([], [], truth)
    for g in np.unique(truth):
        group = _deal(y, counts[truth == g], rng, test, min_size)
        both.train.extend(group.train)
        both.test.extend(group.test)
    return both


def match_test(
    part: Partition, y: np.ndarray, y_test: np.ndarray, seed: int = 0, keep: int = 0
) -> Partition:
    """Test each client on official test samples that look like its train data.

    They have the class shares of its train data: client k gets r·(its train count)
    samples of each class, rounded, with the largest r ≤ 1 that the test pool allows.
    Clients are disjoint, and test sizes are proportional to train sizes. The indices of
    test samples start at len(y), as in `Dataset.x`. Train lists stay as they are: build
    `part` with test=0 to train on the whole pool. A very small client may get no test
    sample. At least `keep` samples of each class are left for the server.
    """
    y = _labels(y)
    y_test = _labels(y_test)
    _check("seed", seed, checks.seed)
    _check("keep", keep, checks.integer(0))
    classes = max(y.max(), y_test.max()) + 1
    have = class_counts(part.train, y, classes)  # (K, C)
    used = have.sum(0)  # (C,)
    pool = np.bincount(y_test, minlength=classes)  # (C,)
    pool = np.maximum(pool - keep, 0)
    lacking = np.flatnonzero((used > 0) & (pool == 0)).tolist()
    beside = ""
    if keep:
        beside = f" beside the {keep} that are kept"
    _require(
        not lacking,
        f"the test pool has no samples of classes {lacking}{beside}, "
        "which clients train on",
    )
    ratio = min(1.0, (pool[used > 0] / used[used > 0]).min())
    rng = np.random.default_rng(seed)
    counts = _whole(ratio * have, np.floor(ratio * used + 1e-9), rng)
    tests = _hand_out(y_test, counts, rng)
    return part._replace(test=[np.sort(samples) + len(y) for samples in tests])


def subset(
    y: np.ndarray, law: Callable[..., Partition], samples: int, *, seed: int = 0
) -> Partition:
    """Partition only `samples` of the pool, drawn at random.

    `law` is a partition law whose keywords are bound:
    `subset(y, partial(iid, clients=30), 6000)` keeps clients small when they are few.
    """
    y = _labels(y)
    _check_count("samples", samples, len(y), "size of the pool")
    _check("seed", seed, checks.seed)
    pick = np.sort(np.random.default_rng(seed).choice(len(y), samples, replace=False))
    part = law(y[pick], seed=seed)
    _require(part.validation is None, "set validation samples aside after subset")
    return part._replace(
        train=[pick[samples] for samples in part.train],
        test=[pick[samples] for samples in part.test],
    )


def with_validation(
    y: np.ndarray, law: Callable[..., Partition], share: float = 0.2, *, seed: int = 0
) -> Partition:
    """Set a share of each client's training samples aside, to choose settings by.

    Training never sees them, and they are no test samples: the test lists of the law
    stay as they are. The split is stratified by class, and a client keeps at least one
    sample to train on. `law` has its own keywords bound, as in `subset`.
    """
    y = _labels(y)
    _check("share", share, checks.number(above=0, below=1))
    _check("seed", seed, checks.seed)
    part = law(y, seed=seed)
    _require(part.validation is None, "validation samples were set aside before")
    rng = np.random.default_rng([seed, 1])
    train = []
    validation = []
    for samples in part.train:
        by_class = samples[np.argsort(y[samples], kind="stable")]
        kept, aside = _split(by_class, share, rng)
        train.append(kept)
        validation.append(aside)
    return part._replace(train=train, validation=validation)


def refill(
    y: np.ndarray, law: Callable[..., Partition], least: int = 6, *, seed: int = 0
) -> Partition:
    """Replace clients with fewer than `least` test samples by copies of others.

    The others are drawn at random. WeCFL's released code does this to keep its number
    of clients. Copies share all their samples, so these clients count twice in every
    average. Only for re-running that code.
    """
    _check("least", least, checks.integer(0))
    _check("seed", seed, checks.seed)
    part = law(y, seed=seed)
    _require(part.validation is None, "set validation samples aside after refill")
    good = np.flatnonzero([len(samples) >= least for samples in part.test])
    _require(len(good) > 0, f"no client has {least} test samples; lower least")
    stand_in = np.arange(len(part.test))
    bad = np.setdiff1d(stand_in, good)
    stand_in[bad] = np.random.default_rng(seed).choice(good, len(bad))
    truth = part.truth
    if truth is not None:
        truth = truth[stand_in]
    train = [part.train[k] for k in stand_in]
    tests = [part.test[k] for k in stand_in]
    return Partition(train, tests, truth)


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
    rows = []
    for indices in indices_list:
        labels = y[np.asarray(indices, np.int64)]
        rows.append(np.bincount(labels, minlength=classes))
    return np.array(rows, np.int64).reshape(-1, classes)


# From counts (K, C) to index lists.


def _deal(y, counts, rng, test, min_size, truth=None) -> Partition:
    """Deal the samples by `counts` (K, C), and set a share of each client's aside."""
    sizes = counts.sum(1)
    smallest = sizes.min()
    _require(
        smallest >= min_size,
        f"client {sizes.argmin()} gets {smallest} samples; take fewer clients or "
        f"min_size <= {smallest}",
    )
    return _with_tests(_hand_out(y, counts, rng), test, rng, truth)


def _with_tests(samples, test, rng, truth=None) -> Partition:
    """Hold out a share ``test`` of each client's samples for testing.

    ``samples`` are K index arrays, each in class order.
    """
    train = []
    tests = []
    for indices in samples:
        for_training, for_testing = _split(indices, test, rng)
        train.append(for_training)
        tests.append(for_testing)
    return Partition(train, tests, truth)


def _hand_out(y, counts, rng) -> list[np.ndarray]:
    """Shuffle each class and cut it by its column of `counts` (K, C).

    Returns K index arrays, each in class order.
    """
    pieces = []  # C lists of K index arrays
    for c, column in enumerate(counts.T):
        pile = rng.permutation(np.flatnonzero(y == c))
        pieces.append(np.split(pile, np.cumsum(column))[:-1])
    return [np.concatenate(of_client) for of_client in zip(*pieces, strict=True)]


def _split(samples, test, rng) -> tuple[np.ndarray, np.ndarray]:
    """Split samples in class order into train and test samples, both sorted.

    Of s samples every (s/t)-th is a test sample, from a random start, so that each
    class gives its share to within one.
    """
    s = len(samples)
    t = 0
    if test:
        t = min(max(round(test * s), 1), s - 1)
    at = (np.arange(t) * s + rng.integers(s)) // max(t, 1)
    return np.sort(np.delete(samples, at)), np.sort(samples[at])


# Counts: rounded, shared evenly, or drawn.


def _whole(ideal, totals, rng) -> np.ndarray:
    """Round `ideal` (K, C) to whole numbers with the column sums `totals`.

    The largest remainders are rounded up, ties at random.
    """
    counts = np.floor(ideal).astype(np.int64)
    order = np.lexsort((rng.random(ideal.shape), counts - ideal), axis=0)
    return counts + (order.argsort(axis=0) < totals - counts.sum(0))


def _even(holders, sizes, least=0) -> np.ndarray:
    """Share each class evenly by its `holders` (K, C) -> counts (K, C).

    Samples left over go to the holders in turn, so that the clients' totals even out.
    """
    h = np.maximum(holders.sum(0), 1)
    # each holder's place in the queue for left-over samples; place 0 is served first
    place = (holders.cumsum(0) - 1 - (sizes.cumsum() - sizes)) % h
    counts = holders * (sizes // h + (place < sizes % h))
    short = np.flatnonzero((holders & (counts < least)).any(0)).tolist()
    _require(
        not short,
        f"classes {short} have fewer samples than clients to hold them; take fewer "
        "clients",
    )
    return counts


def _pick(rows, n, allowed, rng) -> np.ndarray:
    """Let each row hold n of the `allowed` (C,) classes -> (rows, C) bool.

    Classes with the fewest holders so far come first, ties are drawn.
    """
    holders = np.zeros((rows, len(allowed)), bool)
    for k in range(rows):
        holders_so_far = holders[:k].sum(0)
        order = np.lexsort((rng.random(len(allowed)), holders_so_far, ~allowed))
        holders[k, order[:n]] = True
    return holders


def _draw(rows, n, allowed, rng) -> np.ndarray:
    """Let each row hold n of the `allowed` (C,) classes -> (rows, C) bool.

    Each row is drawn independently of the others.
    """
    holders = np.zeros((rows, len(allowed)), bool)
    for row in holders:
        row[rng.choice(np.flatnonzero(allowed), n, replace=False)] = True
    return holders


def _limit(sizes, rows, alpha, rng) -> np.ndarray | None:
    """Counts (rows, C) at the two ends of a Dirichlet law, None between them."""
    _check("alpha", alpha, ALPHA)
    if 0 < alpha < UNIFORM:
        return None
    holders = np.ones((rows, len(sizes)), bool)
    if alpha == 0:
        holders = _unmixed(sizes, rows, rng)
    return _even(holders, sizes)


def _unmixed(sizes, clients, rng) -> np.ndarray:
    """The holders (K, C) at α = 0: one class per client.

    With fewer clients than classes it is one client per class instead.
    """
    holders = np.zeros((clients, len(sizes)), bool)
    present = rng.permutation(np.flatnonzero(sizes))
    if clients >= len(present):
        # further owners go to the class with the most samples per owner
        owners = np.ones(len(present), np.int64)
        for _ in range(clients - len(present)):
            owners[(sizes[present] / owners).argmax()] += 1
        class_of = rng.permutation(np.repeat(present, owners))  # (K,)
        holders[np.arange(clients), class_of] = True
    else:
        # large classes first, each to the client with the fewest samples
        for c in sorted(present, key=lambda c: -sizes[c]):
            holders[(holders @ sizes).argmin(), c] = True
    return holders


def _client_by_client(sizes, clients, alpha, rng) -> np.ndarray:
    """Counts (K, C) of clients that draw in turn, each from its own q ~ Dir(α·p).

    Samples of a class that has run out are drawn from the other classes.
    """
    counts = np.zeros((clients, len(sizes)), np.int64)
    left = sizes.copy()
    base = np.maximum(alpha * sizes / sizes.sum(), np.finfo(float).tiny)
    quotas = _blocks(sizes.sum(), clients)[1]
    for row, quota in zip(counts, quotas, strict=True):
        q = np.zeros(len(sizes))
        while need := quota - row.sum():
            q[left == 0] = 0
            # The first draw; or all classes of q ran out, and the other shares had
            # underflowed to 0. Renormalised, these follow a Dirichlet over the classes
            # that are left, whatever the rest was (neutrality): draw that.
            if not q.any():
                q[left > 0] = rng.dirichlet(base[left > 0])
            take = np.minimum(rng.multinomial(need, q / q.sum()), left)
            row += take
            left -= take
    # the last to draw get what is left over: this should not always be the last client
    return rng.permutation(counts)


def _mixture(p, left, size, alpha, rng) -> np.ndarray:
    """Counts (C,) of a client that takes `size` of the samples `left` (C,).

    p (C,) are the class shares of the pool.
    """
    _require(
        left.sum() >= size,
        f"{left.sum()} samples are left for a client of {size}; lower size",
    )
    counts = np.zeros(len(left), np.int64)
    if alpha == 0:
        # the class with the most samples left: different clients, different classes
        c = np.lexsort((rng.random(len(left)), -left))[0]
        _require(
            left[c] >= size,
            f"no class has {size} samples left for a client of one class; lower size",
        )
        counts[c] = size
    elif alpha >= UNIFORM:
        counts = np.minimum(_whole(size * p[:, None], size, rng)[:, 0], left)
    base = np.maximum(alpha * p, np.finfo(float).tiny)
    q = np.zeros(len(left))
    while need := size - counts.sum():
        is_left = left > counts
        q[~is_left] = 0
        if not q.any():  # the first draw, or all classes of the last one ran out
            q[is_left] = rng.dirichlet(base[is_left])
        counts += np.minimum(rng.multinomial(need, q / q.sum()), left - counts)
    return counts


def _class_by_class(sizes, rows, alpha, floor, rng) -> np.ndarray:
    """Counts (rows, C) with class shares ~ Dir(α·1).

    Each row gets at least `floor` samples, a number or one for each row.
    """
    counts = _limit(sizes, rows, alpha, rng)
    if alpha == 0 and counts is not None:
        enough = rows <= np.count_nonzero(sizes) and (counts.sum(1) >= floor).all()
        _require(
            enough,
            f"alpha = 0 deals whole classes, not enough for {rows} parts; take fewer "
            "or alpha > 0",
        )
    if counts is not None:
        return _repair(counts, floor)
    for _ in range(TRIES):
        shares = rng.dirichlet(np.full(rows, alpha), len(sizes)).T  # (rows, C)
        counts = _whole(shares * sizes, sizes, rng)
        if (counts.sum(1) >= floor).all():
            break
    return _repair(counts, floor)


def _repair(counts, floor) -> np.ndarray:
    """Move samples between rows until each row has at least its `floor`.

    They move from the largest class of the row with the most to the row with the least.
    """
    while ((spare := counts.sum(1) - floor) < 0).any():
        poor = spare.argmin()
        rich = spare.argmax()
        c = counts[rich].argmax()
        move = min(-spare[poor], spare[rich], counts[rich, c])
        counts[[rich, poor], c] += [-move, move]
    return counts


def _blocks(members, blocks) -> tuple[np.ndarray, np.ndarray]:
    """Cut members into contiguous blocks, equal (±1).

    Returns the block of each member, and the size of each block.
    """
    _check_count("clusters", blocks, members, "number of clients")
    truth = np.sort(np.arange(members) % blocks)
    return truth, np.bincount(truth)


# Checks.


def _require(ok, message: str) -> None:
    """Raise the message unless the condition holds."""
    if not ok:
        raise ValueError(message)


def _check(name: str, value, rule: checks.Rule) -> None:
    """Hold an argument to a rule."""
    _require(rule.holds(value), f"{name} = {value!r}: need {rule.need}")


def _check_list(name: str, values, rule: checks.Rule) -> None:
    """Hold each entry of a list to a rule."""
    ok = _is_list(values) and all(rule.holds(value) for value in values)
    _require(ok, f"{name} = {values!r}: need a list, each entry {rule.need}")


def _is_list(values) -> bool:
    return isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)


def _is_class_set(values) -> bool:
    is_set = _is_list(values) or isinstance(values, set | frozenset)
    return is_set and all(map(checks.integer(0).holds, values))


CLASS_SET = checks.Rule(_is_class_set, "a list of classes, integers >= 0")


def _check_count(name, value, most, what) -> None:
    """An argument must be an integer from 1 to ``most``, which is the ``what``."""
    ok = checks.integer(1, most).holds(value)
    _require(ok, f"{name} = {value!r}: need an integer from 1 to {most}, the {what}")


def _labels(y) -> np.ndarray:
    """Check class labels -> (N,) int64."""
    y = np.asarray(y)
    ok = y.ndim == 1 and y.size and y.dtype.kind in "iu"
    _require(
        ok,
        f"labels must be a non-empty vector of integers, got shape {y.shape} of "
        f"{y.dtype}",
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
