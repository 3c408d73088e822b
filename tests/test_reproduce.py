"""The command: what waits is adopted, all or nothing; what is recorded can be
redone.
"""

import json

import pytest

from fednb import adopt as adopting
from fednb import reproduce, store
from fednb.adopt import adopt
from fednb.methods import FedAvg, LocalOnly

from .test_forecast import write
from .test_sweep import tasks


def contents(folder):
    return {f.relative_to(folder): f.read_bytes() for f in folder.rglob("*.json")}


@pytest.fixture(name="book")
def book_fixture(tmp_path, monkeypatch):
    """A paper of two tables: two old records stand in for runs, one of them is made."""

    def table1(profile):
        return tasks(seeds=(0, 1), methods=(FedAvg(),), profile=profile)

    def table2(profile):
        return tasks(seeds=(0,), methods=(LocalOnly(),), profile=profile)

    results = tmp_path / "results"
    monkeypatch.setattr(reproduce, "COMMITTED", results)
    catalogue = {"table1": table1, "table2": table2}
    monkeypatch.setitem(reproduce.CATALOGUE, "demo", catalogue)
    monkeypatch.chdir(tmp_path)
    notes = {}
    for new in table1("laptop"):
        (old,) = tasks(
            seeds=(new.seed,), methods=(FedAvg(2),), rounds=9, profile="laptop"
        )
        write(results / "demo" / "table1.json", old, seconds=1.0)
        notes[new.key] = {"stands_in": old.key, "why": "all take part"}
    (task,) = table2("laptop")
    write(results / "demo" / "table2.json", task, seconds=1.0)
    store.write_pending(results / "demo", notes)
    write(results / "next" / "demo" / "table1.json", table1("laptop")[0], seconds=2.0)
    return results


def test_what_waits_is_adopted(book, capsys):
    made, due = reproduce.CATALOGUE["demo"]["table1"]("laptop")
    notes = store.read_pending(book / "demo")
    assert reproduce.main(["demo", "--adopt"]) == 0
    assert capsys.readouterr().out == "demo table1: 1 adopted, 1 still pending\n"
    keys = {record["key"] for record in store.read(book / "demo" / "table1.json")}
    assert keys == {made.key, notes[due.key]["stands_in"]}
    assert store.read_pending(book / "demo") == {due.key: notes[due.key]}
    assert not (book / "next" / "demo").exists()
    assert len(store.read(book / "demo" / "table2.json")) == 1
    assert reproduce.main(["demo", "--adopt"]) == 0
    assert "no records wait" in capsys.readouterr().out


@pytest.mark.parametrize("profile", ["workstation", "paper"])
def test_runs_of_larger_profiles_are_adopted_too(book, capsys, profile):
    task, _ = reproduce.CATALOGUE["demo"]["table1"](profile)
    write(book / "next" / "demo" / "table1.json", task, seconds=3.0)
    assert reproduce.main(["demo", "--adopt"]) == 0
    assert "2 adopted" in capsys.readouterr().out
    keys = {record["key"] for record in store.read(book / "demo" / "table1.json")}
    assert task.key in keys


def test_the_last_note_goes_with_the_last_run(book, capsys):
    _, due = reproduce.CATALOGUE["demo"]["table1"]("laptop")
    write(book / "next" / "demo" / "table1.json", due, seconds=2.0)
    assert reproduce.main(["demo", "--adopt", "--table", "1"]) == 0
    assert "2 adopted, 0 still pending" in capsys.readouterr().out
    assert not (book / "demo" / "pending.json").exists()
    assert len(store.read(book / "demo" / "table1.json")) == 2


def test_a_dirty_record_is_replaced(book):
    path = book / "demo" / "table2.json"
    (task,) = reproduce.CATALOGUE["demo"]["table2"]("laptop")
    (old,) = store.read(path)
    store.append(path, old | {"commit": "abc-dirty"})
    write(book / "next" / "demo" / "table2.json", task, seconds=3.0)
    reproduce.main(["demo", "--adopt"])
    (record,) = store.read(path)
    assert record["commit"] == "abc" and record["seconds"] == 3


