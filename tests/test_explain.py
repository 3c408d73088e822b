"""Saliency maps, insertion and deletion, critical differences: slow twins and cases
whose answer is known.
"""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from fednb import models, ranks, reference
from fednb.methods import FixedClusters
from fednb.methods.fixed_clusters import State
from fednb.papers.ocfl import explain

from .conftest import NETWORKS, federation

quick = settings(deadline=None, max_examples=40)


class Corner(nn.Module):
    """Says class 1 exactly as loud as the top left 2 x 2 pixels are bright, and looks
    nowhere else.
    """

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1, bias=False)
        nn.init.ones_(self.conv.weight)

    def forward(self, x):
        loud = self.conv(x)[:, :, :2, :2].sum((1, 2, 3))
        return torch.stack([torch.zeros_like(loud), loud], 1)


def corner_map(n, H=4, W=4, value=1.0):
    maps = torch.zeros(n, H, W)
    maps[:, :2, :2] = value
    return maps


# --- networks and maps ----------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_predicts_what_its_row_predicts(name):
    fed = federation(name)
    up = fed.train(fed.start()[0])
    x, before = torch.randn(5, *NETWORKS[name][0]), torch.get_rng_state()
    module = explain.network(NETWORKS[name][1], up.theta[1])
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(module(x), fed.predict(up.theta[1], x))
    assert not module.training


def test_a_network_is_no_view_of_its_row():
    fed = federation()
    row = fed.start()[0]
    module = explain.network(NETWORKS["mlp"][1], row)
    next(module.parameters()).data.zero_()
    assert torch.equal(row, fed.start()[0])
    with pytest.raises(ValueError, match="the same recipe"):
        explain.network(NETWORKS["mlp"][1], row[:-1])


def test_gradcam_by_hand():
    """Weights are the mean gradients of the class score, the map their sum over
    channels, without what is negative.
    """
    torch.manual_seed(0)
    module = models.lenet5((3, 16, 16), 4).eval()
    x, y = torch.randn(3, 3, 16, 16), torch.tensor([0, 3, 1])
    maps = explain.gradcam(module, x, y, batch=2)
    seen = (
        module[:4](x).detach().requires_grad_()
    )  # (3, 16, h, w), the last convolution
    score = module[4:](seen).gather(1, y[:, None]).sum()
    weight = torch.autograd.grad(score, seen)[0].mean((2, 3), keepdim=True)
    small = (weight * seen).sum(1, keepdim=True).relu()
    expected = nn.functional.interpolate(small, (16, 16), mode="bilinear")[:, 0]
    torch.testing.assert_close(maps, expected, rtol=1e-4, atol=1e-6)
    assert maps.shape == (3, 16, 16) and maps.min() >= 0 and not maps.requires_grad


def test_gradcam_sees_where_the_evidence_is():
    """The map of a convolution is bright where it is; a network that adds up the left
    half looks there.
    """
    module = nn.Sequential(
        nn.Conv2d(1, 1, 1, bias=False), nn.Flatten(), nn.Linear(16, 2, bias=False)
    )
    nn.init.ones_(module[0].weight)
    nn.init.ones_(module[2].weight)
    x = torch.zeros(1, 1, 4, 4)
    x[..., :2] = 1
    maps = explain.gradcam(module, x, torch.tensor([1]))
    assert (maps[..., :2] > 0).all() and (maps[..., 2:] == 0).all()


def test_gradcam_of_frozen_networks_and_of_layers_changed_in_place():
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 36, 4)]
    module = nn.Sequential(*layers).eval()
    x, y = torch.randn(5, 1, 8, 8), torch.arange(5) % 4
    expected = explain.gradcam(module, x, y)
    assert expected.max() > 0
    layers[1].inplace = True
    assert torch.equal(explain.gradcam(module, x, y), expected)
    with torch.no_grad():
        assert torch.equal(explain.gradcam(module, x, y), expected)
    assert torch.equal(explain.gradcam(module.requires_grad_(False), x, y), expected)
    assert not layers[0]._forward_hooks


def test_gradcam_needs_a_convolution():
    with pytest.raises(ValueError, match="convolution"):
        explain.gradcam(
            models.mlp(16, (4,), 2), torch.zeros(1, 1, 4, 4), torch.tensor([0])
        )


