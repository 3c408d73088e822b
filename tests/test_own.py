"""What a person brings along: data, methods and networks from outside the package."""

import subprocess
import sys
import tomllib
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from fednb import backends, checks, data, methods, models, partition, store
from fednb.experiment import run
from fednb.federation import Federation
from fednb.identity import describe
from fednb.papers import common
from fednb.sweeps import Task, sweep
from fednb.training import Local, one_blas_thread

ROOT = Path(__file__).parents[1]
X = np.random.default_rng(0).normal(size=(60, 4))
Y = (X[:, 0] > 0).astype(int)
USERS = np.arange(60) % 5
SMALL = partial(models.mlp, inputs=4, hidden=(3,), classes=2)


def task(dataset, **changes):
    law = partial(partition.by_user, users=USERS)
    given = {"rounds": 1, "seed": 0, **changes}
    return Task(methods.FedAvg(), dataset, law, SMALL, Local(), **given)


# --- data -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (X, Y),
        (X.astype(np.float32), Y.astype(np.int32)),
        (torch.tensor(X), torch.tensor(Y)),
        (pd.DataFrame(X), pd.Series(Y)),
        (X.tolist(), Y.tolist()),
        (X, Y.astype(bool)),
    ],
    ids=["numpy", "int32", "tensors", "pandas", "lists", "bool"],
)
def test_all_forms_of_the_same_samples_are_one_data_set(x, y):
    made = data.from_arrays(x, y)
    assert made.y.dtype == np.int64 and made.classes == 2 and made.n_train == 60
    assert data.fingerprint(made) == data.fingerprint(data.from_arrays(X, Y))
    assert not made.x.flags.writeable and made.sha256


def test_words_become_classes_and_the_note_tells_which():
    words = np.array(["walk", "rest"])[Y]
    for labels in (words, pd.Series(words), words.astype(object)):
        made = data.from_arrays(X, labels)
        assert made.note == "classes: 0 = rest, 1 = walk"
        assert made.y.tolist() == (1 - Y).tolist()


@pytest.mark.parametrize(
    ("x", "y", "options", "words"),
    [
        (X, Y / 2, {}, "float64.*classes=0 for a regression"),
        (X, Y[:-1], {}, "60 rows of x, 59 of y"),
        (X[:, 0], Y, {}, "one row per sample"),
        (np.full((60, 2), "a"), Y, {}, "turn words into columns"),
        (X, np.stack([Y, Y], 1), {}, r"y has shape \(60, 2\)"),
        (X, Y, {"n_train": 61}, "there are 60 rows"),
        (X, Y, {"n_train": -1}, "n_train=-1"),
        (X[:0], Y[:0], {}, "at least one"),
        (X, ["a", np.nan, None, pd.NA] * 15, {}, "45 of 60 labels are missing"),
    ],
)
def test_what_makes_no_sense_is_refused(x, y, options, words):
    with pytest.raises(ValueError, match=words):
        data.from_arrays(x, y, **options)


def test_a_regression_must_be_asked_for():
    made = data.from_arrays(X, X[:, 0], classes=0)
    assert made.classes == 0 and made.y.dtype == np.float32


def test_token_ids_stay_integers_and_an_embedding_is_told_what_to_do():
    tokens = np.random.default_rng(0).integers(9, size=(60, 5))
    made = data.from_arrays(tokens, Y)
    assert made.x.dtype.kind == "i"
    parts = partition.iid(made.y, clients=3)

    class Reader(nn.Sequential):
        def __init__(self, cast):
            super().__init__(nn.Embedding(9, 2), nn.Flatten(), nn.Linear(10, 2))
            self.cast = cast

        def forward(self, x):
            return super().forward(x.long() if self.cast else x)

    with pytest.raises(ValueError, match=r"call x.long\(\) before an embedding"):
        Federation(made, parts, lambda: Reader(cast=False))
    fed = Federation(made, parts, lambda: Reader(cast=True))
    assert run(methods.FedAvg(), fed, 1, progress=False).final["round"] == 1


# --- tasks ----------------------------------------------------------------------------


def make_data(shift=0.0):
    return data.from_arrays(X + shift, Y, name="made")


