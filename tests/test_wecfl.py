"""WeCFL's methods, theory and tasks: identities, tiny cases by hand, and the paper's
inequalities.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fednb import data, models, partition, reference, store, tables
from fednb.claims import mean_of
from fednb.clustering import kmeans_objective
from fednb.experiment import measure, run
from fednb.federation import Federation
from fednb.identity import describe
from fednb.methods import IFCA, Ensemble, FedAvg, FedProx, FeSEM, FixedClusters, WeCFL
from fednb.methods.ifca import train_aliased
from fednb.methods.wecfl import importance, represent
from fednb.papers import common, wecfl
from fednb.params import Layout
from fednb.partition import Partition, by_class_sets, iid, match_test, refill, subset
from fednb.similarity import clusterability
from fednb.store import results
from fednb.sweeps import Task
from fednb.training import Local

from .conftest import NETWORKS, blobs, federation, held, ragged
from .test_data import REAL
from .test_methods import SIZES, go, same

KEPT = Local(lr=0.05, batch_size=5, momentum=0.9, keep_state=True)


# --- identities -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "local", [Local(lr=0.05, batch_size=5), KEPT], ids=["plain", "momentum kept"]
)
@pytest.mark.parametrize(
    ("a", "b"),
    [
        (WeCFL(1), FedAvg()),
        (WeCFL.as_printed(1), FedAvg()),
        (FeSEM(1), FedAvg()),
        (IFCA(1, sampled=4), FedAvg(sampled=4)),
        (Ensemble(1, sampled=4), FedAvg(sampled=4)),
        (Ensemble(1, mu=0.5), FedProx(mu=0.5)),
    ],
    ids=str,
)
def test_identity(a, b, local):
    same(a, b, local=local)


def test_wecfl_with_equal_sizes_is_fesem():
    a, b = (
        go(m, federation(sizes=(10,) * 6, dtype=torch.float64), 3)
        for m in (WeCFL(3), FeSEM(3))
    )
    assert torch.equal(a.labels, b.labels)
    torch.testing.assert_close(a.theta, b.theta, rtol=0, atol=1e-12)


def test_weights_matter_when_sizes_differ():
    """One heavy client far from the rest: with weights it gets a centre of its own,
    without the light ones split.
    """
    x = torch.tensor([[0.0], [1.0], [3.2], [4.2]], dtype=torch.float64)
    from fednb.clustering import weighted_kmeans

    assert weighted_kmeans(x, torch.tensor([1, 1, 1, 1]), 2, seed=0).tolist() == [
        0,
        0,
        1,
        1,
    ]
    assert weighted_kmeans(x, torch.tensor([1, 100, 100, 1]), 2, seed=0).tolist() == [
        0,
        0,
        1,
        1,
    ]
    assert weighted_kmeans(x, torch.tensor([100, 100, 1, 1]), 2, seed=0).tolist() == [
        0,
        1,
        1,
        1,
    ]


def test_clusters_found_are_the_true_ones_when_data_are_far_apart():
    dataset = data.load("digits")
    parts = by_class_sets(
        dataset.y[: dataset.n_train],
        [4, 4, 4],
        [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9]],
        seed=0,
    )
    for method in (WeCFL(3), WeCFL(3, "last"), WeCFL(3, "all", "cosine"), FeSEM(3)):
        fed = Federation(
            dataset, parts, partial(models.mlp, 64, (16,)), local=Local(lr=0.1, steps=5)
        )
        assert run(method, fed, 2, progress=False).final["ari"] == 1.0, method


# --- WeCFL's fields -------------------------------------------------------------------


def test_representation_is_the_part_it_names():
    layout = Layout.of(models.lenet5())
    theta = torch.arange(layout.D, dtype=torch.float32).repeat(2, 1)
    sizes = {
        "last": 840,
        "dense": 400 * 120 + 120 + 120 * 84 + 84 + 84 * 10 + 10,
        "all": layout.P,
    }  # released: 840
    for what, size in sizes.items():
        assert represent(theta, layout, what).shape == (2, size)
    assert (
        represent(theta, layout, "last")[0, -1] == layout.P - 1 - 10
    )  # before the last bias
    assert represent(theta, layout, "dense")[0, -1] == layout.P - 1
    torch.testing.assert_close(
        represent(theta, layout, "all", "cosine").norm(dim=1), torch.ones(2)
    )


def test_representation_sees_no_buffers():
    layout = Layout.of(models.cnn_bn())
    assert (
        represent(torch.zeros(1, layout.D), layout, "all").shape[1]
        == layout.P
        < layout.D
    )


def test_a_network_without_dense_layers_is_told_what_to_do():
    layout = Layout.of(torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3)))
    with pytest.raises(ValueError, match='representation="all"'):
        represent(torch.zeros(1, layout.D), layout, "last")


def test_weights_count_samples_batches_or_clients():
    fed = federation(sizes=(9, 14, 5, 20))  # batches of five
    assert importance(fed, "samples").tolist() == [9, 14, 5, 20]
    assert importance(fed, "batches").tolist() == [2, 3, 1, 4]
    assert importance(fed, "equal").tolist() == [1, 1, 1, 1]
    whole = federation(local=Local(batch_size=None), sizes=(9, 14))
    assert importance(whole, "batches").tolist() == [1, 1]


def test_presets_say_what_differs():
    assert WeCFL.corrected(3) == WeCFL(3)
    assert WeCFL.as_printed(3) == WeCFL(3, settle=False)
    assert WeCFL.as_released(3) == WeCFL(
        3, representation="last", weights="batches", aggregation="batches"
    )
    assert (
        FeSEM.as_released(3).weights == "equal"
        and FeSEM.as_released(3).aggregation == "batches"
    )
    assert FeSEM.as_printed(3).aggregation == "equal" and isinstance(
        FeSEM.as_printed(3), FeSEM
    )
    assert IFCA.corrected(3) == IFCA(3)
    released = IFCA.as_released(3)
    assert released.aliased and released.pairwise and released.new_optimizer
    assert released.batches == 3


@pytest.mark.parametrize(
    "wrong",
    [{"representation": "head"}, {"distance": "l1"}, {"weights": "n"}, {"clusters": 0}],
)
def test_wrong_fields_are_refused(wrong):
    with pytest.raises(ValueError, match=f"WeCFL\\({next(iter(wrong))}"):
        WeCFL(**wrong)


def test_one_printed_round_is_one_e_and_one_m_step():
    method = WeCFL(3, "all", settle=False)
    fed, twin = (federation(sizes=SIZES, dtype=torch.float64) for _ in range(2))
    state = go(method, fed, 1)
    go(method, twin, 1)
    after = method.step(state, fed, 1)
    up = twin.train(state.theta[state.labels])
    nearest = reference.sqdist(up.theta.tolist(), state.theta.tolist()).argmin(1)
    assert after.labels.tolist() == nearest.tolist()
    means = reference.mean_by(
        up.theta.numpy(), fed.n.tolist(), nearest, old=state.theta.numpy()
    )
    np.testing.assert_allclose(after.theta.numpy(), means, atol=1e-12)


# --- IFCA -----------------------------------------------------------------------------


def test_ifca_picks_the_model_of_least_loss():
    fed, method = federation(sizes=SIZES), IFCA(4)
    state = go(method, fed, 1)
    losses = fed.loss(state.theta)  # (K, C)
    after = method.step(state, fed, 1)
    mine = losses.gather(1, after.labels[:, None])[:, 0]
    assert torch.equal(
        mine, losses.min(1).values
    )  # Eq. 1b, so Eq. 1a cannot rise by the choice
    assert mine.mean() <= losses.gather(1, state.labels[:, None])[:, 0].mean()


def test_ifca_leaves_an_unpicked_model_alone():
    fed, method = federation(sizes=SIZES), IFCA(6)
    state = method.init(fed)
    after = method.step(state, fed, 0)
    unpicked = sorted(set(range(6)) - set(after.labels.tolist()))
    assert unpicked and torch.equal(after.theta[unpicked], state.theta[unpicked])


def test_ifca_may_choose_by_a_few_batches():
    """More batches than anybody has are the full data; the same draws, same choice."""
    full, many = (go(IFCA(4, batches=b), federation(), 2) for b in (None, 99))
    assert torch.equal(full.theta, many.theta)
    few = go(IFCA(4, batches=1), federation(), 2)
    assert torch.equal(few.theta, go(IFCA(4, batches=1), federation(), 2).theta)


def test_a_loss_on_few_batches_looks_at_few_samples_and_disturbs_nothing():
    local = Local(lr=0.05, batch_size=5)
    fed, twin = (federation(sizes=(9, 30), local=local) for _ in range(2))
    seen = []
    logits = fed.backend.logits

    def watch(tasks, train, seed, samples):
        seen.extend(samples[numbers] for _, numbers in tasks)
        return logits(tasks, train=train, seed=seed, samples=samples)

    fed.backend.logits = watch
    theta = fed.start(2)
    losses = fed.loss(theta, batches=2, draw=0)
    again = fed.loss(theta, batches=2, draw=0)
    other = fed.loss(theta, batches=2, draw=1)
    assert torch.equal(losses, again) and not torch.equal(losses[1], other[1])
    first, second = (
        {tuple(x.flatten().tolist()) for x in held(fed, k, "train")[0]} for k in (0, 1)
    )
    for x in seen:
        looked_at = {tuple(sample.flatten().tolist()) for sample in x}
        assert len(x) == len(looked_at) == 19
        assert first <= looked_at <= first | second  # all of 0, two batches of 1
    assert torch.equal(fed.train(theta[0]).theta, twin.train(theta[0]).theta)
    assert torch.equal(fed.sample(1), twin.sample(1))


def test_rows_that_clients_have_need_not_travel():
    fed = federation()
    losses = fed.loss(fed.start(2), travels=False)
    assert fed.meter.down == 0 and fed.meter.up == losses.nbytes


def test_released_ifca_is_one_model_that_passes_through_all_clients():
    fed, twin = (federation(sizes=SIZES, dtype=torch.float64) for _ in range(2))
    method = IFCA.as_released(2)
    state = go(method, fed, 1)
    go(method, twin, 1)
    assert torch.equal(state.theta[0], state.theta[1])  # both picked: the same object
    after = method.step(state, fed, 1)
    assert len(after.labels.unique()) == 2  # two names, but one object:
    w = state.theta[0]
    for k in range(twin.K):
        w = twin.train(w, torch.tensor([k])).theta[0]
    assert torch.equal(after.theta, w.repeat(2, 1))


def test_released_ifca_keeps_the_model_of_a_cluster_that_nobody_picked():
    """Once picked, it becomes the model of all: the server averages into one object."""
    fed, twin = (federation(sizes=SIZES, dtype=torch.float64) for _ in range(2))
    rows = fed.start(4)
    rows[2] = rows[1]  # clusters 1 and 2 are one object already
    clients = torch.arange(len(SIZES))
    labels = torch.tensor([1, 1, 2, 2, 1, 2])
    theta = train_aliased(fed, rows, labels, clients)
    w = rows[1]
    for k in range(twin.K):
        w = twin.train(w, torch.tensor([k])).theta[0]
    assert torch.equal(theta, torch.stack([rows[0], w, w, rows[3]]))
    labels = torch.tensor([0, 1, 2, 2, 1, 2])  # client 0 alone picks cluster 0
    theta = train_aliased(fed, rows, labels, clients)
    assert torch.equal(theta[1], theta[0]) and torch.equal(theta[2], theta[0])
    assert torch.equal(theta[3], rows[3]) and not torch.equal(theta[0], rows[0])


def test_released_ifca_gives_ties_to_the_later_cluster():
    # the same sample everywhere, and one class: batches do not matter
    some = blobs(samples=sum(SIZES) + 4 * len(SIZES))
    alike = replace(some, x=0 * some.x, y=0 * some.y)
    fed = Federation(
        alike, ragged(SIZES), NETWORKS["mlp"][1], local=Local(batch_size=5)
    )
    same = fed.start().repeat(4, 1)
    clients = torch.arange(fed.K)
    assert IFCA.as_released(4).choose(fed, same, clients).tolist() == [3] * fed.K
    assert IFCA(4).choose(fed, same, clients).tolist() == [0] * fed.K


def test_released_ifca_lets_the_batches_decide_between_equal_models():
    fed = federation(sizes=(30,) * 60)
    same = fed.start().repeat(3, 1)
    chosen = IFCA.as_released(3).choose(fed, same, torch.arange(60))
    share = torch.bincount(chosen, minlength=3) / 60
    assert abs(float(share[2]) - 0.5) < 0.2 and share.min() > 0.05


def kept_momenta(fed):
    return [name for name in fed.snapshot() if name.startswith("memory.")]


def test_released_ifca_creates_its_optimiser_anew_in_every_round():
    local = Local(lr=0.05, batch_size=5, momentum=0.9, keep_state=True)
    fed = federation(sizes=SIZES, local=local)
    go(IFCA.as_released(3), fed)
    assert not kept_momenta(fed)
    kept = federation(sizes=SIZES, local=local)
    go(IFCA(3), kept)
    assert len(kept_momenta(kept)) == len(SIZES)


# --- ensembles ------------------------------------------------------------------------


def test_an_ensemble_votes_softly():
    fed = federation("mlp", sizes=SIZES)
    state = go(Ensemble(3), fed, 1)
    result = fed.evaluate(state.theta, state.votes)
    x, _ = fed.samples(fed.sample_numbers())
    probability = fed.predict(state.theta, x).softmax(2).mean(0)
    assert torch.equal(result.pred, probability.argmax(1))
    assert len({tuple(row[:5].tolist()) for row in state.theta}) == 3  # members differ


def test_members_keep_their_momentum_apart():
    local = Local(lr=0.05, batch_size=None, momentum=0.9, keep_state=True)
    fed = federation(local=local, dtype=torch.float64)
    w = fed.start()[0]
    first, second, again = (
        fed.train(w).theta,
        fed.train(w, slot=1).theta,
        fed.train(w).theta,
    )
    torch.testing.assert_close(first, second, rtol=0, atol=1e-12)
    assert not torch.allclose(first, again)
    fed.restore(snapshot := fed.snapshot())
    assert {
        tuple(key.split(".")[1:3]) for key in snapshot if key.startswith("memory")
    } == {(str(k), str(slot)) for k in range(fed.K) for slot in (0, 1)}


@pytest.mark.parametrize("wrong", [{"members": 0}, {"mu": -1.0}])
def test_an_empty_or_repelling_ensemble_is_refused(wrong):
    with pytest.raises(ValueError, match="need an? "):
        Ensemble(**wrong)


def test_half_an_ensemble_is_measured_beside_the_whole():
    fed = federation(sizes=SIZES)
    state = go(Ensemble(4), fed, 1)
    both = wecfl.tasks.measure_ensemble(fed, state)
    few = measure(fed, state._replace(theta=state.theta[:2], votes=state.votes[:, :2]))
    assert both["half_accuracy_weighted"] == few["accuracy_weighted"]
    assert both["loss"] == measure(fed, state)["loss"] != few["loss"]


# --- the federation's new options -----------------------------------------------------


def test_batch_statistics_are_those_of_one_clients_samples():
    fed = federation("cnn_bn", sizes=SIZES, batch_stats=True)
    state = go(FixedClusters([0, 1, 0, 1, 0, 1]), fed, 1)
    result = fed.evaluate(state.theta, state.labels)
    module, pred = NETWORKS["cnn_bn"][1](), []
    row = fed.layout.bind(module)
    for k in range(fed.K):
        with torch.no_grad():
            row.copy_(state.theta[state.labels[k]])
            pred.append(module.train()(held(fed, k)[0]).argmax(1))
    assert torch.equal(result.pred, torch.cat(pred))
    losses = fed.loss(state.theta, on="test")[torch.arange(fed.K), state.labels]
    torch.testing.assert_close(losses, result.loss)


def test_batch_statistics_change_nothing_without_batchnorm_and_something_with_it():
    for network, equal in (("mlp", True), ("cnn_bn", False)):
        usual, other = (
            federation(network, sizes=SIZES, batch_stats=b) for b in (False, True)
        )
        a, b = (fed.loss(fed.start()[0], on="test") for fed in (usual, other))
        assert torch.allclose(a, b) == equal


def test_draws_leave_samples_alone_and_come_back_with_a_snapshot():
    fed, twin = federation(), federation()
    before = fed.snapshot()
    numbers = [fed.draw() for _ in range(3)]
    assert len(set(numbers)) == 3
    assert torch.equal(fed.sample(2), twin.sample(2))
    fed.restore(before)
    assert [fed.draw() for _ in range(3)] == numbers


def test_run_evaluates_every_nth_and_each_of_the_last():
    rounds = [
        row["round"]
        for row in run(FedAvg(), federation(), 10, every=4, last=3, progress=False).rows
    ]
    assert rounds == [4, 8, 9, 10]


def test_an_official_test_set_takes_the_place_of_the_clients_own():
    task = Task(
        FedAvg(),
        "digits",
        partial(iid, clients=4, test=0.0),
        models.linear,
        Local(),
        1,
        official=True,
    )
    fed, dataset = task.federation(), data.load("digits")
    tested = fed.sample_numbers()
    assert len(tested) > 0 and tested.min() >= dataset.n_train
    assert (
        task.key
        != Task(
            FedAvg(),
            "digits",
            partial(iid, clients=4, test=0.0),
            models.linear,
            Local(),
            1,
        ).key
    )


def test_tags_are_no_part_of_the_key():
    plain, tagged = (
        Task(
            FedAvg(),
            "digits",
            partial(iid, clients=4),
            models.linear,
            Local(),
            1,
            tags=t,
        )
        for t in ({}, {"K": 1})
    )
    assert plain.key == tagged.key


# --- partitions of a subset, and with copies ------------------------------------------


def test_a_subset_is_partitioned_like_a_pool_of_its_own():
    y = np.arange(1000) % 10
    law = partial(iid, clients=5)
    part = subset(y, law, 200, seed=3)
    both = np.concatenate([*part.train, *part.test])
    assert len(both) == len(set(both.tolist())) == 200 and both.max() < 1000
    assert not np.array_equal(
        both, np.concatenate([*(p := subset(y, law, 200, seed=4)).train, *p.test])
    )
    with pytest.raises(ValueError, match="samples = 1001"):
        subset(y, law, 1001)
    assert (
        describe(partial(subset, law=law, samples=200))
        == "subset(law=iid(clients=5), samples=200)"
    )


def sizes_of(part):
    return np.array(
        [len(a) + len(b) for a, b in zip(part.train, part.test, strict=True)]
    )


def variation(law, **options):
    """Median coefficient of variation of the clients' sizes over 15 seeds."""
    y = np.repeat(np.arange(10), 5000)
    sizes = [sizes_of(law(y, seed=seed, **options)) for seed in range(15)]
    return float(np.median([n.std() / n.mean() for n in sizes]))


