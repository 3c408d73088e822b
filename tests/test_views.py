"""The door: federation and views answer all its verbs, and views change no bit."""

import inspect

import numpy as np
import pytest
import torch

from fednb import methods
from fednb.door import Fed, Judge
from fednb.experiment import measure, run, run_together
from fednb.federation import ClientError, Federation
from fednb.methods import CFL, OCFL, FedAvg, FedCVRBolt, FixedClusters, LocalOnly
from fednb.training import Local
from fednb.views import Arms, SharedTraining, Subfederation

from .conftest import federation

SIZES = (9, 14, 7, 20, 11, 8)


def toy(**options):
    options = {"lr": 0.05, "batch_size": 5, "momentum": 0.5} | options
    truth = [0, 0, 0, 1, 1, 1]
    return federation(sizes=SIZES, truth=truth, local=Local(**options))


def verbs(protocol):
    return [name for name in vars(protocol) if not name.startswith("_")]


def members_only(fed):
    return Subfederation(fed, torch.tensor([0, 2, 3, 5]))


def with_a_sample(fed):
    members = torch.tensor([0, 2, 3, 5])
    return Subfederation(fed, members, sampled=members[1:3])


VIEWS = {
    "federation": lambda fed: fed,
    "members": members_only,
    "sampled": with_a_sample,
    "shared": SharedTraining,
    "nested": lambda fed: Subfederation(members_only(fed), torch.tensor([1, 3])),
    "shared members": lambda fed: members_only(SharedTraining(fed)),
}
FIELDS = ("K", "n", "t", "classes", "local", "layout", "device", "dtype")


@pytest.fixture(params=VIEWS)
def view(request):
    return VIEWS[request.param](toy())


def test_the_protocols_name_what_there_is():
    assert verbs(Fed) == [
        *("start", "sample", "tickets", "draw", "train", "loss", "best_share"),
        *("probe", "predict"),
    ]
    assert tuple(Fed.__annotations__) == FIELDS
    hidden = {"backend", "batch_stats", "diverged", "identity"}
    public = {name for name in dir(toy()) if not name.startswith("_")}
    both = {*verbs(Fed), *verbs(Judge), *FIELDS, *Judge.__annotations__}
    assert public == both | hidden


@pytest.mark.parametrize("verb", verbs(Fed))
def test_every_view_has_every_verb_with_its_signature(view, verb):
    wanted = inspect.signature(getattr(Fed, verb))
    without_self = wanted.replace(parameters=[*wanted.parameters.values()][1:])
    assert inspect.signature(getattr(view, verb)) == without_self


@pytest.mark.parametrize("verb", verbs(Judge))
def test_judges_verbs_are_the_federations_only(view, verb):
    if isinstance(view, Federation):
        wanted = getattr(Judge, verb)
        found = getattr(Federation, verb)
        if not isinstance(wanted, property):
            assert inspect.signature(found) == inspect.signature(wanted)
        return
    if isinstance(view, SharedTraining) and verb in ("snapshot", "restore"):
        return  # for arms that run a second method beside their own
    with pytest.raises(AttributeError, match="for judges; ask the federation"):
        getattr(view, verb)
    with pytest.raises(AttributeError, match="has no nonsense"):
        _ = view.nonsense


def test_every_view_has_the_fields(view):
    assert len(view.n) == view.K and view.t == 0
    assert view.start().shape[1] == view.layout.D
    assert view.start().dtype == view.dtype and view.start().device == view.device
    assert view.classes == 3 and view.local == toy().local


