"""Bad arguments of data sets, drawn data and partition laws: one clear sentence each.

Most of them once gave nonsense without a word, an error from the depths of numpy, or,
`mixed(size=2.5)`, nothing at all for ever.
"""

import hashlib
import math
from functools import partial

import numpy as np
import pytest

from fednb import data, partition

Y = np.repeat(np.arange(10), 20)
NAN = math.nan
LAWS = {  # every law on (y, seed=, test=, min_size=), with sound values of its own
    "iid": partial(partition.iid, clients=4),
    "dirichlet": partial(partition.dirichlet, clients=4, alpha=0.5),
    "dirichlet_per_class": partial(partition.dirichlet_per_class, clients=4, alpha=0.5),
    "n_class": partial(partition.n_class, clients=4, n=3),
    "cluster_dirichlet": partial(partition.cluster_dirichlet, clients=4, clusters=2),
    "cluster_n_class": partial(
        partition.cluster_n_class, clients=4, clusters=2, n=3, m=2
    ),
    "by_class_sets": partial(
        partition.by_class_sets, sizes=[2, 2], class_sets=[[0, 1], [2]]
    ),
    "by_user": partial(partition.by_user, users=np.arange(len(Y)) % 5),
    "mixed": partial(partition.mixed, groups=[2, 2], alphas=[0.5, 10.0], size=10),
}
every_law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)


# What all laws share.


@every_law
@pytest.mark.parametrize("seed", [-1, 1.5, NAN, "a", None, True, [1, 2]])
def test_seed(law, seed):
    with pytest.raises(ValueError, match=r"^seed = .*: need an integer >= 0$"):
        law(Y, seed=seed)


@every_law
@pytest.mark.parametrize("test", [-0.1, 1, 1.5, NAN, math.inf, "a", None, True])
def test_share_for_testing(law, test):
    with pytest.raises(ValueError, match=r"^test = .*: need a finite number >= 0"):
        law(Y, test=test)


@every_law
@pytest.mark.parametrize("min_size", [0, -1, 2.5, NAN, "a", None, True, 10**12])
def test_min_size(law, min_size):
    with pytest.raises(ValueError, match=r"^min_size = .*: need an integer from 1"):
        law(Y, min_size=min_size)


@every_law
@pytest.mark.parametrize(
    "y, message",
    [
        (np.full(200, 10**12), "below 100,000, got 1000000000000"),
        (np.array([0, 1] * 99 + [2, 10**5]), "below 100,000, got 100000"),
        (Y - 1, "must be >= 0, got -1"),
        (Y / 2, "integers, got shape .* of float64"),
        (Y.astype(str), "integers"),
        (Y.reshape(2, -1), "non-empty vector"),
        (Y[:0], "non-empty vector"),
        (None, "non-empty vector"),
    ],
)
def test_labels(law, y, message):
    with pytest.raises(ValueError, match=message):
        law(y)


COUNTS = [0, -1, 2.5, NAN, "a", None, True, 10**12]


@pytest.mark.parametrize("clients", COUNTS)
@pytest.mark.parametrize("name", [name for name in LAWS if "client" in f"{LAWS[name]}"])
def test_clients(name, clients):
    with pytest.raises(ValueError, match="^clients = .*: need an integer from 1"):
        LAWS[name](Y, clients=clients)


# What each law has of its own.

ALPHAS = [-1, NAN, "a", None, True, -math.inf]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_alpha(alpha):
    for name in ("dirichlet", "dirichlet_per_class"):
        with pytest.raises(ValueError, match=r"^alpha = .*: need a number >= 0$"):
            LAWS[name](Y, alpha=alpha)
    for bad in ([alpha, 1.0], [1.0, alpha]):
        for name in ("mixed", "cluster_dirichlet"):
            with pytest.raises(ValueError, match=r"^alphas = .* a number >= 0$"):
                LAWS[name](Y, alphas=bad)


