"""Every field of FedGWC is held to its rule, with one sentence that says what is
needed.
"""

import math

import pytest
import torch

from fednb.experiment import run
from fednb.methods import ALL, FedAvg, FedGWC, FixedClusters
from fednb.methods.fedgwc import AGGREGATORS

from .conftest import federation

NAN = math.nan
BAD = [
    *[("sampled", value) for value in (0, -1, 0.0, 1.5, NAN, True, "all", None)],
    *[("least", value) for value in (0, -5, 2.5, None)],
    *[("priority", value) for value in (1, "yes", None)],
    *[("alpha", value) for value in (0.0, -0.1, 1.5, NAN, "slow", None)],
    *[("eps", value) for value in (-1.0, NAN, math.inf, "a", None)],
    *[("beta", value) for value in (0, -1.0, NAN, math.inf, "a")],
    *[("n_max", value) for value in (0, -1, 2.5, None)],
    *[("k_min", value) for value in (0, -1, 2.5, None)],
    *[("chance", value) for value in (0.0, 0.001, 1.5, NAN, None)],
    *[("initial", value) for value in (-1.0, NAN, math.inf, None)],
    *[("patience", value) for value in (0, -1, 2.5, "a")],
    *[("retry", value) for value in ("never", True, None)],
    *[("score_on", value) for value in ("rows", None)],
    *[("assign", value) for value in ("magic", None)],
    *[
        (name, value)
        for name in ("normalise", "weighted", "whole_matrix", "ema", "fill")
        for value in (0, None)
    ],
    *[
        (name, value)
        for name in ("columns", "rescale", "room")
        for value in (1, "False")
    ],
    *[("aggregator", value) for value in (None, "FedAvg", FedAvg)],
]


@pytest.mark.parametrize(("field", "value"), BAD, ids=lambda x: repr(x)[:20])
def test_a_bad_field_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=rf"^FedGWC\({field}=.*\): need "):
        FedGWC(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [("sampled", 1), ("sampled", 1.0), ("alpha", 1), ("eps", 0), ("patience", 1)],
)
def test_the_least_and_the_largest_values_are_taken(field, value):
    assert getattr(FedGWC(**{field: value}), field) == value


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_a_method_works_inside_fedgwc_or_is_refused(kind):
    """Whatever is not refused can be divided: it runs, splits, and goes on."""
    method = kind(labels=[0, 1] * 4) if kind is FixedClusters else kind()
    if not isinstance(method, AGGREGATORS):
        with pytest.raises(ValueError, match="one model for all clients or one for"):
            FedGWC(method)
        return
    # eps = 1 and chance = 1: it splits whatever it sees
    rule = FedGWC(method, sampled=1.0, eps=1.0, chance=1.0, k_min=2)
    state = run(rule, federation(sizes=(8,) * 8), 4, progress=False).state
    assert len(state.mse) > 1 and state.theta.isfinite().all()
    assert int(state.rows.sum()) == len(state.theta) > int(state.labels.max())


def test_the_refusal_names_the_methods_that_work():
    with pytest.raises(ValueError) as error:
        FedGWC(FedGWC())
    for kind in AGGREGATORS:
        assert kind.__name__ in str(error.value)


def test_a_method_of_ones_own_works_as_a_subclass():
    class Last(FedAvg):
        def step(self, state, fed, t):
            up = fed.train(state.theta[0], fed.sample())
            return state._replace(theta=up.theta[-1:])

    fed = federation(sizes=(8,) * 5)
    rule = FedGWC(Last(), sampled=3)
    state = rule.step(rule.init(fed), fed, 0)
    assert torch.isfinite(state.theta).all() and fed.meter.updates == 3