def test_sizes_differ_under_the_released_n_class_laws_only():
    """WeCFL's benchmark: 200 clients in 10 clusters, (3, 2)-class, and 2-class."""
    groups = {"clients": 200, "clusters": 10, "n": 3, "m": 2}
    assert 0.3 < variation(partition.cluster_n_class_released, **groups) < 0.46
    assert variation(partition.cluster_n_class, **groups) < 0.02
    assert 0.05 < variation(partition.n_class_released, clients=200, n=2) < 0.15
    assert variation(partition.n_class, clients=200, n=2) < 0.02


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(60, 90), min_size=10, max_size=10),
    clients=st.integers(1, 25),
    n=st.integers(1, 10),
    seed=st.integers(0, 9),
)
def test_released_n_class(sizes, clients, n, seed):
    y = np.repeat(np.arange(10), sizes)
    part = partition.n_class_released(y, clients, n, seed=seed)
    own = [np.concatenate(pair) for pair in zip(part.train, part.test, strict=True)]
    everything = np.concatenate(own)
    counts = partition.class_counts(own, y, 10)
    assert len(set(everything.tolist())) == len(everything)  # disjoint
    assert ((counts > 0).sum(1) == n).all()
    for have, column in zip(sizes, counts.T, strict=True):
        held = column[column > 0]
        assert column.sum() == (have if len(held) else 0)  # whole, or left out
        assert not len(held) or np.ptp(held) <= 1