@pytest.mark.parametrize("alphas", [(0.1,), (0.1, 1, 2), ()])
def test_alphas_of_clusters_are_two(alphas):
    with pytest.raises(ValueError, match="^alphas = .*: need two"):
        LAWS["cluster_dirichlet"](Y, alphas=alphas)


@pytest.mark.parametrize(
    "name, argument",
    [
        ("cluster_dirichlet", "alphas"),
        ("mixed", "alphas"),
        ("mixed", "groups"),
        ("by_class_sets", "sizes"),
        ("by_class_sets", "class_sets"),
    ],
)
@pytest.mark.parametrize("value", [3, 0.5, "ab", None, {"a": 1}])
def test_lists_are_lists(name, argument, value):
    with pytest.raises(ValueError, match=f"^{argument} = .*: need a list"):
        LAWS[name](Y, **{argument: value})


@pytest.mark.parametrize("size", [2.5, -3, 0, NAN, "a", None, True])
def test_mixed_size(size):
    with pytest.raises(ValueError, match="^size = .*: need an integer >= 1"):
        LAWS["mixed"](Y, size=size)


def test_mixed_size_as_large_as_the_pool():
    with pytest.raises(ValueError, match="samples are left for a client of"):
        LAWS["mixed"](Y, size=10**12)


@pytest.mark.parametrize("groups", [[-1, 3], [1.5, 2], [NAN, 2], ["a", 2], [True, 2]])
def test_mixed_groups(groups):
    with pytest.raises(ValueError, match="^groups = .* an integer >= 0"):
        LAWS["mixed"](Y, groups=groups)


@pytest.mark.parametrize("groups", [[0, 0], [10**12, 1]])
def test_mixed_number_of_clients(groups):
    with pytest.raises(ValueError, match="^clients = .*: need an integer from 1"):
        LAWS["mixed"](Y, groups=groups)


def test_mixed_needs_an_alpha_per_group():
    with pytest.raises(ValueError, match="2 groups and 3 alphas"):
        LAWS["mixed"](Y, alphas=[1, 2, 3])
    with pytest.raises(ValueError, match="shared = 'no': need True or False"):
        LAWS["mixed"](Y, shared="no")


@pytest.mark.parametrize("sizes", [[0, 1], [1.5, 1], [-1, 1], ["a", 1], [True, 1]])
def test_sizes_of_class_sets(sizes):
    with pytest.raises(ValueError, match="^sizes = .* an integer >= 1"):
        LAWS["by_class_sets"](Y, sizes=sizes)


@pytest.mark.parametrize("sets", [[["a"], [0]], [[0.5], [0]], [[-1], [0]], [0, 1]])
def test_class_sets(sets):
    with pytest.raises(ValueError, match="^class_sets = .* integers >= 0"):
        LAWS["by_class_sets"](Y, class_sets=sets)


@pytest.mark.parametrize("value", COUNTS)
@pytest.mark.parametrize(
    "name, argument",
    [
        ("n_class", "n"),
        ("cluster_n_class", "n"),
        ("cluster_n_class", "m"),
        ("cluster_n_class", "clusters"),
        ("cluster_dirichlet", "clusters"),
    ],
)
def test_counts(name, argument, value):
    with pytest.raises(ValueError, match=f"^{argument} = .*: need an integer from 1"):
        LAWS[name](Y, **{argument: value})


@pytest.mark.parametrize(
    "users",
    [
        np.full(len(Y), NAN),
        np.where(Y == 3, NAN, Y),
        np.where(Y == 3, math.inf, Y),
        np.array([None, *"a" * 199], dtype=object),
        np.array([1, *"a" * 199], dtype=object),
        np.zeros(len(Y), complex),
    ],
)
def test_users_are_known(users):
    with pytest.raises(ValueError, match="users must be numbers or texts"):
        partition.by_user(Y, users)


