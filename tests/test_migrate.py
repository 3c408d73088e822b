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
    joined = task(spec("New()"), row="b")
    old = [task(s, row="a") for s in was]
    new = [*(task(s, row="a") for s in reversed(now)), joined]
    pairs = migrate.pair(old, new, "p/t")
    moved = migrate.migrate_table([record(s) for s in was], pairs, "p/t")
    assert [r["key"] for r in moved] == [digest(s) for s in now]
    assert all(r["metrics"] == FACTS["metrics"] and "old" not in r for r in moved)


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ([], "no task"),
        ([task(spec("A"), row="a"), task(spec("B"), row="x")], "no task"),
        ([task(spec("A"), row="a"), task(spec("A"), row="b")], "same key"),
        ([task(spec("A"), row="a"), task(spec("B", 7), row="b")], "no task"),
        ([task(spec("A"), row="a"), task(spec("B"), row="a")], "two different tasks"),
    ],
)
def test_tasks_that_do_not_pair_off_are_refused(new, words):
    old = [task(spec("a"), row="a"), task(spec("b"), row="b")]
    with pytest.raises(ValueError, match=words):
        migrate.pair(old, new, "p/t")


def test_a_record_of_no_task_is_refused():
    with pytest.raises(ValueError, match="belongs to no task"):
        migrate.migrate_table([record(spec("a"))], {}, "p/t")


def test_a_mended_method_is_not_migrated():
    was = spec("MTCFL()")
    now = spec("MTCFL@2()")
    with pytest.raises(ValueError, match="must be run again"):
        migrate.migrate_table([record(was)], {digest(was): (was, now)}, "gcfl/table3")


def test_what_is_to_be_run_again_is_noted(tmp_path):
    was = spec("MTCFL()")
    now = spec("MTCFL@2()")
    same = spec("FedAvg()")
    store.append(tmp_path / "p" / "t.json", record(was))
    store.append(tmp_path / "p" / "t.json", record(same))
    pairs = {"p/t": {digest(was): (was, now), digest(same): (same, same)}}
    migrate.note_pending(pairs, tmp_path)
    notes = store.read_pending(tmp_path / "p")
    assert notes == {
        digest(now): {"stands_in": digest(was), "why": "method: MTCFL() → MTCFL@2()"}
    }
    assert {r["key"] for r in store.read(tmp_path / "p" / "t.json")} == {
        digest(was),
        digest(same),
    }
    newer = spec("MTCFL@3()")
    migrate.note_pending({"p/t": {digest(now): (now, newer)}}, tmp_path)
    assert store.read_pending(tmp_path / "p") == {digest(newer): notes[digest(now)]}
    store.write_pending(tmp_path / "p", {})
    assert not (tmp_path / "p" / "pending.json").exists()


def test_this_version_pairs_with_itself():
    for name, tasks in migrate.new_tasks("smoke").items():
        pairs = migrate.pair(tasks, tasks, name)
        assert all(was == now for was, now in pairs.values())
