"""No method changes what it computes, and no default its value, without a revision."""

import copy
import json

import pytest

from . import behaviour

WRITTEN = json.loads(behaviour.FILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def now():
    return behaviour.now()


def test_what_is_computed_moves_only_with_a_revision(now):
    wrong = behaviour.moved(WRITTEN, now)
    assert not wrong, (
        "raise the revision of what was meant to change; see CONTRIBUTING.md"
    )


def test_all_of_it_is_written_down(now):
    """New methods, presets and defaults join by python -m tests.behaviour."""
    for kind, entries in now.items():
        assert entries.keys() == WRITTEN[kind].keys()
    revisions = {n: e["revision"] for n, e in now["defaults"].items()}
    assert revisions == {n: e["revision"] for n, e in WRITTEN["defaults"].items()}


def test_a_silent_change_is_noticed():
    other = copy.deepcopy(WRITTEN)
    name = next(iter(other["methods"]))
    other["methods"][name]["mean"] += 1e-3
    other["defaults"]["Local"]["defaults"]["lr"] = "0.02"
    wrong = behaviour.moved(WRITTEN, other)
    assert len(wrong) == 2 and "Local" in wrong[1] and name in wrong[0]
    other["methods"][name]["revision"] += 1
    other["defaults"]["Local"]["revision"] += 1
    assert not behaviour.moved(WRITTEN, other)


def test_a_new_default_is_no_change():
    other = copy.deepcopy(WRITTEN)
    other["defaults"]["Local"]["defaults"]["nesterov"] = "False"
    assert not behaviour.moved(WRITTEN, other)