def test_every_verb_works_in_every_view(view):
    K = view.K
    theta = view.start(2)
    first = torch.tensor([0])
    assert theta.shape == (2, view.layout.D)
    sampled = view.sample()
    assert len(sampled) >= 1 and int(sampled.max()) < K
    assert view.tickets().shape == (K,)
    assert isinstance(view.draw(), int)
    update = view.train(theta[0], first, steps=2, slot=1, travels=False)
    assert update.theta.shape == theta[:1].shape and update.clients.tolist() == [0]
    pull = {"correct": lambda g, th, w: g + th - w, "args": (theta[:1],)}
    assert view.train(theta[0], first, **pull).theta.isfinite().all()
    assert view.train(theta[0]).clients.tolist() == list(range(K))
    assert view.loss(theta).shape == (K, 2)
    some = view.loss(theta[0], first, "test", batches=1, draw=3, travels=False)
    assert some.shape == (1,)
    assert view.best_share(theta).sum(1).tolist() == pytest.approx([1.0] * K)
    x, y = view.probe(2)
    assert view.predict(theta, x).shape == (2, len(y), 3)


@pytest.mark.parametrize("wrong", [[99], [-1], [0.5], [True]])
@pytest.mark.parametrize("verb", ["train", "loss", "best_share", "sample"])
def test_clients_that_a_view_does_not_have_are_refused(view, verb, wrong):
    clients = torch.tensor(wrong)
    given = (1, clients) if verb == "sample" else (view.start()[0], clients)
    with pytest.raises(ValueError, match=f"^{verb}: "):
        getattr(view, verb)(*given)


@pytest.mark.parametrize("members", [[], [2, 1], [1, 1], [0, 6]])
def test_members_are_checked(members):
    with pytest.raises(ValueError, match=r"Subfederation\(members\)"):
        Subfederation(toy(), torch.tensor(members))


def test_the_sampled_are_members():
    with pytest.raises(ValueError, match="need members only"):
        Subfederation(toy(), torch.tensor([0, 1]), torch.tensor([2]))


def test_losses_are_those_of_the_sampled():
    for make in (members_only, with_a_sample):
        with pytest.raises(ValueError, match="none yet"):
            _ = make(toy()).losses


def test_a_subfederation_speaks_of_its_members():
    fed, twin = toy(), toy()
    view = members_only(fed)
    theta = fed.start(2)
    inside = torch.tensor([False, True, False, True])
    outside = torch.tensor([2, 5])
    assert torch.equal(view.loss(theta, inside), twin.loss(theta, outside))
    few = {"batches": 1, "draw": 4}
    assert torch.equal(view.loss(theta, **few), twin.loss(theta, **few)[[0, 2, 3, 5]])
    shares = view.best_share(theta, inside)
    assert torch.equal(shares, twin.best_share(theta, outside))
    assert torch.equal(view.tickets(), twin.tickets()[[0, 2, 3, 5]])
    drawn = view.sample(2, among=inside)
    assert drawn.tolist() == [1, 3]
    fed.t = 7
    assert view.t == 7


def test_a_given_sample_can_be_restricted():
    view = with_a_sample(toy())
    assert view.sample(1).tolist() == [1, 2]
    assert view.sample(among=torch.tensor([2, 3])).tolist() == [2]


def cheap(cls):
    """A method with settings in which the toy federation sees more than its start."""
    if cls is FixedClusters:
        return cls([0, 1, 0, 1, 2, 2])
    if cls is FedCVRBolt:
        return cls(sampled=3, warmup=1)
    if cls is OCFL:
        return cls(at=2)
    if cls is CFL:
        return cls(wait=1, eps1=2.0, eps2=0.0)
    return cls()