@pytest.mark.parametrize("users", [Y[:-1], Y.reshape(2, -1), 3, None])
def test_users_own_a_sample_each(users):
    with pytest.raises(ValueError, match="users of shape"):
        partition.by_user(Y, users)


def test_users_may_be_numbers_or_texts():
    texts = np.array([f"{user:02}" for user in Y])
    forms = [Y, Y.astype(float), Y.tolist(), texts, texts.astype(object)]
    found = [partition.by_user(Y, users, seed=1) for users in forms]
    for part in found:
        assert all(map(np.array_equal, part.train, found[0].train))


@pytest.mark.parametrize("value", [-1, 1.5, "a", None])
def test_laws_around_laws(value):
    law = LAWS["iid"]
    with pytest.raises(ValueError, match="^samples = "):
        partition.subset(Y, law, value)
    with pytest.raises(ValueError, match="^least = "):
        partition.refill(Y, law, value)
    for around in (partial(partition.subset, samples=100), partition.refill):
        with pytest.raises(ValueError, match="^seed = "):
            around(Y, law=law, seed=value)
    with pytest.raises(ValueError, match="^seed = "):
        partition.match_test(law(Y), Y, Y, seed=value)
    with pytest.raises(ValueError, match="^classes = "):
        partition.class_counts([[0]], Y, value)


def test_whole_numbers_of_numpy_are_welcome():
    for name, law in LAWS.items():
        options = {"seed": np.int64(3), "test": np.float32(0.25)}
        part = law(Y, min_size=np.uint8(2), **options)
        same = law(Y, min_size=2, seed=3, test=0.25)
        assert all(map(np.array_equal, part.train, same.train)), name


# Names of data sets.


@pytest.mark.parametrize("name", [None, 5, 2.5, b"digits", ["digits"], data])
def test_a_name_is_a_text(name):
    for load in (data.load, data.generate, data.published):
        with pytest.raises(ValueError, match="need the name of a data set"):
            load(name)
    for law in (data.as_generated, data.as_published):
        with pytest.raises(ValueError, match="need the name of a data set"):
            law(Y, name)


@pytest.mark.parametrize(
    "name",
    ["x" * 10**6, "synthetic(" * 10**5, "synthetic(" + "-" * 10**5 + "1)"],
)
def test_a_name_that_is_very_long(name):
    for load in (data.load, data.generate, data.domains):
        with pytest.raises(ValueError, match="at most 1,000 characters") as error:
            load(name)
        assert len(f"{error.value}") < 200


@pytest.mark.parametrize(
    "name",
    [
        "",
        "(",
        "digits()",
        "synthetic(" + "-" * 900 + "1)",
        "synthetic(" + "(" * 400 + "1" + ")" * 400 + ")",
        "synthetic(" * 90,
        "synthetic.real()",
        "synthetic(1)(2)",
        "synthetic(**{'seed': 1})",
        "synthetic(alpha=alpha)",
        "synthetic(seed=1, seed=2)",
        "synthetic(\0)",
        "synthetic() + 1",
        "landmarks(side=0)",
        "landmarks(side=True)",
        "landmarks(side='a')",
        "landmarks(1, 2)",
        "landmarks(size=3)",
        "landmarks(",
    ],
)
def test_a_name_that_names_nothing(name):
    with pytest.raises(ValueError):
        data.load(name)


@pytest.mark.parametrize("root", [5, ["a"], 2.5, b"folder"])
def test_a_folder_is_a_path(root):
    with pytest.raises(ValueError, match=r"^load\(root=.*\): need None or a folder$"):
        data.load("mnist", root)


# Drawn data.

NUMBERS = [NAN, "a", None, -1, True, math.inf]
COUNTING = [0, -1, 2.5, NAN, "a", True]


def bad(function, **arguments):
    for argument, values in arguments.items():
        for value in values:
            yield pytest.param(
                function, argument, value, id=f"{function.__name__}-{argument}-{value}"
            )