def test_runs_that_were_not_collected_are_adopted_too(book):
    _, due = reproduce.CATALOGUE["demo"]["table1"]("laptop")
    waiting = book / "next" / "demo" / "table1.json"
    record = write(book / "elsewhere.json", due, seconds=2.0)
    store.write_run(store.runs_folder(waiting), record)
    reproduce.main(["demo", "--adopt"])
    assert not store.read_pending(book / "demo")


def test_an_old_record_stays_while_it_stands_in_for_another(book):
    made, due = reproduce.CATALOGUE["demo"]["table1"]("laptop")
    notes = store.read_pending(book / "demo")
    notes[due.key]["stands_in"] = notes[made.key]["stands_in"]
    store.write_pending(book / "demo", notes)
    reproduce.main(["demo", "--adopt"])
    keys = {record["key"] for record in store.read(book / "demo" / "table1.json")}
    assert notes[due.key]["stands_in"] in keys


def test_a_record_goes_into_every_table_that_wants_it(book, monkeypatch):
    tables = reproduce.CATALOGUE["demo"]
    both = {**tables, "table2": lambda p: tables["table1"](p) + tables["table2"](p)}
    monkeypatch.setitem(reproduce.CATALOGUE, "demo", both)
    made, _ = tables["table1"]("laptop")
    reproduce.main(["demo", "--adopt", "--table", "1"])
    for name in ("table1", "table2"):
        keys = {r["key"] for r in store.read(book / "demo" / f"{name}.json")}
        assert made.key in keys


def strange(book):
    (task,) = tasks(seeds=(7,), methods=(FedAvg(),), profile="laptop")
    write(book / "next" / "demo" / "table1.json", task, seconds=1.0)


def dirty(book):
    path = book / "next" / "demo" / "table1.json"
    (record,) = store.read(path)
    store.append(path, record | {"commit": "abc-dirty"})


def other_data(book):
    path = book / "next" / "demo" / "table1.json"
    (record,) = store.read(path)
    store.append(path, record | {"data_sha256": "1" * 64})


def damaged(book):
    path = book / "next" / "demo" / "table1.json"
    path.write_text(path.read_text().replace("2.0", "2.5"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (strange, "seed 7, belongs to no task of table1"),
        (dirty, "not committed"),
        (other_data, "would mix runs on different files of digits"),
        (damaged, "altered or damaged"),
    ],
)
def test_what_does_not_fit_is_refused_and_all_is_kept(book, spoil, message):
    spoil(book)
    before = contents(book)
    with pytest.raises(store.StoreError, match=message):
        reproduce.main(["demo", "--adopt"])
    assert contents(book) == before


@pytest.mark.parametrize("fails", ["write_pending", "unlink"])
def test_an_error_on_the_way_keeps_everything(book, monkeypatch, fails):
    before = contents(book)

    def no_space(*args):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        if fails == "write_pending":
            patch.setattr(adopting.store, "write_pending", no_space)
        else:  # when the file that was taken over should go
            patch.setattr(type(book), "unlink", no_space)
        with pytest.raises(OSError, match="no space left"):
            reproduce.main(["demo", "--adopt"])
    assert contents(book) == before
    assert reproduce.main(["demo", "--adopt"]) == 0


def test_nothing_is_adopted_from_where_it_is(book):
    with pytest.raises(ValueError, match="where they would go"):
        adopt(book / "demo", book / "demo", {"table1": set()})


# --- again ----------------------------------------------------------------------------


@pytest.fixture(name="recorded")
def recorded_fixture(book):
    """Table 1 with the true records of its runs."""
    for path in (book / "demo").glob("*.json"):
        path.unlink()
    for task in reproduce.CATALOGUE["demo"]["table1"]("laptop"):
        store.append(book / "demo" / "table1.json", task.record())
    return book


