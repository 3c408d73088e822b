"""Record identity: what enters a key, and what does not."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
import sys
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import torch

import fednb
from fednb import methods, models, partition
from fednb.experiment import measure
from fednb.identity import describe, digest, integer_in, name_in, tell_apart
from fednb.papers import CATALOGUE
from fednb.reproduce import PROFILES
from fednb.sweeps import Task
from fednb.training import Local


def test_a_call_is_written_with_what_differs_from_the_defaults():
    assert describe(partial(partition.iid, clients=3)) == "iid(clients=3)"
    assert describe(partial(partition.iid, clients=3, min_size=2)) == "iid(clients=3)"
    assert describe(models.cnn_bn) == "cnn_bn()"
    assert describe(methods.IFCA()) == "IFCA()"
    assert describe(methods.IFCA(7, sampled=0.1)) == "IFCA(clusters=7, sampled=0.1)"
    assert describe(Local()) == "Local()"
    inner = partial(partition.iid, clients=3)
    law = partial(partition.subset, law=inner, samples=60)
    assert describe(law) == "subset(law=iid(clients=3), samples=60)"


def test_what_no_record_can_name_is_told_apart_all_the_same():
    assert tell_apart(models.cnn_bn) == describe(models.cnn_bn)
    powers = [
        lambda x: x**2,
        lambda x: x**3,
    ]
    square, cube = powers
    law = partial(square, torch.ones(2), scale=[cube, 1])
    losses = [
        *(square, cube, law, partial(square, torch.zeros(2)), partial(cube)),
        torch.nn.CrossEntropyLoss(),
        torch.nn.CrossEntropyLoss(torch.ones(2)),
        torch.nn.CrossEntropyLoss(torch.zeros(2)),
        torch.nn.MSELoss(),
    ]
    words = [tell_apart(loss) for loss in losses]
    assert len(set(words)) == len(losses)
    assert words == [tell_apart(loss) for loss in losses]
    assert not any(" at 0x" in text for text in words)


def test_positions_and_names_say_the_same():
    a = partial(models.mlp, 64, (8,), 10)
    b = partial(models.mlp, classes=10, inputs=64, hidden=(8,))
    assert describe(a) == describe(b)


def test_numbers_are_told_apart_by_type_and_value():
    assert describe(methods.FedAvg(1)) != describe(methods.FedAvg(1.0))
    assert describe(np.float64(0.5)) == describe(0.5)
    assert describe(np.int64(3)) == "3"
    assert describe({"b": 1, "a": (1, 2)}) == "{'a': (1, 2), 'b': 1}"
    assert describe(torch.float64) == "torch.float64"


def test_arrays_go_by_their_bytes():
    long = np.arange(5000)
    other = long.copy()
    other[2500] = -1  # where a repr shows dots
    assert repr(long) == repr(other)
    assert describe(long) != describe(other)
    assert describe(long) == describe(long.copy())
    assert describe(long) != describe(long.astype(np.int32))
    row = torch.zeros(5000)
    assert describe(row) != describe(torch.ones(5000))
    task = Task(methods.FedAvg(), "digits", partition.iid, models.mlp, Local(), 1)
    keys = {
        dataclasses.replace(task, partition=partial(partition.by_user, users=u)).key
        for u in (long, other)
    }
    starts = {
        dataclasses.replace(task, options={"start": start}).key
        for start in (row, torch.ones(5000))
    }
    assert len(keys) == len(starts) == 2


@dataclass(frozen=True)
class Mended(methods.FedAvg):
    revision: ClassVar[int] = 2


def test_a_raised_revision_moves_the_key():
    @dataclass(frozen=True)
    class First:
        rate: float = 0.1

    before = describe(First())
    First.revision = 2
    after = describe(First())
    assert before != after and "@2(" in after
    assert "@2(" in describe(Mended())
    # a revision shows even where the mended thing is the default of a field
    Outer = dataclasses.make_dataclass("Outer", [("inner", object, First())])
    assert "First" in describe(Outer())


def test_a_new_field_with_a_default_moves_nothing(monkeypatch):
    grown = dataclasses.make_dataclass(
        "Local", [("nesterov", bool, False)], bases=(Local,), frozen=True
    )
    monkeypatch.setattr(grown, "__module__", "fednb.training")
    assert describe(grown(lr=0.3)) == describe(Local(lr=0.3))
    assert describe(grown(lr=0.3, nesterov=True)) != describe(Local(lr=0.3))


def outside(fed, state):
    return {"accuracy": 1.0}


def test_functions_from_outside_go_by_home_and_source():
    text = describe(outside)
    assert re.fullmatch(r"[\w.]*test_identity\.outside#[0-9a-f]{12}\(\)", text)
    sources = []
    for body in ("return 1", "return 2"):
        space = {"__name__": "somewhere"}
        exec(f"def f():\n    {body}", space)
        sources.append(describe(space["f"]))
    assert sources[0] != sources[1] and sources[0].startswith("somewhere.f#")
    classes = []
    for body in ("return 1", "return 2"):
        space = {"__name__": "somewhere", "dataclass": dataclass}
        exec(f"@dataclass\nclass M:\n    x: int = 1\n    def f(self): {body}", space)
        classes.append(describe(space["M"]()))
    assert classes[0] != classes[1]


def test_what_no_text_can_name_is_refused():
    with pytest.raises(ValueError, match="lambda"):
        describe(lambda: None)

    def outer(x):
        def inner():
            return x

        return inner

    with pytest.raises(ValueError, match="functools.partial"):
        describe(outer(3))
    with pytest.raises(TypeError, match="cannot name"):
        describe(torch.nn.Linear(1, 1).parameters())
    with pytest.raises(TypeError, match="array of objects"):
        describe(np.array([None]))


def test_a_default_measure_of_higher_revision_is_told(monkeypatch):
    task = Task(methods.FedAvg(), "digits", partition.iid, models.mlp, Local(), 1)
    assert "measure" not in task.spec()
    monkeypatch.setattr(measure, "revision", 2, raising=False)
    assert task.spec()["measure"] == "measure@2()"


def all_specs():
    for tables in CATALOGUE.values():
        for make in tables.values():
            for profile in PROFILES:
                for task in make(profile):
                    yield task.spec()


def test_every_described_name_denotes_one_thing_of_the_library():
    """Library functions go by bare name, so no two with that name may exist."""
    used = set()
    for spec in all_specs():
        for field in ("method", "partition", "model", "local", "measure", "options"):
            text = re.sub(
                r"\"[^\"]*\"|'[^']*'", "", str(spec.get(field, ""))
            )  # no quotations
            used |= set(re.findall(r"(\w+)(?:@\d+)?\(", text))
    homes = {}
    for info in pkgutil.walk_packages(fednb.__path__, "fednb."):
        module = importlib.import_module(info.name)
        for name, thing in vars(module).items():
            is_callable = inspect.isfunction(thing) or inspect.isclass(thing)
            if is_callable and thing.__module__ == info.name:
                homes.setdefault(thing.__name__, set()).add(f"{info.name}.{name}")
    assert len(used) > 50
    twice = {name: homes[name] for name in used if len(homes.get(name, ())) > 1}
    assert not twice
    assert all(name in homes for name in used), sorted(used - set(homes))


def test_an_argument_is_read_back_from_a_description():
    law = partial(partition.iid, clients=30)
    text = describe(partial(partition.subset, law=law, samples=6000))
    assert integer_in(text, "clients") == 30
    assert integer_in(text, "samples") == 6000
    assert integer_in(text, "seed") is None
    shares = describe(partial(partition.iid, clients=30, test=0.4))
    assert integer_in(shares, "test") is None  # no integer
    assert name_in(describe(Mended(3))).endswith("Mended")
    assert name_in(describe(methods.IFCA(10))) == "IFCA"


def test_digest_ignores_the_order_of_keys():
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def test_this_module_is_outside_the_library():
    assert sys.modules[__name__].__name__.partition(".")[0] != "fednb"
