"""Migration: old and new tasks pair off, and nothing but spec, key and check moves."""

import pytest

from fednb import migrate, store
from fednb.identity import digest

FACTS = dict.fromkeys(store.REQUIRED, "x") | {"metrics": {"final": {"accuracy": 0.5}}}


def spec(method, seed=0, **changes):
    body = {"schema": 2, "method": method, "dataset": "d", "partition": "p"}
    body |= {"model": "m", "local": "l", "rounds": 3, "seed": seed, "profile": "laptop"}
    return body | changes


def task(spec, **tags):
    return [spec, digest(spec), tags]


def record(spec):
    body = FACTS | spec | {"key": digest(spec)}
    return body | {"check": digest(body)}


def test_records_keep_all_but_their_spec():
    was = [spec("FedAvg(sampled=1.0)", seed, old=True) for seed in (0, 1)]
    now = [spec("FedAvg()", seed) for seed in (0, 1)]
    old = {"p/t": [task(s, row="a") for s in was]}
    new = {"p/t": [task(s, row="a") for s in now]}
    specs = migrate.pair(old, new)["p/t"]
    fit, outdated = migrate.migrate_table([record(s) for s in was], specs, "p/t")
    assert not outdated and [r["key"] for r in fit] == [digest(s) for s in now]
    assert all(r["metrics"] == FACTS["metrics"] and "old" not in r for r in fit)


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ({}, "no table any more"),
        ({"p/t": []}, "2 tasks then, 0 now"),
        ({"p/t": [task(spec("A"), row="a"), task(spec("B"), row="x")]}, "now"),
        ({"p/t": [task(spec("A"), row="a"), task(spec("A"), row="b")]}, "same key"),
        ({"p/t": [task(spec("A"), row="a"), task(spec("B", 7), row="b")]}, "now"),
    ],
)
def test_tasks_that_do_not_pair_off_are_refused(new, words):
    old = {"p/t": [task(spec("a"), row="a"), task(spec("b"), row="b")]}
    with pytest.raises(ValueError, match=words):
        migrate.pair(old, new)


def test_a_record_of_no_task_is_refused():
    with pytest.raises(ValueError, match="belongs to no task"):
        migrate.migrate_table([record(spec("a"))], {}, "p/t")


def test_a_mended_method_is_not_migrated():
    was = spec("MTCFL()")
    now = spec("MTCFL@2()")
    fit, outdated = migrate.migrate_table(
        [record(was)], {digest(was): (was, now)}, "gcfl/table3"
    )
    assert not fit and outdated == ["gcfl/table3: MTCFL(), seed 0"]


def test_this_version_pairs_with_itself():
    tasks = migrate.new_tasks("smoke")
    specs = migrate.pair(tasks, tasks)
    assert all(was == now for table in specs.values() for was, now in table.values())
