"""What FedCVR-Bolt and OCFL's temperature refuse, each with a clear sentence.

Some of these once gave silent nonsense, the others failed somewhere inside torch.
"""

import math

import pytest
import torch

from fednb.methods import FedCVRBolt
from fednb.methods.ocfl import temperature

from .conftest import federation
from .test_methods import SIZES

WRONG = [
    ("sampled", 0),
    ("sampled", 1.5),
    ("sampled", True),
    ("warmup", -1),
    ("warmup", 2.5),
    ("warmup", None),
    ("beta", -1.0),
    ("beta", math.nan),
    ("rate", "never"),
    ("rate", 1.5),
    ("rate", -0.1),
    ("rate", math.nan),
    ("rate", None),
    ("coalitions", "poly"),
    ("coalitions", None),
    ("coalitions", [0, 1]),
    ("coalitions", (0, -1)),
    ("coalitions", (0, 0.5)),
    ("gamma", 0.0),
    ("gamma", math.inf),
    ("gamma", "auto"),
    ("representation", "first"),
    ("most", -1),
    ("most", 0),
    ("most", 2.5),
    ("initial", 2.0),
    ("initial", math.nan),
    ("variance", 0.0),
    ("variance", math.inf),
    ("variance", math.nan),
    ("centred", 1),
    ("innovation", None),
    ("aggregation", "mean"),
    ("shuffled", "yes"),
    ("warmup_estimates", 0),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_senseless_field_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"^FedCVRBolt\({name}=.*: need "):
        FedCVRBolt(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beta", math.inf),
        ("beta", 0),
        ("rate", 0),
        ("rate", 1),
        ("warmup", 0),
        ("most", None),
        ("most", 1),
        ("most", 10**6),
        ("sampled", 0.1),
        ("initial", 0),
    ],
)
def test_the_ends_of_ranges_run(name, value):
    method = FedCVRBolt(**{"sampled": 3, "warmup": 1} | {name: value})
    fed = federation(sizes=SIZES)
    state = method.init(fed)
    for t in range(3):
        state = method.step(state, fed, t)
    assert state.theta.isfinite().all() and state.c_diag.isfinite().all()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((0, 1), "2 clients in 2 coalitions, need one number for each of 6 clients"),
        ((), "0 clients"),
        ((0,) * 7, "7 clients in 1 coalitions"),
        ((0, 1, 2, 3, 0, 1), "6 clients in 4 coalitions, .* at most sampled=3"),
    ],
)
def test_given_coalitions_must_fit_the_federation(given, words):
    method = FedCVRBolt(sampled=3, warmup=0, coalitions=given)
    with pytest.raises(ValueError, match=words):
        method.init(federation(sizes=SIZES))


@pytest.mark.parametrize(
    ("Gamma", "p", "words"),
    [
        (torch.full((3, 3), math.nan), 2, "need finite distances"),
        (torch.full((3, 3), math.inf), 2, "need finite distances"),
        (torch.zeros(0, 0), 2, r"Gamma of shape \(0, 0\)"),
        (torch.zeros(3), 2, r"Gamma of shape \(3,\)"),
        (torch.zeros(2, 3), 2, r"Gamma of shape \(2, 3\)"),
        (torch.zeros(3, 3), 0, "p=0"),
        (torch.zeros(3, 3), math.nan, "p=nan"),
        (torch.zeros(3, 3), "2", "p='2'"),
    ],
)
def test_temperature_refuses_what_has_none(Gamma, p, words):
    with pytest.raises(ValueError, match=rf"^temperature\(.*{words}"):
        temperature(Gamma, p)