def test_what_is_recorded_is_run_again_elsewhere(recorded, tmp_path, capsys):
    before = contents(recorded)
    assert reproduce.main(["demo", "--again", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert "demo table1 (laptop): 2 run again, 2 agree with the committed" in out
    assert "demo table2 (laptop): nothing is recorded" in out
    assert contents(recorded) == before
    assert len(store.read(tmp_path / "_build" / "again" / "demo" / "table1.json")) == 2


def test_a_single_record_can_be_run_again(recorded, capsys):
    record = store.read(recorded / "demo" / "table1.json")[1]
    command = ["demo", "--again", "--jobs", "1", "--key", record["key"][:12]]
    assert reproduce.main(command) == 0
    assert "demo table1 (laptop): 1 run again, 1 agree" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        reproduce.main(["demo", "--key", record["key"]])


def test_a_record_that_differs_is_named(recorded, capsys):
    path = recorded / "demo" / "table1.json"
    record = store.read(path)[0]
    changed = json.loads(json.dumps(record))
    changed["metrics"]["final"]["loss"] += 1e-5
    store.append(path, changed)
    assert reproduce.main(["demo", "--again", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert "1 agree with the committed records to the last digit, 1 do not" in out
    assert f"differs: {record['key']}, FedAvg(), seed {record['seed']}" in out


def test_records_of_other_code_are_made_anew(recorded, tmp_path, capsys):
    there = tmp_path / "_build" / "again" / "demo" / "table1.json"
    for task in reproduce.CATALOGUE["demo"]["table1"]("laptop"):
        write(there, task, seconds=1.0)  # with no metrics at all
    assert reproduce.main(["demo", "--again", "--jobs", "1"]) == 0
    assert "2 run again, 2 agree" in capsys.readouterr().out


def test_again_says_how_long_it_takes(recorded, capsys):
    assert reproduce.main(["demo", "--again", "--dry-run", "--table", "1"]) == 0
    assert "2 runs, 0 recorded, 2 to do" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong", [["--again", "--adopt"], ["--again", "--out", "results/next/demo"]]
)
def test_again_never_writes_over_what_is_committed(recorded, wrong):
    before = contents(recorded)
    with pytest.raises(SystemExit):
        reproduce.main(["demo", *wrong])
    assert contents(recorded) == before


# --- new runs ------------------------------------------------------------------------


def test_new_runs_stay_out_of_the_books_records(
    recorded, tmp_path, monkeypatch, capsys
):
    """What the book has is not run; what it lacks is recorded in a folder beside it."""
    assert reproduce.main(["demo", "--profile", "laptop", "--table", "1"]) == 0
    out = capsys.readouterr().out
    assert "demo table1 (laptop): 0 new, 2 recorded before" in out

    def table1(profile):
        return tasks(seeds=(0, 1, 2), methods=(FedAvg(),), profile=profile)

    monkeypatch.setitem(reproduce.CATALOGUE["demo"], "table1", table1)
    before = contents(recorded)
    command = ["demo", "--profile", "laptop", "--table", "1", "--jobs", "1"]
    assert reproduce.main([*command, "--dry-run"]) == 0
    assert "1 runs, 0 recorded, 1 to do" in capsys.readouterr().out
    for told in ("1 new, 0 recorded before", "0 new, 1 recorded before"):
        assert reproduce.main(command) == 0
        out = capsys.readouterr().out
        assert told in out and "2 more are in" in out
    assert contents(recorded) == before
    (record,) = store.read(tmp_path / "runs" / "demo" / "table1.json")
    assert record["seed"] == 2


def test_a_folder_of_ones_own_gets_all_runs(recorded, tmp_path, capsys):
    command = ["demo", "--profile", "laptop", "--table", "1", "--jobs", "1"]
    assert reproduce.main([*command, "--out", "mine"]) == 0
    assert "2 new, 0 recorded before" in capsys.readouterr().out
    assert len(store.read(tmp_path / "mine" / "table1.json")) == 2