def test_blur():
    x = torch.randn(2, 3, 9, 7, dtype=torch.float64)
    soft = explain.blur(x)
    assert soft.shape == x.shape and soft.std() < 0.5 * x.std()
    torch.testing.assert_close(
        explain.blur(torch.full_like(x, 3.0)), torch.full_like(x, 3.0)
    )
    torch.testing.assert_close(explain.blur(x, size=1), x)
    wide = np.pad(x[0, 1].numpy(), 1, mode="edge")
    g = np.exp(-np.array([1.0, 0, 1]) / 2)
    kernel = np.outer(g, g) / g.sum() ** 2
    assert explain.blur(x, 3, 1.0)[0, 1, 4, 5] == pytest.approx(
        (wide[4:7, 5:8] * kernel).sum()
    )


# --- curves ---------------------------------------------------------------------------


@quick
@given(
    st.integers(1, 4),
    st.sampled_from([1, 3, 4, 16, 20]),
    st.sampled_from(["deletion", "insertion"]),
    st.integers(1, 9),
    st.integers(0, 99),
)
def test_curves_agree_with_their_loop(n, step, kind, batch, seed):
    g = torch.Generator().manual_seed(seed)
    module = models.mlp(32, (5,), 3).double().eval()
    x, blank = (
        torch.randn(n, 2, 4, 4, generator=g, dtype=torch.float64) for _ in range(2)
    )
    maps = torch.randint(0, 6, (n, 4, 4), generator=g).double()  # with ties
    y = torch.randint(0, 3, (n,), generator=g)
    found = explain.curve(module, x, y, maps, kind, step=step, blank=blank, batch=batch)
    assert found.shape == (n, -(-16 // step) + 1)
    for i in range(n):

        def predict(image, i=i):
            return module(torch.as_tensor(image)[None]).softmax(1)[0, y[i]].item()

        ends = (x[i], blank[i]) if kind == "deletion" else (blank[i], x[i])
        loop = reference.pixel_curve(
            predict, *(e.numpy() for e in ends), maps[i].numpy(), step
        )
        assert found[i].tolist() == pytest.approx(loop, abs=1e-12)
        assert explain.area(found[i]).item() == pytest.approx(
            reference.trapezoid(loop), abs=1e-12
        )


def test_a_right_map_wins_and_a_wrong_one_loses():
    """Four bright pixels decide. Deleted first, the class dies in four steps; deleted
    last, in the last four.
    """
    module, x, y = Corner(), torch.full((2, 1, 4, 4), 5.0), torch.tensor([1, 1])
    nothing = torch.zeros_like(x)
    areas = {
        (kind, value): explain.area(
            explain.curve(
                module, x, y, corner_map(2, value=value), kind, step=1, blank=nothing
            )
        )
        for kind in ("insertion", "deletion")
        for value in (1.0, -1.0)
    }
    assert (areas["deletion", 1.0] < areas["deletion", -1.0]).all()
    assert (areas["insertion", 1.0] > areas["insertion", -1.0]).all()
    down = explain.curve(
        module, x, y, corner_map(2), "deletion", step=1, blank=nothing
    )[0]
    loud = torch.tensor([20.0, 15, 10, 5, *[0] * 13])
    torch.testing.assert_close(down, loud.sigmoid())


def test_deletion_and_insertion_start_and_end_right():
    module = models.lenet5((3, 16, 16), 4).eval()
    x, y = torch.randn(3, 3, 16, 16), torch.tensor([0, 3, 1])

    def p(images):
        return module(images).softmax(1).gather(1, y[:, None])[:, 0].detach()

    maps = torch.rand(3, 16, 16)
    down, up = (
        explain.curve(module, x, y, maps, kind) for kind in ("deletion", "insertion")
    )
    assert down.shape == up.shape == (3, 17)  # a line of pixels at a time
    for found, expected in (
        *((down[:, 0], p(x)), (down[:, -1], p(torch.zeros_like(x)))),
        *((up[:, 0], p(explain.blur(x))), (up[:, -1], p(x))),
    ):
        torch.testing.assert_close(found, expected)


def test_the_area_of_the_mean_is_the_mean_of_the_areas():
    curves = torch.rand(20, 9, dtype=torch.float64)
    torch.testing.assert_close(
        explain.area(curves.mean(0)), explain.area(curves).mean()
    )
    assert explain.area(torch.ones(5)) == 1


def test_curves_refuse_what_does_not_fit():
    module, x = Corner(), torch.zeros(2, 1, 4, 4)
    with pytest.raises(ValueError, match="deletion or insertion"):
        explain.curve(
            module, x, torch.zeros(2, dtype=torch.long), corner_map(2), "removal"
        )
    with pytest.raises(ValueError, match="differ"):
        explain.curve(module, x, torch.zeros(3, dtype=torch.long), corner_map(2))


# --- Algorithm 2 ----------------------------------------------------------------------


@pytest.fixture(name="trained", scope="module")
def trained_fixture():
    fed = federation("lenet5", sizes=(9, 14, 7, 20))
    method = FixedClusters([0, 1, 1, 1])
    return fed, method.step(method.init(fed), fed, 0), NETWORKS["lenet5"][1]


def test_each_mode_takes_its_own_samples(trained):
    fed, state, _ = trained
    tests = [fed.sample_numbers([k]) for k in range(fed.K)]
    server = fed.sample_numbers(on="server")
    seen = []

    def spy(module, x, y):
        seen.append(x)
        return torch.ones(len(x), *x.shape[2:])

    rows = {
        mode: explain.insertion_deletion(fed, state, mode, explainer=spy)
        for mode in explain.MODES
    }
    pools = {"in": (tests[:1], tests[1:]), "out": (tests[1:], tests[:1])}
    expected = [
        fed.samples(torch.cat(pool))[0]
        for mode in ("in", "out")
        for pool in pools[mode]
    ] + [fed.samples(server)[0]]
    for got, want in zip(seen, [*expected, expected[-1]], strict=True):

        def key(x):
            return x.flatten(1)[:, 0].sort().values

        assert torch.equal(key(got), key(want))
    assert rows["in"]["clients"].tolist() == [1, 3] and rows["in"][
        "samples"
    ].tolist() == [4, 12]
    assert rows["out"]["samples"].tolist() == [12, 4]
    assert set(rows["server"]["samples"]) == {len(server)}


def test_algorithm_2_is_the_mean_area_of_each_clusters_model(trained):
    fed, state, model = trained
    frame = explain.insertion_deletion(fed, state, "in")
    again = explain.insertion_deletion(fed, state, "in")
    pd.testing.assert_frame_equal(frame, again)
    module = explain.network(model, state.theta[0])
    x, y = fed.samples(fed.sample_numbers([0]))
    for kind in ("insertion", "deletion"):
        areas = explain.area(
            explain.curve(module, x, y, explain.gradcam(module, x, y), kind)
        )
        assert frame.loc[0, kind] == pytest.approx(float(areas.mean()), abs=1e-6)
    few = explain.insertion_deletion(fed, state, "in", sample=3, seed=1)
    assert few["samples"].tolist() == [3, 3]


def test_one_cluster_has_no_outside(trained):
    fed, state, _ = trained
    alone = State(state.theta[:1], torch.zeros_like(state.labels))
    frame = explain.insertion_deletion(fed, alone, "out")
    assert len(frame) == 1 and frame["samples"].item() == 0
    assert frame[["insertion", "deletion"]].isna().all(axis=None)
    with pytest.raises(ValueError, match="in, out, server"):
        explain.insertion_deletion(fed, alone, "all")


# --- critical differences -------------------------------------------------------------


@quick
@given(
    st.lists(st.integers(0, 60).map(lambda i: i / 50), min_size=1, max_size=9).map(
        lambda p: [min(1, v) for v in p]
    )
)
def test_holm_agrees_with_its_loop(p):
    assert ranks.holm(np.array(p)).tolist() == pytest.approx(reference.holm(p))


def table(runs=20, seed=0, **shifts):
    """Scores of methods that differ from a common run difficulty by a shift and a
    little noise.
    """
    rng = np.random.default_rng(seed)
    hard = rng.normal(size=runs)
    return pd.DataFrame(
        {
            name: hard + shift + 0.1 * rng.normal(size=runs)
            for name, shift in shifts.items()
        }
    )


def test_clear_differences_are_found_and_equals_grouped():
    scores = table(good=1.0, fair=0.0, same=0.0, bad=-1.0)
    found = ranks.critical_differences(scores)
    assert (
        found.ranks.index[0] == "good"
        and found.ranks.index[-1] == "bad"
        and found.ranks["good"] == 1
    )
    assert found.friedman == pytest.approx(
        stats.friedmanchisquare(*scores.to_numpy().T).pvalue
    )
    assert [set(group) for group in found.groups] == [{"fair", "same"}]
    assert (
        found.p.loc["good", "bad"] < 0.05 < found.p.loc["fair", "same"]
        and found.runs == 20
    )
    assert (found.p.to_numpy() == found.p.to_numpy().T).all() and (
        np.diag(found.p) == 1
    ).all()
    pair = stats.wilcoxon(scores["good"], scores["bad"]).pvalue
    assert pair <= found.p.loc["good", "bad"] <= 6 * pair


def test_pairs_are_those_of_scikit_posthocs():
    """Computed once: posthoc_wilcoxon(zero_method="zsplit", p_adjust="holm"), 0.17."""
    rng = np.random.default_rng(7)
    hard = rng.normal(size=(24, 1))
    x = np.round(hard + 0.5 * rng.normal(size=(24, 4)) + [0.4, 0.2, 0, -0.1], 1)
    p = ranks.critical_differences(pd.DataFrame(x, columns=list("abcd"))).p
    expected = {
        ("a", "b"): 0.5511623709859336,
        ("a", "c"): 0.3359207216335579,
        ("a", "d"): 0.006348600378800526,
        ("b", "c"): 0.6071154490132367,
        ("b", "d"): 0.3359207216335579,
        ("c", "d"): 0.6071154490132367,
    }
    for pair, value in expected.items():
        assert p.loc[pair] == pytest.approx(value, rel=1e-12)


def test_low_scores_can_be_best():
    scores = table(a=1.0, b=0.0, c=-1.0)
    high, low = (ranks.critical_differences(scores, best) for best in ("high", "low"))
    assert high.ranks.index.tolist() == [
        "a",
        "b",
        "c",
    ] and low.ranks.index.tolist() == ["c", "b", "a"]
    pd.testing.assert_frame_equal(high.p, low.p.loc[high.p.index, high.p.columns])


def test_without_any_difference_all_are_one_group():
    found = ranks.critical_differences(table(a=0.0, b=0.0, c=0.0))
    assert found.friedman > 0.05 and [set(group) for group in found.groups] == [
        {"a", "b", "c"}
    ]
    same = pd.DataFrame(np.repeat(np.arange(6.0)[:, None], 3, 1), columns=list("abc"))
    found = ranks.critical_differences(same)
    assert (
        found.friedman == 1
        and (found.p == 1).all(axis=None)
        and found.ranks.tolist() == [2, 2, 2]
    )


def test_runs_with_gaps_are_left_out():
    scores = table(a=1.0, b=0.0, c=-1.0)
    scores.loc[[2, 5], "b"] = np.nan
    assert ranks.critical_differences(scores).runs == 18
    with pytest.raises(ValueError, match="Friedman needs"):
        ranks.critical_differences(scores[["a", "b"]])


def test_groups_may_overlap_but_none_lies_in_another():
    same = np.eye(5, dtype=bool)
    for a, b in ((0, 1), (1, 2), (2, 3), (1, 3)):
        same[a, b] = same[b, a] = True
    assert ranks._stretches(list("abcde"), same) == [("a", "b"), ("b", "c", "d")]


def test_the_diagram_names_all_methods_and_has_a_bar_for_each_group():
    found = ranks.critical_differences(table(good=1.0, fair=0.0, same=0.0, bad=-1.0))
    names = tuple(found.ranks.index)
    groups = [names[:2], names[1:]]
    ax = ranks.difference_diagram(found._replace(groups=groups)).axes[0]
    words = " ".join(text.get_text() for text in ax.texts)
    assert all(name in words for name in found.ranks.index)
    across = [line.get_xdata() for line in ax.lines if len(set(line.get_ydata())) == 1]
    bars = sorted((min(x), max(x)) for x in across if len(x) > 1)
    assert bars == sorted(
        (found.ranks[group[0]], found.ranks[group[-1]]) for group in groups
    )
