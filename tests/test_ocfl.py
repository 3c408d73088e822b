"""OCFL, FL+HC, their clusterers: slow twins, identities, tiny cases with known answers;
then the authors' archive.
"""

import gzip
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fednb import clustering, data, metrics, models, partition, reference
from fednb.federation import Federation
from fednb.methods import OCFL, BriggsHC, FairAvg, FedAvg
from fednb.methods.ocfl import displacement, temperature
from fednb.papers.ocfl import archive
from fednb.params import mean_by
from fednb.similarity import cosine, cosine_distance
from fednb.training import Local

from .conftest import federation

quick = settings(deadline=None, max_examples=50)
CLUSTERERS = ("kmeans", "affinity", "meanshift", "hdbscan")
CLASS_SETS = ([0, 1, 2, 3], [4, 5, 6], [7, 8, 9])
SIZES = (3, 7, 5)  # OCFL's imbalanced clusters of 15 clients
rows = st.tuples(st.integers(2, 7), st.integers(1, 4)).flatmap(
    lambda s: arrays(float, s, elements=st.integers(-9, 9).map(lambda i: i / 4))
)


def digits(seed=0, epochs=2, sizes=SIZES) -> Federation:
    """Fifteen clients in three hidden clusters of different classes, on real digits."""
    ds = data.load("digits")
    parts = partition.by_class_sets(ds.y[: ds.n_train], sizes, CLASS_SETS, seed=seed)
    local = Local(lr=0.1, batch_size=16, epochs=epochs)
    return Federation(
        ds, parts, lambda: models.mlp(64, (16,), 10), local=local, seed=seed
    )


def states(method, fed, rounds):
    """The state after each round."""
    state = method.init(fed)
    for t in range(rounds):
        fed.t = t
        state = method.step(state, fed, t)
        yield state


def last(method, fed, rounds):
    return list(states(method, fed, rounds))[-1]