@settings(max_examples=40, deadline=None)
@given(
    clusters=st.integers(1, 6),
    members=st.integers(1, 5),
    n=st.integers(1, 10),
    data=st.data(),
    seed=st.integers(0, 9),
)
def test_released_cluster_n_class(clusters, members, n, data, seed):
    m = data.draw(st.integers(1, n))
    y = np.repeat(np.arange(10), 70)
    part = partition.cluster_n_class_released(
        y, clusters * members, clusters, n, m, seed=seed
    )
    own = [np.concatenate(pair) for pair in zip(part.train, part.test, strict=True)]
    everything = np.concatenate(own)
    counts = partition.class_counts(own, y, 10)
    assert len(set(everything.tolist())) == len(everything)
    assert ((counts > 0).sum(1) == m).all()
    assert part.truth.tolist() == [k // members for k in range(clusters * members)]
    by_cluster = counts.reshape(clusters, members, 10)
    assert ((by_cluster.sum(1) > 0).sum(1) <= n).all()
    for group in by_cluster:  # a cluster's share of a class is dealt evenly
        assert all(np.ptp(c[c > 0]) <= 1 for c in group.T if c.any())
    for shares in by_cluster.sum(1).T:  # and so is a class, if somebody holds it
        assert not shares.any() or np.ptp(shares[shares > 0]) <= 1


@pytest.mark.parametrize("wrong", [{"n": 0}, {"n": 11}, {"n": 3, "m": 4}])
def test_released_n_class_laws_refuse(wrong):
    y = np.repeat(np.arange(10), 70)
    with pytest.raises(ValueError, match=r"[nm] = "):
        partition.cluster_n_class_released(y, 6, 2, **wrong)
    if "m" not in wrong:
        with pytest.raises(ValueError, match="n = "):
            partition.n_class_released(y, 6, **wrong)


def test_refill_replaces_small_clients_by_copies():
    def law(y, seed):
        sizes = [10, 2, 7, 1]
        return Partition(
            [np.arange(s) + 100 * k for k, s in enumerate(sizes)],
            [np.arange(s) for s in sizes],
            np.arange(4),
        )

    part = refill(np.zeros(500), law, least=6)
    assert len(part.train[0]) == 10 and len(part.train[2]) == 7  # the others stay
    for k in (1, 3):
        twin = int(part.truth[k])
        assert twin in (0, 2) and np.array_equal(part.train[k], part.train[twin])
    with pytest.raises(ValueError, match="no client has 11"):
        refill(np.zeros(500), law, least=11)


# --- theory ---------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 8), st.integers(1, 4), st.integers(0, 10**6))
def test_clusterability_and_objective_agree_with_their_loops(K, D, seed):
    rng = np.random.default_rng(seed)
    g, lam = rng.normal(size=(K, D)), rng.integers(1, 9, size=K).astype(float)
    labels = np.unique(rng.integers(0, 3, size=K), return_inverse=True)[1]
    tensors = torch.tensor(g), torch.tensor(lam), torch.tensor(labels)
    np.testing.assert_allclose(
        clusterability(*tensors),
        reference.clusterability(g, lam, labels),
        rtol=1e-9,
        atol=1e-12,
    )
    centres = rng.normal(size=(3, D))
    fast = kmeans_objective(*tensors, torch.tensor(centres))
    assert fast.item() == pytest.approx(
        reference.kmeans_objective(g, lam, labels, centres)
    )


def test_clusterability_at_its_ends():
    lam, together = torch.ones(2), torch.zeros(2, dtype=torch.long)
    assert clusterability(torch.ones(2, 3), lam, together).tolist() == [0.0]
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert clusterability(opposite, lam, together).tolist() == [float("inf")]
    assert reference.clusterability(opposite.numpy(), [1, 1], [0, 0]) == [float("inf")]
    assert clusterability(opposite, lam, torch.tensor([0, 1])).tolist() == [0.0, 0.0]


def convex(**options) -> Federation:
    """Softmax regression on blobs, two groups of clients with different classes: the
    theory's assumptions hold.
    """
    dataset = blobs(samples=160, classes=4, shape=(1, 2, 2))
    parts = by_class_sets(dataset.y[:160], [3, 3], [[0, 1], [2, 3]], seed=0)
    return Federation(
        dataset, parts, partial(models.linear, 4, 4), dtype=torch.float64, **options
    )


def test_f_falls_in_the_e_and_m_steps_and_in_the_local_one_if_the_bound_is_kept():
    free = wecfl.theory.trace(convex(), 2, 12, Q=3, eta=0.1)
    U = 1.0001 * max(line["U"] for line in free)
    kept, broken = (
        wecfl.theory.trace(convex(), 2, 12, Q=3, eta=0.1, factor=f, U=U)
        for f in (1.0, 4.0)
    )
    for line in (*free, *kept, *broken):
        assert line["F_E"] <= line["F_0"] + 1e-12  # Lemma A.1
        assert line["F_M"] <= line["F_E"] + 1e-12  # Lemma A.2
    assert all(
        line["F_L"] <= line["F_M"] + 1e-12 for line in kept
    )  # Lemma A.3, Theorem 6.2
    assert any(line["F_L"] > line["F_M"] for line in broken)
    assert kept[-1]["R_L"] > 1.2 * free[-1]["R_L"]  # the price: clients hardly learn


def test_r_obeys_the_lemmas_and_the_rate():
    eta, Q = 0.1, 3
    lines = wecfl.theory.trace(convex(), 2, 12, Q=Q, eta=eta)
    U, beta = (
        max(line["U"] for line in lines),
        wecfl.theory.smoothness(blobs(samples=160, classes=4, shape=(1, 2, 2)).x),
    )
    B = max(max(line["B"]) for line in lines)
    for before, line in zip(lines, lines[1:], strict=False):
        assert line["R_E"] == pytest.approx(before["R_L"])  # Eq. 42
        assert line["B_before"] == before["B"]  # nobody changes cluster
        own = max(line["B_before"])
        assert line["R_M"] <= line["R_E"] + eta * own * Q * U**2  # Lemma A.4
        assert line["R_L"] < line["R_M"]  # Lemma A.5 with small steps
    T = np.arange(1, 13)
    measured = np.cumsum([line["squared_gradient"] for line in lines]) / T
    assert (
        measured <= wecfl.theory.rate_bound(T, lines[0]["R_M"], Q, eta, beta, B, U)
    ).all()  # Eq. 9 and 10
    with pytest.raises(ValueError, match="2 / beta"):
        wecfl.theory.rate_bound(T, 1.0, Q, 100.0, beta, B, U)
    with pytest.raises(ValueError, match="together"):
        wecfl.theory.trace(convex(), 2, 1, factor=1.0)


def test_distance_to_the_centre_is_the_members_disagreement():
    """Eqs. 18 and 25: members start from one model, so only their gradients differ."""
    fed, eta, Q = convex(), 0.1, 3
    lam = fed.n.double()
    together = torch.zeros(fed.K, dtype=torch.long)
    step = torch.full_like(lam, eta)
    local = wecfl.theory.descend(fed, fed.start().repeat(fed.K, 1), step, Q)
    own = local.gradients.sum(0)  # (K, D)
    mean = (lam[:, None] * own).sum(0) / lam.sum()
    apart = wecfl.theory.average((own - mean).pow(2).sum(1), lam)
    centre = (lam[:, None] * local.rows).sum(0, keepdim=True) / lam.sum()
    F_M = kmeans_objective(local.rows, lam, together, centre)
    assert float(F_M) == pytest.approx(eta**2 * float(apart))


def test_lemma_a4_does_not_cover_a_client_that_has_changed_cluster():
    """By hand: gradients 1.2, steps of 0.6 to -0.6 and 0.4, both then at -0.1."""
    rise, bound = wecfl.theory.rise_after_a_change()
    before = (0.6**2 + 0.6**2) / 4
    after = (1.1**2 + 0.1**2) / 4
    assert rise == pytest.approx(after - before) and rise > 0.1
    assert bound == pytest.approx(0, abs=1e-12)


def test_lemma_a5_needs_no_convexity():
    """1 - cos(w) is smooth (β = 1) and not convex: a step still wins what A.5 says."""
    w = torch.linspace(-3, 3, 61, dtype=torch.float64)
    for eta in (0.1, 1.0, 1.9):
        slope = w.sin()
        fall = (w - eta * slope).cos() - w.cos()
        assert (fall >= (eta - eta**2 / 2) * slope**2 - 1e-12).all()


def test_copies_with_batches_part_ways():
    """Then their B is above 0, and that takes the step of Theorem 6.8 away."""
    theory = wecfl.theory
    calm, noisy = theory.toy(copies=True), theory.toy(copies=True, batch=16)
    assert max(map(max, calm["B"])) < 1e-12 < 0.1 < max(noisy["B"].iloc[-1])
    U, squares = noisy["U"].max(), noisy["squared_gradient"]
    beta, noise = theory.toy_smoothness(), noisy["noise"].max()
    assert (theory.largest_step(squares, 0.0, U, beta, noise) > 0).all()
    assert (theory.allowed(noisy) > 0).sum() < 5


def test_copies_of_one_client_have_clusterability_zero():
    dataset = blobs(samples=80, shape=(1, 2, 2))
    halves = [np.arange(40), np.arange(40, 80)]
    parts = Partition([halves[k % 2] for k in range(4)], [np.arange(80, 90)] * 4, None)
    fed = Federation(dataset, parts, partial(models.linear, 4, 3), dtype=torch.float64)
    lines = wecfl.theory.trace(fed, 2, 5)
    assert max(max(line["B"]) for line in lines) < 1e-6
    assert lines[-1]["labels"] in ([0, 1, 0, 1], [1, 0, 1, 0])


# --- tasks and records ----------------------------------------------------------------


@pytest.mark.parametrize("profile", ["smoke", "laptop", "paper"])
@pytest.mark.parametrize("table", wecfl.tasks.TABLES)
def test_tasks_are_well_formed(profile, table):
    tasks = wecfl.tasks.TABLES[table](profile)
    if table.startswith("scale_") and profile == "laptop":
        assert not tasks
        return
    cells = {(task.key, *task.tags.values()) for task in tasks}
    assert len(cells) == len(tasks) and {task.profile for task in tasks} == {profile}
    if not table.startswith("scale_"):
        seeds = {task.seed for task in tasks}
        assert len(seeds) >= {"smoke": 1, "laptop": 3, "paper": 5}[profile]


def test_runs_at_the_papers_own_scale_are_its_table_with_more_kept():
    whole = {
        (task.seed, task.tags["row"], task.tags["K"]): task
        for task in wecfl.tasks.TABLES["table2_class"]("paper")
        if task.dataset == "cifar10"
    }
    few = wecfl.tasks.TABLES["scale_cifar10_class"]("paper")
    assert [task.seed for task in few] == sorted(task.seed for task in few)
    assert len(few) == 3 * 10
    for task in few:
        twin = whole[task.seed, task.tags["row"], task.tags["K"]]
        assert task.train_rows == 50_000 and "labels" in task.curves
        same = {"every": twin.every, "curves": twin.curves, "train_rows": None}
        assert replace(task, **same).key == twin.key


def test_every_partition_of_the_paper_profile_can_be_dealt():
    y, y_test = np.arange(60_000) % 10, np.arange(10_000) % 10
    tasks = [
        task
        for table in wecfl.tasks.TABLES.values()
        for task in table("paper")
        if task.seed == 0
    ]
    for task in {describe(task.partition): task for task in tasks}.values():
        part = task.partition(y, seed=0)
        part = match_test(part, y, y_test) if task.official else part
        assert len(part.train) == 200 and min(map(len, part.test)) > 0, describe(
            task.partition
        )


def test_the_paper_profile_is_the_papers():
    for task in wecfl.tasks.TABLES["table2_alpha"]("paper"):
        assert (
            task.rounds == 100
            and task.official
            and "clients=200" in describe(task.partition)
        )
        local = task.local
        assert (local.lr, local.steps, local.batch_size, local.momentum) == (
            0.001,
            10,
            32,
            0.9,
        )
        assert (
            task.model
            is {"cifar10": models.lenet5, "fashion_mnist": models.cnn_bn}[task.dataset]
        )


def test_a_smoke_run_gives_records(tmp_path):
    from fednb import tables
    from fednb.reproduce import main

    assert (
        main(["wecfl", "--table", "figure3", "--out", str(tmp_path), "--jobs", "1"])
        == 0
    )
    frame = tables.frame(
        wecfl.tasks.TABLES["figure3"]("smoke"), tmp_path / "figure3.json", last=3
    )
    assert (
        frame["K"].tolist() == [3, 5, 10]
        and frame["accuracy_weighted"].between(0, 1).all()
    )


def test_printed_numbers_are_read_with_their_cells():
    two, five = (
        wecfl.outcomes.printed("2").set_index(["dataset", "setting", "K", "row"]),
        wecfl.outcomes.printed("5"),
    )
    cell = two.loc["cifar10", "(3, 2)-class", 10, "WeCFL"]
    assert (cell["accuracy_weighted"], cell["accuracy_weighted_std"]) == (
        0.7213,
        0.0188,
    )
    assert np.isnan(
        two.loc["fashion_mnist", "α = (0.1, 10)", 5, "FedAvg+"]["accuracy_weighted_std"]
    )
    assert len(two) == len(five) == 48 and set(five["setting"]) == {
        "α = 0.1",
        "2-class",
    }


def test_ensembles_of_five_are_read_from_those_of_ten(tmp_path):
    from fednb import tables

    tasks = [
        task
        for task in wecfl.tasks.TABLES["table5_class"]("smoke")
        if task.tags["row"] in ("FedAvg", "FedAvg+")
    ]
    for task in tasks:
        store.append(tmp_path / "x.json", task.record())
    frame = wecfl.outcomes.with_halves(tables.frame(tasks, tmp_path / "x.json", last=3))
    assert sorted(zip(frame["row"], frame["K"], strict=True)) == [
        ("FedAvg", 1),
        ("FedAvg+", 5),
        ("FedAvg+", 10),
    ]
    assert frame[list(wecfl.tasks.CURVES)].notna().all(axis=None)


# --- the chapter's claims -------------------------------------------------------------


def cells(**effects: float) -> pd.DataFrame:
    """A table with two data sets, two settings, two seeds, and rows that are ahead."""
    lines = []
    for i, dataset in enumerate(("cifar10", "fashion_mnist")):
        for j, setting in enumerate(("α = 0.1", "2-class")):
            for seed in (0, 1):
                for row, effect in effects.items():
                    level = 0.4 + 0.1 * i + 0.05 * j + 0.01 * seed + effect
                    tags = {"dataset": dataset, "setting": setting, "seed": seed}
                    line = tags | {"row": row, "K": 10, "accuracy_weighted": level}
                    lines.append(line)
    return pd.DataFrame(lines)


def test_differences_average_over_seeds_and_pair_the_cells():
    frame = cells(WeCFL=0.02, FeSEM=0.0)
    by = ["dataset", "setting"]
    found = wecfl.claims.difference(
        frame, "WeCFL", "FeSEM", by, "accuracy_weighted", "row"
    )
    assert found == pytest.approx((2.0, 2.0, 2.0))
    noisy = frame.copy()
    noisy.loc[0, "accuracy_weighted"] += 0.04  # one seed of one cell of four
    mean, low, high = wecfl.claims.difference(
        noisy, "WeCFL", "FeSEM", by, "accuracy_weighted", "row"
    )
    assert mean == pytest.approx(2.5)
    assert low < 2.0 < high


def test_a_gain_on_cifar_is_compared_setting_by_setting():
    frame = cells(WeCFL=0.02, FedAvg=0.0)
    larger = frame["dataset"].eq("cifar10") & frame["row"].eq("WeCFL")
    frame.loc[larger, "accuracy_weighted"] += 0.1
    gains = wecfl.claims.contrast(frame, "row", "WeCFL", "FedAvg")
    sides = ("cifar10", "fashion_mnist")
    claim = wecfl.claims.of_two_kinds(
        "larger", "B.2", gains, gains, tag="dataset", sides=sides, pairs=["setting"]
    )
    assert claim.interval == pytest.approx((10.0, 10.0, 10.0))
    assert claim.printed == pytest.approx(10.0)
    assert claim.replicates.startswith("2 pairs")


def test_settings_of_one_law_are_paired_by_their_kind():
    gains = pd.DataFrame({"setting": [*wecfl.outcomes.SETTINGS]})
    found = wecfl.claims.by_kind(gains)
    assert found["kind"].tolist() == ["cluster-wise"] * 2 + ["client-wise"] * 2
    assert found["law"].tolist() == ["Dirichlet", "by classes"] * 2


def test_changes_are_the_rounds_in_which_clusters_changed():
    course = pd.DataFrame(
        {
            "round": [1, 2, 3, 4],
            "ari": [0.5, 0.5, 0.7, 0.7],
            "completeness": [1.0, 1.0 + 2e-16, 1.0, 0.9],
        }
    )
    assert wecfl.outcomes.changes(course) == [3, 4]
    assert wecfl.outcomes.changes(course.iloc[:2]) == []


def test_the_share_of_runs_that_get_worse_is_counted_cell_by_cell():
    frame = cells(IFCA=0.0)
    five = frame.assign(K=5)
    five.loc[0, "accuracy_weighted"] += 0.1  # one seed of two, in one cell of four
    worse = wecfl.claims.worse_with_ten(pd.concat([frame, five]), "IFCA")
    assert sorted(worse) == [0, 0, 0, 0.5]
    printed = pd.concat([frame, five]).query("seed == 0").drop(columns="seed")
    assert sorted(wecfl.claims.worse_with_ten(printed, "IFCA")) == [0, 0, 0, 1]


def test_a_share_has_an_exact_interval():
    mean, low, high = wecfl.claims.share(5, 24)
    assert mean == pytest.approx(5 / 24)
    assert (low, high) == pytest.approx((0.0713, 0.4215), abs=1e-4)
    assert wecfl.claims.share(0, 24).low == 0  # what was never seen does not hold


def test_macro_f1_is_judged_by_its_direction_and_the_size_apart():
    """The paper weights clients by batches, our records count them alike."""
    ranking = {c.statement: c for c in wecfl.claims.of_the_ranking()}
    macro = [claim for name, claim in ranking.items() if "macro-F1" in name]
    assert len(macro) == 3 and all(claim.printed is None for claim in macro)
    assert ranking["WeCFL is more accurate than IFCA"].printed > 10
    for value, name in wecfl.claims.MEASURES.items():
        size = wecfl.claims.size_of_the_lead(value, name)
        assert size.ours and size.statement.startswith("At laptop scale")
        assert size.threshold == pytest.approx(size.printed, abs=0.05)
        assert size.interval.high < size.printed and size.verdict == "fails"


def test_headlines_are_claims_of_the_paper_in_their_order():
    judged = wecfl.claims.claims()
    first = wecfl.claims.headlines(judged)
    main = len(wecfl.claims.HEADLINES)
    assert [claim.statement for claim in first[:main]] == [*wecfl.claims.HEADLINES]
    assert {claim.scale for claim in first[main:]} <= {wecfl.outcomes.OWN}
    assert not any(claim.ours for claim in first)
    assert {claim.verdict for claim in first} >= {"holds", "fails", "open"}
    ordered = wecfl.claims.by_verdict(judged)
    assert ordered[0].verdict == "fails" and ordered[-1].verdict == "holds"
    assert sorted(map(id, ordered)) == sorted(map(id, judged))


def test_the_summary_takes_its_numbers_from_records_and_print():
    judged = wecfl.claims.claims()
    words = " ".join(wecfl.words.summary(judged).split())
    theirs = wecfl.outcomes.paper()
    printed = wecfl.outcomes.lead("IFCA", printed=theirs)
    assert printed == pytest.approx(15.1, abs=0.05)  # from Tables 2 and 5
    assert f"In print it is {printed:.0f} points behind WeCFL" in words
    assert "nan" not in words
    five, ten = (wecfl.outcomes.lead("FeSEM", K=K, printed=theirs) for K in (5, 10))
    assert (five, ten) == pytest.approx((0.72, 1.62), abs=0.02)
    detail = wecfl.words.leads_over_fesem(judged)
    assert f"in the paper it is +{five:.1f} and +{ten:.1f}" in detail


def test_methods_keep_their_colours():
    """The race and Figure 2 show the same methods."""
    runs = wecfl.outcomes.curves("figure2")
    runs.pop("IFCA as released")
    shown = wecfl.figures.convergence().axes[0].lines
    assert [line.get_label() for line in shown] == [*runs]
    for line in shown:
        colour, dash = wecfl.figures.SIGNS[line.get_label()]
        assert (line.get_color(), line.get_linestyle()) == (colour, dash)
    signs = [wecfl.figures.SIGNS[name] for name in runs]
    assert len(set(signs)) == len(signs)


def test_stars_mark_old_runs_and_go_with_them(monkeypatch):
    monkeypatch.setattr(wecfl.outcomes, "standing_in", set)
    table, words = wecfl.outcomes.ifca_gaps()
    assert "*" not in table.text and words.endswith("of 8 lines.")
    assert "ten times" in words  # the released code has η = 0.001
    old = {("cifar10", "2-class", "IFCA as released")}
    monkeypatch.setattr(wecfl.outcomes, "standing_in", lambda: old)
    starred = wecfl.outcomes.ifca_gaps()[0].text
    assert starred.count("*") == 2  # one cell, and the caption


def test_variants_with_the_same_numbers_share_a_line():
    table, _ = wecfl.outcomes.variants()
    assert "last layer only; all layers; cosine distance" in table.text
    assert "+0.0 (+0.0 to +0.0)" not in table.text


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """A folder with the chapter's records, to which a test may add some."""
    folder = tmp_path / "book" / "results" / "wecfl"
    folder.mkdir(parents=True)
    for path in results("wecfl").glob("*.json"):
        (folder / path.name).symlink_to(path)
    for module in (wecfl.outcomes, common):
        monkeypatch.setattr(module, "results", lambda paper: folder)
    wecfl.outcomes.both.cache_clear()
    wecfl.outcomes.own_scale.cache_clear()
    yield folder
    wecfl.outcomes.both.cache_clear()
    wecfl.outcomes.own_scale.cache_clear()


SHOWN = {"WeCFL": 0.7, "FeSEM": 0.69, "IFCA": 0.5, "FedAvg": 0.2}


def pretend_seeds(folder, number: int, beyond: int = 0) -> None:
    """Write so many whole seeds at the paper's own scale, and some runs beyond them.

    Seed s is s points better than seed 0, WeCFL by another s.
    """
    (folder / "scale_same_classes.json").unlink(missing_ok=True)
    path = folder / "scale_cifar10_class.json"
    path.unlink(missing_ok=True)
    tasks = wecfl.tasks.TABLES["scale_cifar10_class"]("paper")
    for task in tasks[: 10 * number + beyond]:
        row = task.tags["row"]
        level = SHOWN.get(row, 0.6) - 0.1 * (task.tags["K"] == 5)
        level += 0.01 * task.seed * (1 + (row == "WeCFL"))
        store.append(path, pretend(task, level))
    wecfl.outcomes.own_scale.cache_clear()


def test_without_runs_at_the_papers_scale_nothing_is_said(made_up):
    pretend_seeds(made_up, 0, beyond=9)  # no seed is whole
    assert len(wecfl.outcomes.own_scale()) == 0
    assert wecfl.claims.at_the_papers_scale() == []
    assert wecfl.words.own_scale_in_words() == ""
    assert wecfl.words.alone_at_both_scales() == ""
    assert wecfl.words.ifca_at_own_scale() == ""
    assert "own scale (seeds to come: 3 of 3)" in wecfl.words.not_run()


def test_one_seed_at_the_papers_scale_is_shown_and_decides_nothing(made_up):
    pretend_seeds(made_up, 1, beyond=1)  # seed 1 is not whole
    assert set(wecfl.outcomes.own_scale()["seed"]) == {0}
    assert wecfl.claims.at_the_papers_scale() == []  # no interval, no verdict
    assert "own scale (seeds to come: 2 of 3)" in wecfl.words.not_run()
    assert "CIFAR-10, (3, 2)-class, one seed. Accuracy" in (
        wecfl.words.own_scale_in_words()
    )
    assert "one seed) it is +10.0." in wecfl.words.alone_at_own_scale()
    assert "one seed) ours is +1.0 and +1.0." in wecfl.words.leads_at_own_scale()
    assert "IFCA has 50 %." in wecfl.words.ifca_row_at_own_scale()
    shown = wecfl.outcomes.scales("cifar10", "(3, 2)-class").text
    assert "the paper's scale: 70.0" in shown and "paper: 72.1" in shown
    assert "official test images: one seed; 1 to 1 minutes of one core a run" in shown


@pytest.mark.parametrize("seeds", [2, 3])
def test_runs_at_the_papers_scale_come_in_whole_seeds(seeds, made_up):
    """The page and the claims take in what there is, and nothing half done."""
    pretend_seeds(made_up, seeds)
    frame = wecfl.outcomes.own_scale()
    assert len(frame) == 11 * seeds and frame["seed"].nunique() == seeds
    assert frame["row"].eq("Majority class").sum() == seeds  # no run, but a deal
    found = wecfl.claims.at_the_papers_scale()
    on_top = wecfl.claims.headlines(found)
    assert len(on_top) == 4 and not any(claim.ours for claim in on_top)
    first = found[0]
    assert first.statement.startswith("WeCFL is more accurate than FeSEM")
    assert first.interval.mean == pytest.approx(1.0 + (seeds - 1) / 2)
    assert first.printed == pytest.approx(0.37)
    assert first.replicates.endswith(f"{seeds} seeds")
    if seeds == 2:  # their interval may be wide or narrow by chance
        assert {claim.verdict for claim in found} == {"open"}
        assert any("two seeds decide nothing" in claim.reason for claim in found)
    else:
        assert first.interval.low < first.interval.high
        assert "holds" in {claim.verdict for claim in found}
    top = 70 + 2 * (seeds - 1)
    shown = wecfl.outcomes.scales("cifar10", "(3, 2)-class").text
    assert f"the paper's scale: {(70 + top) / 2:.1f} (70.0 to {top:.1f})" in shown
    words = wecfl.words.own_scale_in_words()
    assert f"CIFAR-10, (3, 2)-class, {seeds} seeds" in words
    assert "(paper 72.1)" in words and "LocalOnly" not in words
    alone = 10 + (seeds - 1) / 2
    assert f"WeCFL minus LocalOnly is +{alone:.1f} points" in (
        wecfl.words.alone_at_both_scales()
    )
    released = 60 + (seeds - 1) / 2
    assert f"IFCA as released {released:.1f}" in wecfl.words.ifca_at_own_scale()
    assert "balanced accuracy" in (
        wecfl.outcomes.own_measures("cifar10", "(3, 2)-class").text
    )
    legend = wecfl.figures.table_dots("2").legends[0].get_texts()
    assert "ours, the paper's scale" in [text.get_text() for text in legend]


def write(folder, table: str, level, **further) -> None:
    """Made-up records of a laptop table; ``level`` maps a task to a number."""
    path = folder / f"{table}.json"
    path.unlink(missing_ok=True)
    for task in wecfl.tasks.TABLES[table]("laptop"):
        record = pretend(task, level(task))
        record["data_sha256"] = "the same"
        record["metrics"]["final"] |= further
        store.append(path, record)


def test_unweighted_averages_are_taken_in(made_up):
    write(made_up, "averages", lambda task: 0.5, accuracy=0.5)
    helps, alike, beats = found = wecfl.claims.of_unweighted_averages()
    mine = wecfl.outcomes.both()
    by_samples = {"accuracy_weighted": [(helps, "FeSEM"), (beats, "WeCFL")]}
    for value, pairs in (by_samples | {"accuracy": [(alike, "FeSEM")]}).items():
        for claim, row in pairs:
            lines = mine[mine["row"].eq(row) & mine["K"].isin([5, 10])]
            assert claim.interval.mean == pytest.approx(
                100 * (lines[value].mean() - 0.5)
            )
            assert claim.ours
    said = wecfl.words.weights_in_averages({c.statement: c for c in found})
    assert said.startswith("in FeSEM that adds +") and "Eq. 2" in said


def test_parts_of_the_released_ifca_are_taken_in(made_up):
    slower = {"IFCA, three batches": 0.3, "IFCA, η = 0.001": 0.4}
    write(made_up, "choices", lambda task: slower.get(task.tags["row"], 0.2))
    found = wecfl.claims.of_the_slip()
    assert len(found) == 6 and all(claim.ours for claim in found)
    assert found[5].interval.mean == pytest.approx(20.0)  # 0.4 without the slip alone
    rates = [claim.statement.rsplit(" ", 1)[1] for claim in found[2:]]
    assert rates == ["0.01", "0.01", "0.001", "0.001"]
    assert "IFCA, three batches" in wecfl.outcomes.stability().text
    said = wecfl.words.slip_in_words(found)
    assert said.count("\n- ") == 6 and "(holds)" in said


def test_b_over_all_steps_is_taken_in(made_up):
    small = {
        "cosines_centres": np.eye(10).tolist(),
        "cosines_members": np.eye(3).tolist(),
        "first_plane": np.arange(60).reshape(30, 2).tolist(),
    }
    matrix = [[0.1, 0.3, 0.2], [0.5, 0.1, 0.2]]  # (Q, C): worst 0.5, 0.3, 0.2
    write(made_up, "steps", lambda task: 0.0, **small)
    path = made_up / "steps.json"
    runs = store.read(path)
    path.unlink()
    for record in runs:
        rounds = {"round": range(1, 11), "B_steps": [matrix] * 9 + [[[0.0, 0.1, 0.9]]]}
        curves = {name: [*values] for name, values in rounds.items()}
        store.append(path, record | {"metrics": record["metrics"] | {"curves": curves}})
    frame = wecfl.outcomes.geometry()
    for course in frame["course"]:
        assert course["B"].tolist() == [0.5] * 9 + [0.9]
        assert course["B_median"].tolist() == [0.3] * 9 + [0.1]
    said = wecfl.words.b_in_words(frame)
    assert "largest of a round's" in said and "3 of 3 runs on CIFAR-10" in said
    assert "first step alone: in 9 of 9 runs" in said  # the geometry's own B
    assert "median cluster" in wecfl.outcomes.geometry_table(frame).text
    (close,) = [
        claim
        for claim in wecfl.claims.of_the_geometry()
        if claim.statement == wecfl.claims.B_IS_SMALL
    ]
    assert close.interval.mean == pytest.approx(-0.9)
    pairs = wecfl.claims.above_0999()
    assert pairs.interval.mean == pytest.approx(-999)  # the least is 0
    assert "(3, 3, 3 members)" in pairs.replicates
    panels = wecfl.figures.snapshots(frame, "fashion_mnist", 3).axes
    assert [ax.get_title() for ax in panels] == [f"round {t}" for t in range(1, 6)]
    titles = [ax.get_title() for ax in wecfl.figures.figure_4().axes]
    assert "CIFAR-10, centres" in titles and "Fashion-MNIST, members" in titles


def pretend(task, level: float) -> dict:
    """A record of a run that was not made: every metric has one value."""
    numbers = {name: level for name in task.curves if name != "labels"}
    curves = {name: [level] * 3 for name in numbers} | {"round": [98, 99, 100]}
    facts = {
        "key": task.key,
        "data_sha256": "0",
        "version": "0",
        "commit": "0",
        "machine": "",
        "seconds": 60.0,
        "client_updates": 1,
        "bytes": 1,
        "metrics": {"final": numbers, "curves": curves},
    }
    return task.spec() | facts


# --- the theory with noise, and IFCA --------------------------------------------------


def test_geometry_is_measured_without_a_trace():
    fed = convex()
    state = WeCFL(2).step(WeCFL(2).init(fed), fed, 0)
    before = fed.snapshot()
    found = wecfl.tasks.measure_geometry(fed, state)
    after = fed.snapshot()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    g, _ = wecfl.theory.gradient(fed, state.theta[state.labels])
    assert found["B"] == pytest.approx(
        float(clusterability(g, fed.n, state.labels).max())
    )
    assert -1 <= found["cosine_centres"] < found["cosine_members"] <= 1
    assert (
        0 < found["to_centre"] < found["between"]
    )  # two groups with different classes
    assert np.shape(found["plane"]) == (6, 2)


def test_b_is_measured_along_the_path_that_clients_take():
    """Before each step; a fresh federation tells what was sent in the first round."""
    tasks = wecfl.tasks
    part = wecfl.figures.deal_digits()[0]["α = (0.1, 10)"]
    local = Local(0.1, steps=3, batch_size=8, momentum=0.9, keep_state=True)
    net = partial(models.mlp, 64, (8,), 10)
    digits = data.load("digits")
    feds = [Federation(digits, part, net, local=local, seed=0) for _ in range(2)]
    fed, fresh = feds
    state = WeCFL(5).init(fed)
    for t in range(2):
        state = WeCFL(5).step(state, fed, t)
    before = fed.snapshot()
    found = tasks.measure_steps(fed, state)
    after = fed.snapshot()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    rows = state.theta[state.labels]
    assert np.shape(found["B_steps"]) == (3, 5)
    first = tasks.measure_geometry(fed, state)["B"]
    assert max(found["B_steps"][0]) == pytest.approx(first, abs=1e-4)
    halfway = tasks.trained_for(fed, rows, 2)
    gradients = tasks.whole_gradients(fed, halfway)
    B = clusterability(gradients, fed.n, state.labels)
    assert found["B_steps"][2] == pytest.approx(B.tolist(), abs=1e-4)
    assert torch.equal(tasks.trained_for(fed, rows, 3), fed.train(rows).theta)
    sent = fresh.train(fresh.start().repeat(fresh.K, 1)).theta
    assert torch.equal(tasks.sent_first(fed), sent)
    assert np.shape(found["cosines_centres"]) == (5, 5)
    largest = int(state.labels.bincount().max())
    assert np.shape(found["cosines_members"]) == (largest, largest)


def test_parts_of_the_released_ifca_are_tried_one_at_a_time():
    """Each arm differs from IFCA in what its name says; the released one has it all."""
    arms = wecfl.tasks.parts_of_ifca(wecfl.tasks.SCALES["laptop"])
    assert len(arms) == 7
    for row, (K, method, changes) in arms.items():
        assert K == method.clusters == 10
        assert method.aliased == row.startswith("IFCA, the slip alone")
        assert (method.batches == 3) == ("batches" in row or "released" in row)
        assert method.new_optimizer == method.pairwise == ("released" in row)
        rate = wecfl.tasks.SCALES["laptop"].local.lr
        if changes:
            rate = changes["local"].lr
        assert rate == (0.001 if row.endswith("η = 0.001") else 0.01)


def test_noise_is_zero_for_whole_gradients_and_not_for_batches():
    whole = wecfl.theory.trace(convex(), 2, 3)
    batches = wecfl.theory.trace(convex(), 2, 3, batch=4)
    assert all(line["noise"] == 0 for line in whole)
    assert all(line["noise"] > 0 for line in batches)
    assert batches[-1]["R_L"] != whole[-1]["R_L"]


def test_noise_lifts_the_promise_and_lowers_the_largest_step():
    known = {"delta": 1.0, "Q": 5, "eta": 0.05, "beta": 2.0, "B": 0.0, "U": 1.0}
    T = np.array([1.0, 10.0])
    calm = wecfl.theory.rate_bound(T, **known)
    noisy = wecfl.theory.rate_bound(T, **known, noise=4.0)
    floor = 2.0 * 0.05**2 * 4.0 / 2 / (0.05 - 2.0 * 0.05**2 / 2)
    assert noisy - calm == pytest.approx([floor, floor])
    steps = [
        wecfl.theory.largest_step(np.array([2.0]), np.array([0.5]), 1.0, 2.0, noise)
        for noise in (0.0, 1.0)
    ]
    assert steps[0] == pytest.approx([0.75]) and steps[1] == pytest.approx([0.5])


def test_theorem_6_8_has_a_step_for_copies_and_hardly_one_for_real_groups():
    theory = wecfl.theory
    copies = theory.toy(copies=True)
    assert (theory.allowed(copies) > theory.ETA).all()
    assert (copies["R_L"] < copies["R_E"]).all()
    # as printed the theorem also asks for Theorem 6.2's bound, and that is zero here
    assert copies["F_M"].max() < 1e-20
    real = theory.toy()
    whole_run = theory.allowed(real)
    assert (whole_run <= theory.allowed(real, U=real["U"]) + 1e-12).all()
    assert (whole_run > 0).sum() < 5
    assert (theory.allowed(theory.toy(batch=16)) > 0).sum() <= (whole_run > 0).sum()


def test_theorem_6_9_can_fail_for_copies_only():
    """Elsewhere the promise lies above U², so it is not counted as a test."""
    theory = wecfl.theory
    said = theory.promise(theory.toy(copies=True))
    assert said["promised"].min() < said["U"].max() ** 2 / 4
    for past in (theory.toy(), theory.toy(batch=16)):
        said = theory.promise(past)
        assert said["promised"].min() > said["U"].max() ** 2
    judged = {c.statement: c.verdict for c in wecfl.claims.of_the_theory()}
    vacuous = "The squared gradient stays below that rate with unlike members or noise"
    assert judged[vacuous] == "not testable"
    assert list(judged.values()).count("holds") == 4
    assert list(judged.values()).count("not testable") == 3


def test_ifca_falls_and_choosing_never_hurts():
    for line in wecfl.theory.ifca_trace(convex(), 2, 8, Q=3, eta=0.1):
        assert line["R_E"] <= line["R_0"] + 1e-12
        assert line["R_L"] <= line["R_E"]
        assert line["R_M"] <= line["R_0"] + 1e-12


def test_pictures_and_claims_of_the_geometry(monkeypatch):
    rng = np.random.default_rng(0)
    rounds = np.arange(1, 7)
    lines = []
    paths = []
    for dataset in ("fashion_mnist", "cifar10"):
        for seed in (0, 1):
            course = pd.DataFrame(
                {
                    "round": rounds,
                    "B": 0.1 * rounds + 0.01 * seed,
                    "B_median": 0.05 * rounds,
                    "cosine_members": 0.999 - 0.001 * seed,
                    "cosine_centres": 0.93,
                    "to_centre": 1.0 / rounds + 0.1 * seed / rounds,
                    "between": 1.0 * rounds + 0.1 * seed * rounds,
                    "plane": [rng.normal(size=(4, 2)).tolist() for _ in rounds],
                    "labels": [[0, 0, 1, 1] for _ in rounds],
                }
            )
            tags = {"dataset": dataset, "K": 10, "row": "K = 10", "seed": seed}
            lines.append(tags | {"course": course})
            kept = {
                "cosines_members": [[1.0, 0.99], [0.99, 1.0]],
                "first_plane": rng.normal(size=(4, 2)).tolist(),
            }
            paths.append(tags | kept)
    frame = pd.DataFrame(lines)
    monkeypatch.setattr(wecfl.outcomes, "geometry", lambda: frame)
    monkeypatch.setattr(wecfl.outcomes, "steps", lambda: pd.DataFrame(paths))
    verdicts = {c.statement: c.verdict for c in wecfl.claims.of_the_geometry()}
    assert verdicts == {
        "Members of a cluster are more alike than centres": "holds",
        "Any two members of a cluster have a cosine above 0.999": "fails",
        "Members of a cluster have cosines above 0.999, on average": "open",
        "Clients come closer to their centre": "holds",
        "Centres move apart": "holds",
        "Members of a cluster agree: B is close to zero": "fails",
        "B gets better and better": "fails",
    }
    for claim in wecfl.claims.of_the_geometry():  # each on the ground it was made for
        of_figure_4 = claim.where == "8.3, Figure 4"
        assert ("CIFAR-10" in claim.replicates) == of_figure_4
        assert ("Fashion-MNIST" in claim.replicates) == (claim.where == "B.2")
    on_cifar = wecfl.claims.closer_on_cifar()
    assert on_cifar.ours and on_cifar.verdict == "holds"
    *panels, key = wecfl.figures.geometry_curves(frame).axes
    assert len(panels) == 5 and key.get_legend() is not None
    assert "cosine of centres: 0.930" in wecfl.outcomes.geometry_table(frame).text
    pictures = wecfl.figures.snapshots(frame, "fashion_mnist", 10)
    assert [ax.get_title() for ax in pictures.axes] == [
        f"round {t}" for t in range(1, 6)
    ]


def test_ratios_are_judged_by_factors_and_seeds():
    """Two data sets dealt with one seed have the same shares: one replicate."""
    pairs = [(0, 2.0), (0, 8.0), (1, 1.0), (1, 1.0)]
    found = wecfl.claims.by_factors(pairs)
    logs = mean_of(np.log([4.0, 1.0]))
    assert found == pytest.approx(tuple(np.exp(logs)))
    assert found.mean == pytest.approx(2.0)


def test_b_is_not_close_to_zero_at_our_line():
    of = {c.statement: c for c in wecfl.claims.of_the_geometry()}
    claim = of["Members of a cluster agree: B is close to zero"]
    assert claim.verdict == "fails"
    assert wecfl.outcomes.WHICH_STEPS in claim.replicates
    said = wecfl.words.look_at_b([*of.values()])
    assert (
        f"at 1 the verdict would be *{replace(claim, threshold=-1.0).verdict}*" in said
    )


def test_settled_wecfl_is_the_oracle_to_the_last_digit():
    claim = wecfl.claims.like_the_oracle()
    assert claim.verdict == "holds" and claim.interval.mean >= 3


# --- who holds which classes ----------------------------------------------------------


def test_classes_are_those_that_data_and_seed_give():
    name = wecfl.deals.DATASET
    if not (REAL / f"{name}.npz").is_file():
        pytest.skip(f"no {name}.npz in FEDNB_DATA or ../shared/data")
    dataset = data.load(name, REAL)
    y = dataset.y[: dataset.n_train]
    for (setting, seed), (counts, truth) in wecfl.deals.read().items():
        again = wecfl.deals.deal(setting, seed, y)
        assert again["counts"] == counts.tolist()
        assert again["truth"] == (None if truth is None else truth.tolist())


def test_classes_are_kept_for_every_picture():
    found = wecfl.deals.read()
    assert {name for name, seed in found if seed == 0} == {*wecfl.outcomes.SETTINGS}
    for counts, truth in found.values():
        assert counts.shape == (30, 10) and counts.sum() < 6000  # a fifth is for tests
        assert truth is None or len(truth) == 30
    runs = wecfl.outcomes.geometry()
    seeds = set(runs[runs["dataset"] == wecfl.deals.DATASET]["seed"])
    assert {("α = (0.1, 10)", seed) for seed in seeds} <= set(found)


def test_the_majority_class_by_hand():
    train = np.array([[5, 1, 0], [0, 2, 3]])
    test = np.array([[3, 1, 0], [0, 1, 1]])
    found = common.majority_scores(train, test)
    assert found["accuracy_weighted"] == pytest.approx(4 / 6)
    assert found["accuracy"] == pytest.approx((3 / 4 + 1 / 2) / 2)
    assert found["balanced_accuracy"] == pytest.approx(1 / 2)
    f1 = (2 * 3 / (4 + 3) / 2 + 2 * 1 / (2 + 1) / 2) / 2  # the other class has none
    assert found["macro_f1"] == found["macro_f1_union"] == pytest.approx(f1)


def test_every_deal_of_both_tables_has_its_majority_class():
    for profile, seeds in (("laptop", 3), ("paper", 5)):
        found = wecfl.deals.read_majority(profile)
        assert len(found) == 2 * 4 * seeds
        assert found["accuracy_weighted"].between(0.4, 0.8).all()
    both = wecfl.outcomes.both()
    assert both["row"].eq("Majority class").sum() == 24
    assert set(both[both["K"] == 0]["row"]) == {"Majority class"}
    runs = both[both["row"] == "FedAvg"].assign(seed=99)
    with pytest.raises(ValueError, match=r"lacks 8 of 8"):
        wecfl.outcomes.with_majority(runs, "laptop")


@pytest.mark.parametrize("table", wecfl.deals.DEALT)
def test_what_a_client_holds_does_not_depend_on_the_order_of_images(table):
    """So the deals at the paper's scale can be counted without the images."""
    task = wecfl.tasks.TABLES[table]("paper")[0]
    y, y_test = wecfl.deals.whole(task.dataset)
    mixed = np.random.default_rng(0).permutation(y)
    one, other = (wecfl.deals.dealt_counts(task, v, y_test) for v in (y, mixed))
    for a, b in zip(one, other, strict=True):
        assert np.array_equal(a, b)
    lines = wecfl.deals.read_majority("paper")
    here = lines["dataset"].eq(task.dataset) & lines["seed"].eq(task.seed)
    (line,) = lines[here & lines["setting"].eq(task.tags["setting"])].to_dict("records")
    scores = common.majority_scores(*one)
    assert scores == pytest.approx({name: line[name] for name in scores}, abs=1e-6)


def test_the_majority_class_stands_beside_wecfl_and_the_paper():
    table, leads = wecfl.outcomes.labels_alone()
    majority = wecfl.deals.read_majority("paper")
    here = majority["dataset"].eq("cifar10") & majority["setting"].eq("2-class")
    level = 100 * majority[here]["accuracy_weighted"].mean()
    assert leads.loc["2-class", ("paper", 10)] == pytest.approx(66.8 - level)
    assert f"{level:.1f} (" in table.text
    five, ten = (wecfl.claims.beyond_labels(K) for K in (5, 10))
    assert five.interval.mean == pytest.approx(leads["ours", 5].mean())
    assert ten.interval.mean == pytest.approx(leads["ours", 10].mean())
    assert "gives 53 to 70 %" in wecfl.words.labels_in_words()


def test_torn_and_merged_groups_are_told_with_their_sizes():
    words = wecfl.words.torn_and_merged(wecfl.outcomes.geometry())
    assert "seed 0: as dealt" in words
    counts, truth = wecfl.deals.read()["α = (0.1, 10)", 1]
    assert f"group 7 ({counts[truth == 7].sum()} samples) is torn" in words
    assert wecfl.outcomes.exact_recoveries() == {"FeSEM": 3, "WeCFL": 1}
    above, below = wecfl.figures.before_and_after(wecfl.outcomes.geometry(), 1).axes
    assert above.get_title() == "hidden groups"
    assert below.get_title() == "clusters found"


def test_runs_of_one_federation_are_averaged():
    """A seed's runs with different K share data and start: they are one replicate."""
    lines = []
    for K, seed, end in [(10, 0, 3.0), (3, 0, 4.0), (10, 1, 5.0), (3, 1, 4.0)]:
        course = pd.DataFrame({"B": [1.0, end]})
        tags = {"dataset": "fashion_mnist", "K": K, "seed": seed}
        lines.append(tags | {"course": course})
    found = wecfl.claims.change(pd.DataFrame(lines), "B", -1)
    assert found == pytest.approx(mean_of([-2.5, -3.5]))
    as_if_apart = mean_of([-2.0, -3.0, -4.0, -3.0])
    assert as_if_apart.high < 0 < found.high


def test_clients_with_the_same_classes_are_found_without_the_data():
    scale = wecfl.tasks.SCALES["paper"]
    labels = wecfl.tasks.classes_held(scale, "cifar10", "(3, 2)-class", seed=1)
    y = np.random.default_rng(0).permutation(np.arange(50_000) % 10)  # another order
    part = wecfl.tasks.law(scale, "(3, 2)-class")(y, seed=1)
    held = [frozenset(np.unique(y[samples])) for samples in part.train]
    assert len(labels) == 200 and {*map(len, held)} == {2}
    together = labels[:, None] == labels
    assert (together == (np.array(held)[:, None] == np.array(held))).all()
    same, wecfl_too = wecfl.tasks.TABLES["scale_same_classes"]("paper")[2:4]
    assert same.method.labels == tuple(labels)
    assert wecfl_too.method.clusters == wecfl_too.tags["K"] == labels.max() + 1


def test_classes_per_model_are_counted_by_their_entropy():
    counts = np.array([[5, 5, 0, 0], [0, 5, 5, 0], [0, 0, 0, 20]])
    count = wecfl.deals.classes_per_model
    assert count(counts, np.zeros(3, int)) == pytest.approx(
        np.exp(-(2 * np.log(1 / 8) / 8 + np.log(1 / 4) / 4 + np.log(1 / 2) / 2))
    )
    assert count(counts, np.arange(3)) == pytest.approx((2 * 10 + 2 * 10 + 20) / 40)


def test_rows_stand_by_the_classes_that_their_models_tell_apart():
    frame = wecfl.outcomes.company()
    assert set(frame["seed"]) <= set(wecfl.outcomes.own_scale()["seed"])
    assert frame.groupby("seed").size().nunique() == 1  # every row has all the seeds
    seed = frame[frame["seed"] == 0].set_index(["row", "K"])
    one_for_all = seed.loc[("FedAvg", 1)]
    assert one_for_all["classes"] == pytest.approx(10)  # all, in equal shares
    assert seed.loc[("LocalOnly", 200), "classes"] < 2  # two, in unequal shares
    own = wecfl.outcomes.own_scale()
    mine = own[own["row"].eq("FedAvg") & own["seed"].eq(0)]["accuracy_weighted"].item()
    assert one_for_all["accuracy_weighted"] == pytest.approx(mine, abs=1e-4)
    labels = [
        t.get_text() for t in wecfl.figures.draw_company().axes[0].get_yticklabels()
    ]
    assert "FedAvg (10.0)" in labels[-2:]  # the other is IFCA's one model
    classes = [float(label.rpartition("(")[2][:-1]) for label in labels]
    assert classes == sorted(classes)


def test_sharing_among_clients_with_the_same_classes_is_judged_from_three_seeds(
    monkeypatch,
):
    rows = {
        "LocalOnly": [0.80, 0.80, 0.80],
        "Same pair of classes": [0.84, 0.86, 0.85],
        "WeCFL, K = pairs of classes": [0.83, 0.83, 0.83],
    }
    wide = pd.DataFrame(rows, index=pd.Index([0, 1, 2], name="seed"))
    for seeds in (0, 1, 2, 3):
        some = wide.head(seeds)
        monkeypatch.setattr(wecfl.outcomes, "company_by_seed", lambda some=some: some)
        found = wecfl.claims.of_same_classes()
        assert len(found) == (2 if seeds > 1 else 0)
        if seeds:
            assert "the lead is +3.0" in wecfl.words.with_the_same_classes()
        if seeds == 2:
            assert {claim.verdict for claim in found} == {"open"}
    assert [claim.interval.mean for claim in found] == pytest.approx([5.0, 3.0])
    assert all(claim.ours and "3 seeds" in claim.statement for claim in found)
    assert {claim.verdict for claim in found} == {"holds"}


def test_without_runs_at_the_papers_scale_nobody_is_in_company(made_up):
    pretend_seeds(made_up, 0)
    assert len(wecfl.outcomes.company()) == 0


def test_told_their_number_wecfl_finds_the_clients_with_the_same_classes():
    """What the page says, from the memberships of the records."""
    records = tables.by_key(results("wecfl") / "scale_same_classes.json")
    tasks = wecfl.tasks.TABLES["scale_same_classes"]("paper")
    numbers = []
    for pair in (tasks[:2], tasks[2:4]):  # two seeds
        same, found = (
            np.array(records[task.key]["metrics"]["curves"]["labels"][-1])
            for task in pair
        )
        assert ((same[:, None] == same) == (found[:, None] == found)).all()
        numbers.append(len(np.unique(same)))
    assert numbers == [20, 24]


def test_the_control_at_the_papers_scale_waits_for_its_table(made_up):
    """Seeds of the control alone are no seeds of the cell."""
    pretend_seeds(made_up, 1)
    path = made_up / "scale_same_classes.json"
    for task in wecfl.tasks.TABLES["scale_same_classes"]("paper")[:4]:
        store.append(path, pretend(task, 0.8))
    wecfl.outcomes.own_scale.cache_clear()
    own = wecfl.outcomes.own_cell("cifar10", "(3, 2)-class")
    assert set(own["seed"]) == {0}
    assert "Same pair of classes" in set(own["row"])
    assert wecfl.claims.at_the_papers_scale() == []