def same_bits(a, b) -> bool:
    """Whether two states of tensors, dicts and tuples are equal to the last bit."""
    if isinstance(a, tuple):
        return all(same_bits(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_bits(a[k], b[k]) for k in a)
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def steps(method, fed, rounds=3, look=lambda fed: fed):
    """A method's state after some rounds in a view of a federation."""
    state = method.init(look(fed))
    for t in range(rounds):
        fed.t = t
        state = method.step(state, look(fed), t)
    return state


@pytest.mark.parametrize("keep_state", [False, True])
@pytest.mark.parametrize("cls", methods.ALL, ids=lambda cls: cls.__name__)
def test_every_method_is_the_same_in_a_cluster_of_all(cls, keep_state):
    alone, whole = (toy(keep_state=keep_state) for _ in range(2))
    everyone = torch.arange(alone.K)
    outside = steps(cheap(cls), alone)
    inside = steps(cheap(cls), whole, look=lambda fed: Subfederation(fed, everyone))
    assert same_bits(outside, inside)
    assert same_bits(alone.snapshot(), whole.snapshot())


@pytest.mark.parametrize("cls", methods.ALL, ids=lambda cls: cls.__name__)
def test_every_method_runs_in_a_part(cls):
    """It trains members only."""
    method = cheap(cls)
    if cls is FixedClusters:
        method = cls([0, 1, 0, 1])
    fed = toy()
    state = steps(method, fed, 2, members_only)
    assert torch.as_tensor(state.labels).shape == (4,)
    assert fed.snapshot()["visits"][[1, 4]].tolist() == [0, 0]
    assert fed.meter.updates > 0


# --- several methods in step ----------------------------------------------------------

ARMS = {"FedAvg": FedAvg(), "LocalOnly": LocalOnly(), "OCFL": OCFL(at=2)}
ARMS |= {"some": FedAvg(2), "IFCA": methods.IFCA(2)}


def test_arms_that_run_together_have_histories_as_alone():
    histories = run_together(ARMS, toy(), 3, progress=False)
    assert list(histories) == list(ARMS)
    for name, method in ARMS.items():
        fed = toy()
        alone = run(method, fed, 3, progress=False)
        arm = histories[name]
        drop = ["seconds", "server_seconds"]
        rows = [{k: v for k, v in row.items() if k not in drop} for row in arm.rows]
        want = [{k: v for k, v in row.items() if k not in drop} for row in alone.rows]
        assert rows == want, name
        assert same_bits(tuple(arm.state), tuple(alone.state)), name
        assert arm.meter == alone.meter == fed.meter, name
        assert list(arm.frame().columns) == list(alone.frame().columns)


def test_what_arms_share_is_done_once():
    fed = toy()
    twins = {"one": FedAvg(), "other": FedAvg()}
    histories = run_together(twins, fed, 2, every=2, progress=False)
    assert fed.meter.updates == 2 * fed.K
    assert [h.meter.updates for h in histories.values()] == [2 * fed.K] * 2
    assert [len(h) for h in histories.values()] == [1, 1]


class Beside:
    """FedAvg, which trains another model first and does not count that."""

    def init(self, fed):
        return FedAvg().init(fed)

    def step(self, state, fed, t):
        before = fed.snapshot()
        fed.train(state.theta[0] + 1)
        fed.restore(before)
        return FedAvg().step(state, fed, t)


def test_work_that_an_arm_does_not_count_was_done():
    fed = toy()
    arms = {"FedAvg": FedAvg(), "beside": Beside(), "too": Beside()}
    histories = run_together(arms, fed, 2, progress=False)
    alone = run(FedAvg(), toy(), 2, progress=False).meter
    assert [history.meter for history in histories.values()] == [alone] * 3
    assert fed.meter.updates == 2 * alone.updates  # both models, once each
    assert fed.meter.bytes == 2 * alone.bytes
    assert fed.snapshot()["visits"].tolist() == [4] * 6


def test_a_state_need_not_keep_updates():
    arms = tuple(ARMS.items())
    for keep in (True, False):
        fed = toy()
        method = Arms(arms, keep_updates=keep)
        state = method.step(method.init(fed), fed, 0)
        assert len(state.sent) == len(state.back) == (len(arms) if keep else 0)


def test_a_measure_sees_the_arms_own_federation():
    def visits(fed, state):
        return {"visits": int(fed.snapshot()["visits"].sum()), "sent": fed.meter.up}

    arms = {"all": FedAvg(), "two": FedAvg(2), "own": LocalOnly()}
    histories = run_together(arms, toy(), 2, measure=visits, progress=False)
    row = toy().start().nbytes
    assert [h.final["visits"] for h in histories.values()] == [12, 4, 12]
    assert [h.final["sent"] for h in histories.values()] == [12 * row, 4 * row, 0]


def test_arms_are_resumed(tmp_path):
    whole = run_together(ARMS, toy(), 4, progress=False)
    options = {"checkpoint": tmp_path / "c.npz", "progress": False}
    run_together(ARMS, toy(), 2, **options)
    resumed = run_together(ARMS, toy(), 4, **options)
    for name in ARMS:
        assert resumed[name].meter == whole[name].meter
        assert same_bits(tuple(resumed[name].state), tuple(whole[name].state))
        last = [h[name].final for h in (resumed, whole)]
        assert [row["accuracy"] for row in last] == [last[0]["accuracy"]] * 2
        assert len(resumed[name]) == 4


def test_arms_need_names():
    with pytest.raises(ValueError, match="need one method at least"):
        run_together({}, toy(), 1)
    with pytest.raises(TypeError, match="is no method"):
        run_together({"a": 3}, toy(), 1)
    with pytest.raises(ValueError, match="need one method at least"):
        Arms(())


def test_a_run_has_its_meter():
    fed = toy()
    history = run(FedAvg(), fed, 2, progress=False)
    assert history.meter == fed.meter and history.meter.updates == 12


# --- the judge ------------------------------------------------------------------------


def test_a_judge_costs_nothing():
    fed = toy()
    theta = fed.start(2)
    labels = torch.zeros(6, dtype=torch.long)
    measure(fed, FedAvg().init(fed))
    fed.evaluate(theta, labels)
    losses = fed.unmetered_loss(theta)
    fed.samples(fed.sample_numbers())
    fed.network(theta[0])
    assert fed.meter == toy().meter
    assert torch.equal(losses, fed.loss(theta, on="test"))
    assert torch.equal(losses[:, 0], fed.unmetered_loss(theta[0]))
    for on in ("train", "test"):
        found = fed.unmetered_loss(theta, torch.tensor([4]), on)
        assert torch.equal(found, fed.loss(theta, torch.tensor([4]), on))
    with pytest.raises(ValueError, match="on='server'"):
        fed.unmetered_loss(theta, on="server")


def test_sample_numbers_are_those_of_the_partition():
    fed = toy()
    assert fed.sample_numbers([1, 0]).tolist() == [*range(27, 31), *range(9, 13)]
    assert fed.sample_numbers([0], "train").tolist() == list(range(9))
    assert fed.sample_numbers([]).tolist() == []
    server = fed.sample_numbers(on="server").tolist()
    assert server == list(range(93, 123))
    with pytest.raises(ValueError, match="on='all'"):
        fed.sample_numbers(on="all")
    with pytest.raises(ValueError, match="0..5"):
        fed.sample_numbers([6])


def test_a_network_of_a_row_predicts_as_the_federation_does():
    fed = federation("cnn_bn")
    theta = fed.train(fed.start()[0]).theta
    x, _ = fed.probe(3)
    module = fed.network(theta[2])
    with torch.no_grad():
        torch.testing.assert_close(module(x), fed.predict(theta[2], x))
        next(module.parameters()).zero_()  # it shares nothing with the rows
    assert torch.equal(fed.layout.row(fed.network(theta[2])), theta[2])
    with pytest.raises(ValueError, match="network: 4 rows"):
        fed.network(theta)
    with pytest.raises(ValueError, match=r"network: theta of shape"):
        fed.network(theta[0, :-1])


def test_a_judged_model_that_is_not_finite_is_reported():
    fed = toy()
    with pytest.raises(ClientError, match="NaN or infinite"):
        fed.unmetered_loss(torch.full_like(fed.start()[0], torch.nan))