def directions(sizes=SIZES, noise=0.5, seed=0):
    """Updates of clients whose clusters pull in different directions."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(len(sizes), 60))
    return np.repeat(centres, sizes, axis=0) + noise * rng.normal(size=(sum(sizes), 60))


# --- temperature ----------------------------------------------------------------------


@quick
@given(rows, st.sampled_from([1.0, 1.5, 2.0, 4.0]))
def test_temperature_agrees_with_its_loop_and_keeps_its_bound(x, p):
    Gamma = cosine_distance(x)
    T = float(temperature(Gamma, p))
    assert pytest.approx(reference.temperature(Gamma.tolist(), p), abs=1e-9) == T
    assert 0 <= T <= 1
    n = len(x)
    if (
        np.abs(x).sum(1) > 0
    ).all():  # a zero update points nowhere, and the bound is about directions
        assert float(temperature(Gamma)) <= np.sqrt(n / (2 * (n - 1))) + 1e-9


@pytest.mark.parametrize("n", [2, 4, 10])
def test_two_opposite_camps_are_as_hot_as_can_be(n):
    camps = torch.tensor([[1.0, 2.0], [-1.0, -2.0]], dtype=torch.float64).repeat(
        n // 2, 1
    )
    assert float(temperature(cosine_distance(camps))) == pytest.approx(
        np.sqrt(n / (2 * (n - 1)))
    )


def test_temperature_at_its_limits():
    Gamma = cosine_distance(directions())
    assert temperature(torch.zeros(1, 1)) == 0 and temperature(torch.zeros(3, 3)) == 0
    assert float(temperature(Gamma, p=np.inf)) == float(Gamma.max() / 2)
    assert float(temperature(Gamma, p=5000)) == pytest.approx(
        float(Gamma.max() / 2), rel=1e-2
    )  # no underflow
    T = [float(temperature(Gamma, p)) for p in (1, 2, 3, 8)]
    assert all(a <= b for a, b in pairwise(T))  # power means grow with p


# --- clusterers -----------------------------------------------------------------------


@pytest.mark.parametrize("clusterer", CLUSTERERS)
def test_clusterers_find_clear_clusters_in_any_order(clusterer):
    x, truth = directions(noise=0.3), np.repeat(range(3), SIZES)
    perm = np.random.default_rng(1).permutation(15)
    assert (
        clustering.by_distance(cosine_distance(x), clusterer).tolist() == truth.tolist()
    )
    moved = clustering.by_distance(cosine_distance(x[perm]), clusterer, seed=5)
    assert metrics.adjusted_rand(truth[perm], moved) == 1


@pytest.mark.parametrize("clusterer", CLUSTERERS)
@pytest.mark.parametrize("K", [1, 2, 3, 5])
def test_clusterers_take_few_and_equal_clients(clusterer, K):
    D = cosine_distance(directions(sizes=(K,)))
    labels = clustering.by_distance(D, clusterer)
    assert labels.shape == (K,) and labels.dtype == torch.int64 and labels[0] == 0
    assert clustering.by_distance(torch.zeros(K, K), clusterer).tolist() == [0] * K
    assert torch.equal(clustering.by_distance(D.numpy(), clusterer), labels)


def test_affinity_propagation_of_distances_chooses_strangers():
    D, truth = cosine_distance(directions(noise=0.3)), np.repeat(range(3), SIZES)
    assert (
        metrics.adjusted_rand(
            truth, clustering.by_distance(D, "affinity", swapped=True)
        )
        < 0.4
    )
    labels = clustering.affinity_propagation(
        cosine(directions(noise=0.3))
    )  # cosines do as well as -D
    assert metrics.adjusted_rand(truth, labels) == 1


def test_mean_shift_of_few_rows_is_not_all_alone():
    x = np.array([[0.0, 0], [0, 0.125], [5, 5], [5, 5.125], [0, 8], [0.125, 8]])
    assert clustering.mean_shift(x).tolist() == [
        0,
        0,
        1,
        1,
        2,
        2,
    ]  # scikit-learn's own bandwidth would be 0


def test_noise_of_hdbscan():
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [
            rng.normal(size=(6, 2)),
            rng.normal(size=(6, 2)) + 40,
            [[-60, -60], [120, 120]],
        ]
    )
    D = np.sqrt(reference.sqdist(x))
    halves = [0] * 6 + [1] * 6
    assert clustering.hdbscan(D).tolist() == [*halves, 0, 1]
    assert clustering.hdbscan(D, noise="together").tolist() == [*halves, 2, 2]
    assert clustering.hdbscan(D, noise="alone").tolist() == [*halves, 2, 3]
    assert clustering.hdbscan(D, smallest=15).tolist() == [0] * 14
    with pytest.raises(ValueError, match="noise='drop'"):
        clustering.hdbscan(D, noise="drop")


@quick
@given(rows, st.floats(0.05, 1.9), st.sampled_from(["average", "complete", "single"]))
def test_agglomerative_agrees_with_its_loop(x, threshold, linkage):
    D = np.sqrt(
        reference.sqdist(x + 1e-3 * np.random.default_rng(0).normal(size=x.shape))
    )  # no ties
    assert clustering.agglomerative(
        D, threshold, linkage
    ).tolist() == reference.agglomerative(D, threshold, linkage)


def test_clusterers_refuse_what_is_no_matrix_of_pairs():
    with pytest.raises(ValueError, match="clusterer='dbscan'"):
        clustering.by_distance(torch.zeros(2, 2), "dbscan")
    with pytest.raises(ValueError, match="the same both ways"):
        clustering.by_distance(torch.tensor([[0.0, 1.0], [2.0, 0.0]]), "hdbscan")


# --- OCFL -----------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 2, 4])
def test_the_split_comes_when_the_moving_average_rises(window):
    """A run that never splits tells the temperatures; the loop says when; the method
    must do so just then.
    """

    def make():
        return federation(
            sizes=(9, 14, 7, 20, 11, 8), local=Local(lr=0.3, batch_size=5), seed=3
        )

    T = [float(state.temperature[-1]) for state in states(OCFL(at=0), make(), 12)]
    when = reference.first_rise(T, window)
    assert when is not None and when > window
    done = [bool(state.done) for state in states(OCFL(window=window), make(), when + 1)]
    assert done == [False] * (when - 1) + [True, True]


@quick
@given(st.lists(st.integers(0, 20), min_size=1, max_size=12), st.integers(1, 4))
def test_a_moving_average_rises_when_its_newest_exceeds_what_it_drops(T, window):
    by_ends = [t + 1 for t in range(window, len(T)) if T[t] > T[t - window]]
    assert reference.first_rise(T, window) == (by_ends or [None])[0]


def test_at_a_temperature_that_stands_still_only_the_printed_rule_splits():
    for method, splits in ((OCFL.as_printed(), True), (OCFL(), False)):
        fed = federation(sizes=(12,))  # one client: the temperature is 0 in every round
        assert bool(last(method, fed, 2).done) is splits


@pytest.mark.parametrize("clusterer", ["kmeans", "affinity", "hdbscan"])
@pytest.mark.parametrize("seed", [0, 1])
def test_ocfl_finds_the_hidden_clusters(clusterer, seed):
    fed = digits(seed)
    state = last(OCFL(clusterer), fed, 4)
    assert state.done and metrics.adjusted_rand(fed.truth.labels, state.labels) == 1
    assert state.theta.shape == (
        3,
        fed.layout.D,
    )  # nobody was away, so the common model is gone


def test_mean_shift_tears_no_cluster_across():
    fed = digits()
    assert (
        metrics.homogeneity(fed.truth.labels, last(OCFL("meanshift"), fed, 4).labels)
        == 1
    )


def test_affinity_propagation_as_released_is_wrong_by_construction():
    fed = digits()
    state = last(OCFL.as_released("affinity"), fed, 4)
    assert state.done and metrics.adjusted_rand(fed.truth.labels, state.labels) < 0.4


def test_without_a_split_it_is_fedavg_or_fairavg():
    for method, twin in ((OCFL(at=0), FedAvg()), (OCFL.as_printed(at=0), FairAvg())):
        a, b = (
            last(m, federation("cnn_bn", dtype=torch.float64), 3)
            for m in (method, twin)
        )
        torch.testing.assert_close(a.theta, b.theta, rtol=0, atol=1e-12)
    same = (
        last(OCFL(at=0, sampled=2), federation(), 3),
        last(FedAvg(sampled=2), federation(), 3),
    )
    assert torch.equal(same[0].theta, same[1].theta)


@pytest.mark.parametrize("at", [1, 3])
def test_the_round_of_the_split_can_be_given_the_first_included(at):
    counts = [
        len(state.labels.unique())
        for state in states(OCFL("kmeans", at=at), digits(), 4)
    ]
    assert counts == [1] * (at - 1) + [3] * (5 - at)


def test_the_split_clusters_and_averages_the_updates_of_its_own_round():
    method, fed, twin = OCFL("kmeans", at=1), digits(), digits()
    state = next(states(method, fed, 1))
    up = twin.train(twin.start()[0])
    Gamma = cosine_distance(up.theta - twin.start())
    labels = clustering.by_distance(Gamma, "kmeans", k=3, seed=twin.draw())
    assert torch.equal(state.labels, labels)
    assert float(state.temperature[-1]) == float(temperature(Gamma))
    torch.testing.assert_close(
        state.theta, mean_by(up.theta, twin.n, labels, old=twin.start().repeat(3, 1))
    )


def test_the_clusters_stay_for_good():
    labels = [state.labels for state in states(OCFL(at=1), digits(), 4)]
    assert all(torch.equal(now, labels[0]) for now in labels)


def test_who_was_away_is_assigned_at_its_first_turn():
    fed = digits()
    before, away = None, []
    for state in states(OCFL("kmeans", sampled=0.5, at=2), fed, 14):
        if state.done:
            C = len(state.centres)
            new = state.labels == C  # served by the last common model
            away.append(int(new.sum()))
            assert state.theta.shape == (C + 1, fed.layout.D)
            if before is not None:
                known = before.labels < C
                assert torch.equal(
                    state.labels[known], before.labels[known]
                )  # once assigned, for good
                assert torch.equal(
                    state.theta[C], before.theta[C]
                )  # the common model no longer changes
            before = state
    assert away[0] == 7 and away[-1] == 0 and all(a >= b for a, b in pairwise(away))
    assert metrics.adjusted_rand(fed.truth.labels, before.labels) == 1


def test_the_first_update_of_a_newcomer_is_not_averaged():
    method, fed = OCFL("kmeans", sampled=0.5, at=1), digits()
    state = next(states(method, fed, 1))
    shot, C = fed.snapshot(), len(state.centres)
    S = fed.sample(0.5)
    fresh = state.labels[S] == C
    assert fresh.any() and not fresh.all()
    up = fed.train(state.theta[state.labels[S]], S)
    old = S[~fresh]
    expected = mean_by(up.theta[~fresh], fed.n[old], state.labels[old], old=state.theta)
    fed.restore(shot)
    torch.testing.assert_close(method.step(state, fed, 1).theta, expected)


def test_the_whole_state_counts_batches():
    """BatchNorm's counters are large and alike, so that a cosine which sees them finds
    everybody alike.
    """
    fed = federation(
        "cnn_bn", sizes=(50, 50, 50), local=Local(lr=0.01, batch_size=5, epochs=2)
    )
    theta = fed.start()[0]
    up = fed.train(theta)
    slim, full = (
        displacement(fed, theta, up, what) for what in ("parameters", "state")
    )
    assert slim.shape == (3, fed.layout.P) and full.shape == (
        3,
        fed.layout.D + 2,
    )  # two BatchNorm layers
    assert torch.equal(full[:, : fed.layout.P], slim) and (full[:, -2:] == 20).all()
    T = [float(temperature(cosine_distance(x))) for x in (slim, full)]
    assert T[1] < 0.05 * T[0]


def test_the_state_of_clients_with_fewer_steps():
    up = SimpleNamespace(
        theta=torch.ones(2, 5), losses=torch.tensor([[1.0, 2.0], [1.0, torch.nan]])
    )
    layout = SimpleNamespace(P=3, names=("w", "bn.running_mean", "bn.running_var"))
    full = displacement(SimpleNamespace(layout=layout), torch.zeros(2, 5), up, "state")
    assert full[:, -1].tolist() == [2, 1] and full.shape == (2, 6)


def test_presets_and_checks():
    assert OCFL.corrected() == OCFL()
    released = OCFL.as_released("affinity", sampled=0.5)
    assert (
        released.swapped
        and released.update == "state"
        and released.noise == "together"
        and released.strict
    )
    assert not OCFL.as_printed().strict and OCFL.as_printed().update == "parameters"
    for wrong in (
        {"clusterer": "dbscan"},
        {"update": "all"},
        {"aggregation": "x"},
        {"noise": "drop"},
        {"window": 0},
    ):
        with pytest.raises(ValueError, match="OCFL"):
            OCFL(**wrong)


# --- FL+HC ----------------------------------------------------------------------------


def test_fl_hc_is_fedavg_before_its_split_and_finds_the_clusters_at_it():
    fed, twin = digits(), digits()
    run = list(states(BriggsHC(warmup=2), fed, 3))
    assert torch.equal(run[1].theta, last(FedAvg(), twin, 2).theta)
    assert metrics.adjusted_rand(fed.truth.labels, run[2].labels) == 1


def test_fl_hc_asks_everybody_at_the_split():
    fed, updates = digits(), []
    for _ in states(BriggsHC(warmup=1, sampled=4), fed, 3):
        updates.append(fed.meter.updates)
    assert updates == [4, 19, 23]


def test_fl_hc_as_released_merges_the_least_alike():
    """With balanced clusters of five its adjusted Rand index is -0.24; as 30 of 50
    rounds the printed -0.14.
    """
    fed = digits(sizes=(5, 5, 5))
    state = last(BriggsHC.as_released(warmup=2), fed, 3)
    found = metrics.adjusted_rand(fed.truth.labels, state.labels)
    assert found == pytest.approx(-0.24, abs=0.005)
    row = ("FMNIST", 15, "non-overlapping", "balanced", "BCL")
    assert 30 / 50 * found == pytest.approx(
        archive.printed().loc[row, "rand"], abs=0.005
    )


def test_fl_hc_as_released_leaves_everybody_alone_where_all_are_alike():
    fed = federation(
        "cnn_bn", sizes=(50, 50, 50), local=Local(lr=0.01, batch_size=5, epochs=2)
    )
    assert last(BriggsHC.as_released(warmup=0), fed, 1).labels.tolist() == [
        0,
        1,
        2,
    ]  # BatchNorm's counters again
    fed = federation(
        "cnn_bn", sizes=(50, 50, 50), local=Local(lr=0.01, batch_size=5, epochs=2)
    )
    assert last(BriggsHC(0, 2.1), fed, 1).labels.tolist() == [
        0,
        0,
        0,
    ]  # no cosine distance exceeds 2


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_fl_hc_with_other_metrics(metric):
    x = torch.as_tensor(directions(noise=0.3))
    D = BriggsHC(metric=metric).distances(x).numpy()
    plain = [
        [
            np.linalg.norm(a - b, ord=1 if metric == "manhattan" else 2)
            for a in x.numpy()
        ]
        for b in x.numpy()
    ]
    np.testing.assert_allclose(D, plain, atol=1e-6)
    assert (
        metrics.adjusted_rand(
            np.repeat(range(3), SIZES), clustering.agglomerative(D, np.median(D))
        )
        == 1
    )


def test_fl_hc_checks():
    for wrong in (
        {"metric": "l3"},
        {"linkage": "ward"},
        {"swapped": True, "metric": "euclidean"},
    ):
        with pytest.raises(ValueError, match="BriggsHC"):
            BriggsHC(**wrong)


# --- the authors' archive -------------------------------------------------------------


def test_the_printed_tables_are_whole():
    table = archive.printed()
    assert len(table) == 240 and table.index.is_unique
    assert set(table.index.get_level_values("algorithm")) == set(
        archive.ALGORITHMS.values()
    ) - {"BNC"}
    hdb = table.xs("OCFL-HDB", level="algorithm")
    assert (
        hdb["ami"] == hdb["rand"]
    ).all()  # the paper itself shows that the two columns are one
    others = table.drop("OCFL-HDB", level="algorithm").dropna()
    assert (others["ami"] != others["rand"]).any()


def tiny_archive(folder):
    """Three runs of 60 rounds: affinity only renames its one cluster in round 3,
    HDBSCAN finds the truth in round 11, k-means two of the three clusters; a second
    data set has these two the other way round.
    """
    lines = ["dataset,overlap,balance,clients,algorithm,round,client,cluster"]
    right, coarse = (
        ["ABC"[(k >= 3) + (k >= 10)] for k in range(15)],
        ["AB"[k >= 3] for k in range(15)],
    )
    runs = {
        ("MNIST", "affinity"): ["A"] * 15,
        ("MNIST", "HDBSCAN"): right,
        ("MNIST", "kmeans"): coarse,
    }
    runs |= {("FMNIST", "HDBSCAN"): coarse, ("FMNIST", "kmeans"): right}
    for (dataset, algorithm), clusters in runs.items():
        for t in range(1, 61):
            for k in range(15):
                name = (
                    f"A{clusters[k]}"
                    if t > (2 if algorithm == "affinity" else 10)
                    else "A"
                )
                lines.append(
                    f"{dataset},overlaping,imbalanced,15,{algorithm},{t},{k},{name}"
                )
    with gzip.open(folder / "cluster_maps.csv.gz", "wt") as f:
        f.write("\n".join(lines) + "\n")
    return folder


def test_the_rules_on_a_tiny_archive(tmp_path):
    maps = archive.cluster_maps(tiny_archive(tmp_path))
    assert {names.shape for names in maps.values()} == {(60, 15)}
    where = ("MNIST", 15, "overlapping", "imbalanced")
    printed, corrected = archive.as_printed(maps), archive.corrected(maps)
    assert printed.loc[(*where, "OCFL-HDB")].tolist() == pytest.approx(
        [0.8, 0.8, 0.8, 11]
    )  # 40 of the first 50
    assert printed.loc[(*where, "OCFL-AFF")].isna().tolist() == [
        True,
        True,
        True,
        False,
    ]  # a dash, yet a round
    assert printed.loc[(*where, "OCFL-AFF"), "round"] == 3
    coarse = [
        (name, *where[1:], algorithm)
        for name, algorithm in (("MNIST", "OCFL-KM"), ("FMNIST", "OCFL-HDB"))
    ]
    assert (
        printed.loc[coarse[0], "rand"]
        == printed.loc[coarse[1], "rand"]
        == printed.loc[coarse[1], "ami"]
    )
    assert (
        printed.loc[coarse[0], "ami"] > printed.loc[coarse[1], "ami"] + 0.01
    )  # one clustering, two columns AMI
    assert corrected.loc[coarse[0], "ami"] == corrected.loc[coarse[1], "ami"]
    assert corrected.loc[coarse[0], "final_completeness"] == pytest.approx(1)
    assert corrected.loc[coarse[0], "final_homogeneity"] < 0.9
    hdb, affinity = (corrected.loc[(*where, a)] for a in ("OCFL-HDB", "OCFL-AFF"))
    assert (
        hdb["ari"] == pytest.approx(50 / 60)
        and hdb["final_completeness"] == pytest.approx(1)
        and hdb["clusters"] == 3
    )
    assert (
        affinity["final_completeness"] == 1
        and affinity["final_homogeneity"] == 0
        and np.isnan(affinity["round"])
    )


def test_where_the_archive_is_looked_for(tmp_path, monkeypatch):
    monkeypatch.delenv("FEDNB_DATA", raising=False)
    monkeypatch.delenv("FEDNB_OCFL", raising=False)
    with pytest.raises(FileNotFoundError, match="Set FEDNB_OCFL"):
        archive.folder()
    beside = tmp_path / "reference" / "ocfl"
    beside.mkdir(parents=True)
    tiny_archive(beside)
    monkeypatch.setenv("FEDNB_DATA", str(tmp_path / "data"))
    assert archive.folder() == beside
    monkeypatch.setenv("FEDNB_OCFL", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"cluster_maps\.csv\.gz"):
        archive.folder()
    with pytest.raises(ValueError, match="choose from cluster_maps"):
        archive.read("losses", beside)


@pytest.fixture(scope="module", name="maps")
def maps_fixture():
    try:
        return archive.cluster_maps()
    except FileNotFoundError as error:
        pytest.skip(f"the authors' archive is not here: {error}")


def test_the_archive_gives_the_printed_tables(maps):
    ours, theirs = archive.as_printed(maps), archive.printed()
    columns = ["rand", "ami", "com", "round"]
    assert ours.index.equals(theirs.index)
    assert (ours.isna() == theirs[columns].isna()).all(axis=None)  # each dash is a dash
    gap = (ours - theirs[columns]).abs().max()
    assert (gap[["rand", "ami", "com"]] < 0.01).all() and gap["round"] == 0


def test_corrections_matter_in_the_archive(maps):
    """CIFAR-10 with 15 clients, non-overlapping, balanced: true AMI 0.75 in the counted
    rounds, printed 0.73.
    """
    run = archive.Run("CIFAR10", 15, "non-overlapping", "balanced", "OCFL-HDB")
    true = archive.scores(maps[run], archive.truth(run))["ami"][
        : archive.COUNTED
    ].mean()
    assert true == pytest.approx(0.75, abs=0.005)
    assert archive.printed().loc[run, "ami"] == 0.73
    alone = archive.corrected(
        {
            run: m
            for run, m in maps.items()
            if run[:2] == ("CIFAR10", 15) and run[4] == "BCL"
        }
    )
    assert (
        len(alone) == 4
        and (alone["clusters"] == 15).all()
        and (alone["rounds"] == 80).all()
    )
    assert (
        np.allclose(alone["final_homogeneity"], 1)
        and (alone["final_completeness"] < 0.5).all()
    )  # printed as COM