def test_a_task_takes_a_data_set_or_a_function(tmp_path):
    given = task(make_data())
    made = task(make_data)
    bound = task(partial(make_data, shift=1.0))
    records = sweep([given, made, bound], tmp_path / "t.json", n_jobs=1, progress=False)
    assert len(records) == 3 and len({given.key, made.key, bound.key}) == 3
    by_key = {record["key"]: record for record in records}
    finals = [by_key[one.key]["metrics"]["final"] for one in (given, made, bound)]
    assert finals[0] == finals[1] != finals[2]
    assert by_key[given.key]["data_sha256"] == data.fingerprint(make_data())
    assert str(given).startswith("FedAvg() on made#")
    again = sweep([given], tmp_path / "t.json", n_jobs=1, progress=False)
    assert [record["key"] for record in again] == [given.key]
    assert len(store.read(tmp_path / "t.json")) == 3


def test_a_data_set_is_keyed_by_its_content():
    other = data.from_arrays(X + (np.arange(60) == 30)[:, None], Y, name="made")
    assert task(make_data()).key == task(make_data()).key
    assert task(make_data()).key != task(other).key
    assert task(make_data()).key != task(replace(make_data(), n_train=50)).key


def test_a_name_keeps_its_key():
    assert task("digits").spec()["dataset"] == "digits"


@pytest.mark.parametrize("wrong", [3, lambda: 3])
def test_what_is_no_data_set_is_refused(wrong):
    with pytest.raises(TypeError, match="need the name of a data set, a Dataset"):
        task(wrong).load()


def test_users_by_name_have_a_key():
    names = pd.Series([f"user {k}" for k in USERS])
    text = describe(partial(partition.by_user, users=names))
    assert text == describe(partial(partition.by_user, users=names.to_numpy()))
    assert text != describe(partial(partition.by_user, users=names[::-1].to_numpy()))
    with pytest.raises(TypeError, match="numbers or words"):
        describe(np.array([1, "a"], dtype=object))


# --- methods --------------------------------------------------------------------------

TYPED = """
from dataclasses import dataclass
@dataclass(frozen=True)
class Typed:
    trim: float = {default}
    def step(self, state, fed, t):
        return {what}
"""


def typed(default=0.1, what="state"):
    """A class as a notebook makes it: its source is in no file."""
    namespace = {"__name__": "__main__"}
    exec(TYPED.format(default=default, what=what), namespace)
    return namespace["Typed"]


def test_a_changed_method_from_a_notebook_has_another_key():
    assert describe(typed()()) == describe(typed()())
    assert describe(typed()()) != describe(typed(what="None")())
    assert describe(typed(0.1)()) != describe(typed(0.2)())  # only a default changed
    assert describe(typed(0.1)()) != describe(typed(0.2)(0.1))


HELPED = """
from dataclasses import dataclass
SHARE = {share}
def deeper(x):
    return {deeper}
def helper(x):
    return deeper(x) * SHARE
class Base:
    def twice(self, x):
        return {twice}
@dataclass(frozen=True)
class Helped(Base):
    def step(self, state, fed, t):
        return [helper(x) for x in state]
"""


def helped(share=0.5, deeper="x", twice="2 * x"):
    namespace = {"__name__": "__main__"}
    exec(HELPED.format(share=share, deeper=deeper, twice=twice), namespace)
    return describe(namespace["Helped"]())


def test_a_changed_helper_constant_or_base_class_gives_another_key():
    assert helped() == helped()
    changed = [helped(share=0.6), helped(deeper="-x"), helped(twice="3 * x")]
    assert len({helped(), *changed}) == 4


def test_a_helper_that_is_defined_again_is_seen():
    namespace = {"__name__": "__main__"}
    exec(HELPED.format(share=1, deeper="x", twice="x"), namespace)
    before = describe(namespace["Helped"]())
    exec("def deeper(x): return x + 1", namespace)  # its cell was run again
    assert describe(namespace["Helped"]()) != before


def test_a_variable_that_is_called_like_an_attribute_changes_no_key():
    """``n = 3`` in a notebook has nothing to do with the ``fed.n`` of a method."""
    cls = typed(what="fed.n")
    before = describe(cls())
    cls.step.__globals__["n"] = 3
    assert describe(cls()) == before