@pytest.mark.parametrize(
    "function, argument, value",
    [
        *bad(
            data.synthetic,
            alpha=NUMBERS,
            beta=NUMBERS,
            clients=[*COUNTING, None],
            samples=COUNTING,
            test=[*NUMBERS, 1, 2.0],
            shared=[0, 1, None, "a"],
            seed=[-1, 1.5, None, "a", True],
        ),
        *bad(
            data.regression,
            clusters=[*COUNTING, None],
            intercept=[0, 1, None, "a"],
            features=[*COUNTING, None],
            clients=[*COUNTING, None],
            samples=[*COUNTING, None],
            tests=[*COUNTING, None],
            x_mean=[0, None, "ab", (1,), (0, 1, 2), (0, NAN), (1, 0), (0, math.inf)],
            x_std=NUMBERS,
            theta_mean=[0, None, "ab", (1,), (0, 1, 2), (0, NAN), (1, 0)],
            theta_std=NUMBERS,
            seed=[-1, 1.5, None, "a", True],
        ),
        *bad(
            data.domains,
            base=[None, 5],
            clients=[3, None, "abc", (1, 2), (1, 2, -1), (0, 0, 0), (1.5, 1, 1)],
            size=[*COUNTING, None, 1],
            noise=NUMBERS,
            blur=NUMBERS,
            alpha=[NAN, "a", None, -1, True],
            test=[*NUMBERS, 1, 2.0],
            official=[0, 1, None, "a"],
            anew=[0, 1, None, "a"],
            seed=[-1, 1.5, None, "a", True],
        ),
    ],
)
def test_arguments_of_drawn_data(function, argument, value):
    sound = {"base": "digits", "size": 20} if function is data.domains else {}
    with pytest.raises(ValueError) as error:
        function(**sound | {argument: value})
    assert f"{error.value}".startswith(
        f"{function.__name__}({argument}={value!r}): need "
    )


def test_domains_are_of_images():
    with pytest.raises(ValueError, match="need a data set of images"):
        data.domains("synthetic(clients=2)", size=20)


def test_zero_is_not_none():
    with pytest.raises(ValueError, match=r"samples=0\): need None or an integer >= 1"):
        data.load("synthetic(samples=0)")
    parts = data.synthetic(clients=3, samples=10, test=0)[1]
    assert [len(own) for own in parts.test] == [0, 0, 0]


def test_smallest_sound_values():
    dataset, parts = data.synthetic(0, 0, clients=1, samples=1)
    assert len(dataset.x) == 1 and len(parts.train[0]) == 1
    smallest = {"features": 1, "samples": 1, "tests": 1, "x_std": 0, "theta_std": 0}
    dataset, _ = data.regression(1, clients=1, x_mean=(2, 2), **smallest)
    assert dataset.x.tolist() == [[2], [2]]
    dataset, _ = data.domains("digits", (1, 1, 1), 20, noise=0, blur=0)
    assert np.isfinite(dataset.x).all()


@pytest.mark.parametrize(
    "name, expected",
    [
        ("regression(2, True, clients=4, seed=3)", "6f848dec2916679c"),
        (
            "regression(3, features=2, clients=4, samples=5, tests=6, "
            "x_mean=(0, 2), seed=1)",
            "40e1376542c567ea",
        ),
        ("synthetic(1, 0.5, clients=4, samples=None)", "cb9c5765c81ab4f2"),
        (
            "synthetic(0, 2, clients=3, samples=30, test=0.5, shared=True, seed=2)",
            "d10357859fe30983",
        ),
        ("domains('digits', (2, 2, 1), 40, seed=1)", "67aafb92881f31ea"),
    ],
)
def test_drawn_data_keep_their_numbers(name, expected):
    """Recorded runs stand on them: nobody moves a law by accident."""
    dataset, _ = data.generate(name)
    content = dataset.x.tobytes() + dataset.y.tobytes()
    assert hashlib.sha256(content).hexdigest()[:16] == expected