SCRIPT = """
import sys
from dataclasses import dataclass
from functools import partial
from fednb import Local, models, partition, tables
from fednb.sweeps import Task, sweep
from fednb.methods import FedAvg

@dataclass(frozen=True)
class Bare:
    def init(self, fed):
        return FedAvg().init(fed)

    def step(self, state, fed, t):
        return FedAvg().step(state, fed, t)

@dataclass(frozen=True)
class Mine(Bare):
    share: float = 0.5
    notes: tuple = ()

if __name__ == "__main__":
    law, local = partial(partition.iid, clients=4), Local(0.1, steps=1)
    tasks = [
        Task(method, "digits", law, models.mlp, local, rounds=1)
        for method in (Bare(), Mine(), Mine(0.25))
    ]
    done = sweep(tasks, sys.argv[1], n_jobs=2, progress=False)
    assert {record["key"] for record in done} == {task.key for task in tasks}
    assert sweep(tasks, sys.argv[1], n_jobs=1, progress=False) == done
    assert len(tables.frame(tasks, sys.argv[1])) == 3
"""


def test_workers_give_a_method_from_a_script_its_own_key(tmp_path):
    """They have neither the script's source nor its copy of dataclasses.MISSING."""
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT)
    words = [sys.executable, str(script), str(tmp_path / "mine.json")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            lambda s: s._replace(theta=s.theta[0]),
            r"theta of shape \(23,\).*\(models, 23",
        ),
        (lambda s: s._replace(theta=s.theta[:, 1:]), r"theta of shape \(1, 22\)"),
        (lambda s: s._replace(labels=s.labels[1:]), r"labels of shape \(4,\).*\(5,\)"),
        (lambda s: s.theta, "Tensor: need theta and labels"),
    ],
)
def test_a_step_that_returns_a_wrong_shape_is_told_so(state, words):
    @dataclass(frozen=True)
    class Wrong(methods.FedAvg):
        def step(self, before, fed, t):
            return state(super().step(before, fed, t))

    with pytest.raises((ValueError, TypeError), match=f"Wrong returned {words}"):
        run(Wrong(), task(make_data()).federation(), 1, progress=False)


# --- records --------------------------------------------------------------------------


def test_a_notebook_finds_the_records_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (common.results("wecfl") / "verdicts.json").exists()


def test_an_installed_package_finds_the_records_that_the_wheel_brings(
    tmp_path, monkeypatch
):
    with open(ROOT / "pyproject.toml", "rb") as file:
        wheel = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]
    ((source, target),) = wheel["force-include"].items()
    assert (ROOT / source / "wecfl" / "verdicts.json").exists()
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "site-packages" / "fednb"
    monkeypatch.setattr(store, "__file__", str(package / "store.py"))
    with pytest.raises(FileNotFoundError, match="no records of wecfl with the package"):
        common.results("wecfl")
    brought = package.parent / target / "wecfl"
    brought.mkdir(parents=True)
    assert common.results("wecfl") == brought


# --- rules ----------------------------------------------------------------------------


def test_rules_are_those_that_the_class_checks():
    rules = checks.rules(methods.FedGWC())
    assert rules["retry"].options == ("double", "reset", "always")
    assert (rules["n_max"].kind, rules["n_max"].least) == ("integer", 1)
    assert rules["alpha"].kind == "either"
    assert rules["alpha"].parts[0].options == ("mean", "share")
    assert rules["patience"].parts[0].kind == "integer"
    assert rules["normalise"].kind == "flag" and rules["sampled"].kind == "sampled"
    bounds = checks.number(above=0, below=1)
    assert (bounds.least, bounds.most) == (0, 1) and not bounds.holds(0)


def test_rules_of_others_made_meanwhile_are_not_heard():
    @dataclass(frozen=True)
    class Outer:
        size: int = 1

        def __post_init__(self):
            methods.FedAvg()
            checks.fields(self, size=checks.integer(1))

    assert list(checks.rules(Outer())) == ["size"]
    assert checks.rules(object()) == {}


# --- backends and threads -------------------------------------------------------------


def test_dropout_on_a_gpu_falls_back_with_a_warning():
    gpu = torch.device("cuda")
    x = torch.zeros(2, 4)
    dropout = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    assert backends.choose_backend(gpu, nn.Linear(4, 2), x) == "batched"
    assert backends.choose_backend(torch.device("cpu"), dropout, x) == "lean"
    with pytest.warns(UserWarning, match="draws random numbers"):
        assert backends.choose_backend(gpu, dropout, x) == "lean"


def test_the_limit_of_threads_holds_until_the_last_one_leaves():
    from threadpoolctl import threadpool_info

    def threads():
        return [library["num_threads"] for library in threadpool_info()]

    before = threads()
    first = one_blas_thread()
    second = one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(threads()) == {1}
    second.__exit__(None, None, None)
    assert threads() == before
