"""The playground without a browser: settings, session, forms, pictures, panel."""

import re
import threading
import time
from dataclasses import dataclass, fields, replace

import ipywidgets
import numpy as np
import pytest
import torch

from fednb import checks, data, methods, store, widgets
from fednb.experiment import run
from fednb.methods import (
    IFCA,
    OCFL,
    FedAvg,
    FedGWC,
    FedSoft,
    FeSEM,
    FixedClusters,
    LocalOnly,
    WeCFL,
)
from fednb.playground import (
    Form,
    Playground,
    PresetError,
    Session,
    Settings,
    forms,
    pictures,
    played,
    session,
    settings,
)
from fednb.sweeps import Task

PATIENCE = 300  # seconds: the machine may be slow and busy
SMALL = Settings(clients=8, rounds=3, law_values={"clusters": 2, "n": 5, "m": 3})


def without_seconds(history):
    return [
        {name: value for name, value in row.items() if "seconds" not in name}
        for row in history.rows
    ]


def same_run(first, second):
    """Whether two histories have the same bits."""
    return str(without_seconds(first)) == str(without_seconds(second)) and torch.equal(
        first.state.theta, second.state.theta
    )


class Gate:
    """Rounds begin only when the test lets them: no test depends on speed."""

    def __init__(self):
        self._begun = threading.Semaphore(0)
        self._allowed = threading.Semaphore(0)

    def enter(self):
        self._begun.release()
        self._allowed.acquire()

    def let(self, rounds=1):
        self._allowed.release(rounds)

    def wait_until_begun(self, rounds=1):
        """Wait until so many further rounds stand before the gate or have passed it."""
        for _ in range(rounds):
            assert self._begun.acquire(timeout=PATIENCE), "waited in vain"


@pytest.fixture
def gate(monkeypatch):
    """The gate through which the rounds of FedAvg and IFCA pass."""
    gate = Gate()

    def gated(step):
        def enter_and_step(self, state, fed, t):
            gate.enter()
            return step(self, state, fed, t)

        return enter_and_step

    monkeypatch.setattr(FedAvg, "step", gated(FedAvg.step))
    monkeypatch.setattr(IFCA, "step", gated(IFCA.step))
    yield gate
    gate.let(10_000)  # no thread is left behind


def wait_for(condition, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def below(widget):
    """A widget and all that it contains."""
    yield widget
    for child in getattr(widget, "children", ()):
        yield from below(child)


# --- settings -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "chosen",
    [
        SMALL,
        replace(SMALL, methods=(IFCA(clusters=2), FedGWC.as_printed()), share=0.5),
        replace(SMALL, law="cluster_dirichlet",
                law_values={"clusters": 2, "alphas": (0.1, 10.0)}, seed=3),
        replace(SMALL, law="dirichlet", law_values={"alpha": 0.5}, samples=300,
                steps=3),
        replace(SMALL, law="iid", law_values={}, model="cnn_bn", lr=0.1, epochs=2,
                methods=(FixedClusters([0, 1] * 4), WeCFL(2), WeCFL(3))),
    ],
    ids=["start", "sampled", "dirichlet", "subset", "three methods"],
)  # fmt: skip
def test_the_code_does_the_same_bit_for_bit(chosen, capsys):
    """As code: the text is executed as it stands, and compared with the threads'
    runs.
    """
    runs = Session()
    runs.run(chosen.tasks())
    runs.join(PATIENCE)
    assert runs.state == "finished", runs.error
    namespace = {}
    exec(chosen.code(), namespace)
    histories = namespace["histories"]
    told = capsys.readouterr().out
    assert list(histories) == [arm.name for arm in runs.arms] == chosen.names()
    for arm in runs.arms:
        assert same_run(arm.history, histories[arm.name])
        assert f"{arm.name} {round(arm.history.final['accuracy'], 3)}" in told


def test_the_code_is_short():
    code = SMALL.code()
    assert len([line for line in code.splitlines() if line.strip()]) <= 16
    assert max(map(len, code.splitlines())) <= 88


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clients": 0}, "clients=0.*integer >= 1"),
        ({"share": 1.5}, "share=1.5.*<= 1"),
        ({"rounds": 0}, "rounds=0"),
        ({"law": "fair"}, "law='fair'"),
        ({"methods": ()}, "0 methods; choose 1 to 3"),
        ({"methods": (FedAvg(),) * 4}, "4 methods"),
    ],
)
def test_bad_settings_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        replace(SMALL, **changes)


def test_what_the_library_refuses_is_refused_with_its_words():
    with pytest.raises(ValueError, match="m = 9"):
        replace(SMALL, law_values={"clusters": 2, "n": 3, "m": 9}).deal()
    with pytest.raises(ValueError, match="lenet5 cannot take the samples of digits"):
        replace(SMALL, model="lenet5").tasks()
    with pytest.raises(ValueError, match="lr"):
        replace(SMALL, lr=0.0).tasks()


@pytest.mark.parametrize("law", settings.LAWS)
def test_every_law_deals_from_where_its_knobs_start(law):
    chosen = Settings(law=law, law_values=settings.start_values(law))
    counts = chosen.counts(chosen.deal())
    assert counts.shape == (20, 10)
    assert counts.sum() <= 1437


def test_offers_are_made_without_random_numbers():
    settings.networks_for.cache_clear()
    before = torch.get_rng_state()
    assert list(settings.networks_for("digits")) == ["mlp", "linear", "cnn_bn"]
    assert torch.equal(torch.get_rng_state(), before)


def test_names_are_short_and_distinct():
    arms = (FedAvg(), IFCA(2), IFCA(3))
    assert settings.distinct_names(arms) == [
        "FedAvg",
        "IFCA(clusters=2)",
        "IFCA(clusters=3)",
    ]
    assert settings.distinct_names((FedAvg(), FedAvg())) == ["FedAvg()", "FedAvg (2)"]
    labels = [k % 2 for k in range(50)]
    long = (FixedClusters(labels), FixedClusters(labels[::-1]))
    assert settings.distinct_names(long) == ["FixedClusters (1)", "FixedClusters (2)"]


# --- the state machine ----------------------------------------------------------------


@dataclass(frozen=True)
class Fails(LocalOnly):
    def step(self, state, fed, t):
        if t == 1:
            raise ValueError("no such round")
        return super().step(state, fed, t)


def tasks(method, rounds=200):
    return replace(SMALL, methods=(method,), rounds=rounds).tasks()


def test_run_pause_continue_stop_reset(gate):
    seen = []
    runs = Session(lambda: seen.append(runs.state))
    assert runs.state == "ready" and runs.progress == 0 and runs.seconds_left is None
    runs.run(tasks(FedAvg(), rounds=5))
    gate.let(2)
    gate.wait_until_begun(3)
    assert runs.state == "running" and runs.progress == 2 / 5
    assert runs.seconds_left > 0

    runs.pause()
    assert runs.state == "pausing"  # the third round is under way
    spent = runs.seconds
    gate.let()
    wait_for(lambda: runs.state == "paused")  # before its first client
    assert runs.arms[0].rounds_done == 2 and runs.seconds == spent

    runs.resume()
    gate.wait_until_begun()
    assert runs.arms[0].rounds_done == 3 and runs.state == "running"
    runs.stop()
    assert runs.state == "stopped"
    gate.let()
    runs.join(PATIENCE)
    assert not runs.alive
    assert runs.arms[0].rounds_done == 3 and runs.error == ""

    runs.reset()
    assert runs.state == "ready" and runs.arms == []
    assert set(seen) == {"running", "pausing", "paused", "stopped", "ready"}


def test_a_pause_is_over_when_all_threads_wait_or_have_ended(gate):
    runs = Session()
    both = replace(SMALL, methods=(FedAvg(), LocalOnly()), rounds=1).tasks()
    runs.run(both)
    wait_for(lambda: runs.arms[1].ended)
    gate.wait_until_begun()
    runs.pause()
    assert runs.state == "pausing"
    gate.let()
    wait_for(lambda: runs.state == "paused")
    runs.resume()
    runs.join(PATIENCE)
    assert runs.state == "finished"


def test_continue_works_while_pausing(gate):
    runs = Session()
    runs.run(tasks(FedAvg(), rounds=2))
    gate.wait_until_begun()
    runs.pause()
    runs.resume()
    assert runs.state == "running"
    gate.let(2)
    runs.join(PATIENCE)
    assert runs.state == "finished" and runs.arms[0].rounds_done == 2


def test_a_paused_run_ends_with_the_bits_of_one_that_was_not(gate):
    runs = Session()
    runs.run(tasks(IFCA(2), rounds=4))
    gate.wait_until_begun()
    runs.pause()
    gate.let(8)
    wait_for(lambda: runs.state == "paused")
    runs.resume()
    runs.join(PATIENCE)
    assert runs.state == "finished"
    (task,) = tasks(IFCA(2), rounds=4).values()
    alone = run(task.method, task.federation(), 4, progress=False)
    assert same_run(runs.arms[0].history, alone)


def test_stop_works_inside_a_round(gate):
    runs = Session()
    runs.run(tasks(FedAvg()))
    gate.wait_until_begun()
    runs.pause()
    gate.let()
    wait_for(lambda: runs.state == "paused")
    runs.stop()
    runs.join(PATIENCE)
    assert not runs.alive and runs.arms[0].rounds_done == 0


def test_stop_frees_the_session_though_a_thread_is_busy(gate):
    runs = Session()
    runs.run(tasks(FedAvg()))
    gate.wait_until_begun()
    runs.stop()
    old = runs.arms[0]
    runs.run(tasks(LocalOnly(), rounds=2))
    wait_for(lambda: runs.state == "finished")
    assert not old.ended  # nobody waited for it
    gate.let()
    wait_for(lambda: old.ended)
    assert runs.state == "finished" and old not in runs.arms and old.rounds_done == 0


def test_an_error_is_shown_and_stops_the_others(gate):
    runs = Session()
    runs.run(replace(SMALL, methods=(Fails(), FedAvg()), rounds=200).tasks())
    wait_for(lambda: runs.state == "failed")
    assert runs.error == "Fails: ValueError: no such round"
    assert "no such round" in runs.arms[0].trace
    gate.let()
    runs.join(PATIENCE)
    assert not runs.alive and runs.arms[1].rounds_done == 0
    runs.run(tasks(LocalOnly(), rounds=1))
    runs.join(PATIENCE)
    assert runs.state == "finished" and runs.error == ""


def test_an_error_before_the_first_round_is_shown():
    runs = Session()
    runs.run(tasks(FixedClusters([0, 1])))
    wait_for(lambda: runs.state == "failed")
    assert "2 labels for 8 clients" in runs.error


@pytest.mark.parametrize(
    ("verb", "state"),
    [("pause", "ready"), ("resume", "ready"), ("stop", "ready")],
)
def test_what_does_not_fit_the_state_is_refused(verb, state):
    with pytest.raises(ValueError, match=f"the session is {state}, need"):
        getattr(Session(), verb)()


def test_no_second_run_while_one_is_on(gate):
    runs = Session()
    with pytest.raises(ValueError, match="no method"):
        runs.run({})
    runs.run(tasks(FedAvg()))
    with pytest.raises(ValueError, match="the session is running"):
        runs.run(tasks(FedAvg()))
    runs.reset()
    gate.let()
    runs.join(PATIENCE)
    assert not runs.alive


def test_a_failing_client_is_named_as_ever():
    task = replace(SMALL, methods=(FedAvg(),), lr=1e30).tasks()
    runs = Session()
    runs.run(task)
    wait_for(lambda: runs.state == "failed")
    assert "ClientError: client" in runs.error and "lower lr" in runs.error


# --- records --------------------------------------------------------------------------


def test_a_paused_run_is_a_record_of_the_rounds_it_did(gate, tmp_path):
    panel = Playground(replace(SMALL, rounds=300, methods=(FedAvg(),)))
    with pytest.raises(ValueError, match="press Run first"):
        panel.save(tmp_path)
    panel.session.run(panel.settings().tasks())
    (arm,) = panel.session.arms
    with pytest.raises(ValueError, match="no round is done yet"):
        panel.save(tmp_path)
    gate.let(3)
    gate.wait_until_begun(4)
    panel.session.pause()
    gate.let()
    wait_for(lambda: panel.session.state == "paused")
    path = panel.save(tmp_path / "new" / "folder")
    panel.session.stop()
    panel.session.join(PATIENCE)
    assert path == tmp_path / "new" / "folder" / "playground.json"
    (record,) = store.read(path)
    gate.let(3)
    task = replace(arm.task, rounds=3)
    again = run(task.method, task.federation(), task.rounds, progress=False)
    wanted = store.plain(store.jsonable(again.final["accuracy"]))
    assert record["key"] == task.key
    assert record["metrics"]["final"]["accuracy"] == wanted
    assert len(record["metrics"]["curves"]["accuracy"]) == 3
    for count in ("bytes", "client_updates"):
        assert record[count] == again.final[count]  # not of the fourth round
    panel.save(tmp_path / "new" / "folder")
    assert len(store.read(path)) == 1  # saved twice, kept once


def test_a_folder_must_be_named(tmp_path):
    panel = Playground(SMALL)
    panel.session.run(panel.settings().tasks())
    panel.session.join(PATIENCE)
    with pytest.raises(ValueError, match="name a folder"):
        panel.save("  ")


# --- forms ----------------------------------------------------------------------------


def made(cls):
    return FixedClusters([0, 1, 0, 1]) if cls is FixedClusters else cls()


@pytest.mark.parametrize("cls", methods.ALL, ids=lambda cls: cls.__name__)
def test_a_form_holds_every_method_and_its_presets(cls):
    method = made(cls)
    form = Form(method)
    assert form.value() == method
    rules = checks.rules(method)
    for name, widget in form.widgets.items():
        rule = rules.get(name)
        if rule is not None and rule.kind == "choice":
            assert tuple(widget.options) == rule.options
        if rule is not None and rule.kind == "flag":
            assert isinstance(widget, ipywidgets.Checkbox)
        if rule is not None and rule.kind in ("integer", "number"):
            assert isinstance(
                widget,
                ipywidgets.IntSlider
                | ipywidgets.FloatSlider
                | ipywidgets.FloatLogSlider,
            ) or rule.holds(np.inf)
    for name in forms.presets(cls):
        form.preset(name)
        assert form.value() == getattr(cls, name)()


@pytest.mark.parametrize("cls", methods.ALL, ids=lambda cls: cls.__name__)
def test_every_choice_and_both_ends_of_every_slider_are_accepted(cls):
    """What a form offers the class takes: nobody is led into an error by a slider."""
    method = made(cls)
    form = Form(method)
    for name, widget in form.widgets.items():
        offered = []
        if isinstance(widget, ipywidgets.Dropdown):
            offered = [
                option[1] if isinstance(option, tuple) else option
                for option in widget.options
            ]
        elif isinstance(widget, ipywidgets.IntSlider | ipywidgets.FloatSlider):
            offered = [widget.min, widget.max]
        elif isinstance(widget, ipywidgets.FloatLogSlider):
            offered = [10**widget.min, 10**widget.max]
        elif isinstance(widget, ipywidgets.Checkbox):
            offered = [True, False]
        for value in offered:
            assert getattr(replace(method, **{name: value}), name) == value


def test_a_form_is_made_of_the_right_widgets():
    form = Form(FedGWC())
    kinds = {name: type(widget).__name__ for name, widget in form.widgets.items()}
    assert "sampled" not in kinds
    assert kinds["retry"] == "Dropdown" and kinds["n_max"] == "IntSlider"
    assert kinds["chance"] == "FloatSlider" and kinds["eps"] == "FloatSlider"
    assert kinds["beta"] == "FloatLogSlider"  # zero is excluded
    assert kinds["normalise"] == "Checkbox" and kinds["alpha"] == "Combobox"
    names = [name for name, _ in form.widgets["aggregator"].options]
    assert "FedAvg" in names and "IFCA" not in names  # the class's own rule decides
    notes = [html.value for html in below(form.view) if type(html) is ipywidgets.HTML]
    assert any("smaller cluster" in note for note in notes)  # from the source
    assert forms.field_notes(FeSEM)["settle"] == forms.field_notes(WeCFL)["settle"]


@pytest.mark.parametrize("cls", methods.ALL, ids=lambda cls: cls.__name__)
def test_every_field_has_a_note_that_says_what_it_does(cls):
    """Not a word such as "as_released"; and of a choice, what can be chosen."""
    notes = forms.field_notes(cls)
    rules = checks.rules(made(cls))
    for field in fields(cls):
        note = notes.get(field.name, "")
        assert len(note.split()) >= 4, f"{cls.__name__}.{field.name}: {note!r}"
        rule = rules.get(field.name)
        if rule is not None and rule.kind == "choice":
            for option in rule.options:
                assert f'"{option}"' in note, f"{cls.__name__}.{field.name}: {option}"


def test_a_slider_adds_no_digits_of_its_own():
    form = Form(FedSoft())
    form.widgets["smoother"].value = 0.05000345
    assert form.value().smoother == 0.05
    exact = FedSoft(smoother=1 / 3)
    form.set(exact)
    assert form.value() == exact


def test_text_boxes_read_words_numbers_and_none():
    form = Form(FedGWC())
    box = form.widgets["alpha"]
    for text, value in (("'share'", "share"), ("share", "share"), ("0.25", 0.25)):
        box.value = text
        assert form.value().alpha == value
    form.widgets["patience"].value = "None"
    assert form.value().patience is None
    form.widgets["patience"].value = "4"
    assert form.value().patience == 4


@pytest.mark.parametrize("text", ["0", "1.5", "often", "(1,"])
def test_a_bad_text_is_refused_with_what_is_needed(text):
    form = Form(FedGWC())
    form.widgets["alpha"].value = text
    with pytest.raises(ValueError, match="alpha.*need 'mean' or 'share', or a finite"):
        form.value()


def test_a_form_tells_of_changes_by_hand_once():
    calls = []
    form = Form(OCFL(), on_change=lambda: calls.append(1))
    form.widgets["clusters"].value = 5
    assert len(calls) == 1 and form.value().clusters == 5
    form.preset("as_released")
    assert len(calls) == 2  # once for all fields
    with pytest.raises(PresetError, match="FedAvg has no preset as_printed"):
        forms.preset(FedAvg, "as_printed")


def test_a_slider_gives_way_to_a_larger_value():
    form = Form(IFCA(clusters=3))
    form.set(IFCA(clusters=200))
    assert form.value() == IFCA(clusters=200)


# --- pictures -------------------------------------------------------------------------


def test_the_board_shows_all_that_was_promised():
    chosen = replace(SMALL, methods=(FedAvg(), IFCA(2), FedGWC()), rounds=2)
    board = pictures.board(played(chosen))
    titles = " / ".join(panel["title"] for panel in board if "title" in panel)
    for words in ("mean over clients", "worst client", "hidden ones (ARI)", "Traffic"):
        assert words in titles
    for name in ("FedAvg", "IFCA", "FedGWC"):
        assert f"{name}: membership over rounds" in titles
    assert "IFCA: how alike two clients look" in titles
    assert "FedGWC: what it clusters on" in titles
    assert sum(panel["kind"] == "text" for panel in board) == 3
    assert pictures.board([]) == []


def test_what_a_method_clusters_on_is_shown():
    fedavg, fedgwc = played(replace(SMALL, methods=(FedAvg(), FedGWC()), rounds=2))
    matrix, name = pictures.pairs(fedgwc)
    assert name == "P"
    assert np.array_equal(matrix, fedgwc.history.state.P.numpy())
    cosines, name = pictures.pairs(fedavg)
    assert name == ""
    assert np.allclose(np.diag(cosines), 1, atol=1e-5) and (abs(cosines) < 1.001).all()


@pytest.mark.parametrize("lr, told", [(10.0, True), (0.05, False)])
def test_a_run_that_does_not_learn_is_told(lr, told):
    chosen = replace(SMALL, lr=lr, rounds=5, methods=(FedAvg(),))
    (arm,) = played(chosen)
    words = pictures.warning(arm)
    assert bool(words) == told
    assert not told or "FedAvg, round 5: the loss is" in words
    (short,) = played(replace(chosen, rounds=4))
    assert pictures.warning(short) == ""  # too early to say


def test_a_run_that_ends_in_nan_fails_with_a_sentence():
    runs = Session()
    runs.run(replace(SMALL, lr=1e30, methods=(FedAvg(),)).tasks())
    runs.join(PATIENCE)
    assert runs.state == "failed"
    assert re.search(r"client \d+ diverged in round 0: .*; lower lr", runs.error)


def test_clients_that_were_never_sampled_leave_holes():
    (arm,) = played(replace(SMALL, methods=(FedAvg(),), share=0.25, rounds=1))
    matrix, _ = pictures.pairs(arm)
    assert np.isfinite(np.diag(matrix)).sum() == 2


def test_without_hidden_clusters_another_score_is_drawn():
    chosen = replace(SMALL, law="dirichlet", law_values={"alpha": 0.5}, rounds=2)
    titles = [panel.get("title", "") for panel in pictures.board(played(chosen))]
    assert any("Wasserstein" in title for title in titles)


def test_long_runs_make_no_wide_pictures():
    (arm,) = played(replace(SMALL, methods=(FedAvg(),), rounds=90))
    panel = pictures.membership(arm)
    assert len(panel["x"]) <= pictures.MOST_COLUMNS and panel["x"][-1] == "90"


# --- the panel ------------------------------------------------------------------------


@pytest.fixture
def panel():
    made = Playground(replace(SMALL, rounds=300, methods=(FedAvg(),)))
    yield made
    made.session.reset()
    made.session.join(PATIENCE)


def test_the_panel_opens_on_its_settings(panel):
    given = replace(SMALL, rounds=300, methods=(FedAvg(),))
    assert panel.settings() == given
    assert panel.map.panels[0]["kind"] == "heatmap"
    assert len(panel.map.panels[0]["x"]) == 8
    assert panel.pause_button.disabled and not panel.run_button.disabled


def test_the_map_follows_the_sliders_at_once(panel):
    panel.clients.value = 12
    assert len(panel.map.panels[0]["x"]) == 12
    panel.law.value = "dirichlet"
    (alpha,) = panel.settings().law_values
    assert alpha == "alpha" and "hidden" not in panel.map.panels[0]["title"]


def test_the_buttons_do_what_they_say(panel, gate):
    panel.run_button.click()
    assert panel.run_button.disabled and not panel.stop_button.disabled
    gate.let(2)
    gate.wait_until_begun(3)
    wait_for(lambda: len(panel.board.panels) > 4)
    wait_for(lambda: "running · round 2 of 300" in panel.status.value)
    assert "left" in panel.status.value
    panel.pause_button.click()
    assert panel.status.value.startswith("pausing")
    assert panel.pause_button.description == "Continue"
    gate.let()
    wait_for(lambda: panel.status.value.startswith("paused · round 2 of 300"))
    panel.pause_button.click()
    assert panel.session.state == "running"
    assert panel.pause_button.description == "Pause"
    panel.stop_button.click()
    assert panel.session.state == "stopped" and not panel.run_button.disabled
    panel.code_button.click()
    assert "methods.FedAvg()" in panel.code_view.value
    panel.reset_button.click()
    assert panel.status.value == "ready"
    wait_for(lambda: panel.board.panels == [])
    wait_for(lambda: threads("playground painter") == [])


def test_pictures_of_earlier_settings_are_marked(panel, gate):
    panel.lr.value = 0.1
    assert panel.earlier.value == ""  # there are no pictures yet
    panel.run_button.click()
    gate.let()
    wait_for(lambda: len(panel.board.panels) > 4)
    assert panel.earlier.value == ""
    panel.lr.value = 0.5
    assert "belong to the run before: press Stop, then Run" in panel.earlier.value
    panel.lr.value = 0.1
    assert panel.earlier.value == ""  # as it was when they were drawn
    panel.slots[1].name.value = "WeCFL"
    panel.stop_button.click()
    assert "press Run for new ones" in panel.earlier.value
    panel.slots[1].form.widgets["clusters"].value = 3
    panel.run_button.click()
    assert panel.earlier.value == ""
    panel.clients.value = 9
    assert panel.earlier.value != ""
    panel.reset_button.click()
    assert panel.earlier.value == ""


def threads(name):
    return [one for one in threading.enumerate() if one.name == name]


def test_errors_are_shown_where_the_person_looks(panel):
    panel._knobs.children[2].value = 9  # m
    assert "m = 9" in panel.map_error.value
    panel.run_button.click()  # refused: nothing starts, no picture is lost
    assert "m = 9" in panel.error.value and panel.session.state == "ready"
    panel._knobs.children[2].value = 3
    assert panel.map_error.value == ""
    panel.slots[1].name.value = "FedGWC"
    panel.slots[1].form.widgets["alpha"].value = "2"
    assert "FedGWC(alpha=2): need" in panel.error.value
    panel.save_button.click()


def test_a_run_that_fails_at_once_does_not_seem_to_go_on(panel):
    panel.slots[0].name.value = "FixedClusters"
    panel.clients.value = 5  # the labels are still those of more clients
    panel.run_button.click()
    wait_for(lambda: "clients" in panel.error.value)
    wait_for(lambda: panel._painter is None)
    assert panel.session.state == "failed" and panel.board.panels == []


def test_another_data_set_brings_its_own_limits(panel, monkeypatch):
    digits = data.load("digits")
    large = data.from_arrays(
        np.tile(digits.x[:1200], (2, 1, 2, 2)), np.tile(digits.y[:1200], 2)
    )
    load = data.load
    monkeypatch.setattr(data, "load", lambda n: large if n == "large" else load(n))
    panel.dataset.options = ["digits", "large", "gone"]
    panel.dataset.value = "large"
    assert panel.samples.max == 2400 and panel.samples.value == 2000
    assert "lenet5" in panel.model.options and panel.settings().samples == 2000
    assert panel.error.value == panel.map_error.value == ""
    panel.dataset.value = "gone"  # what cannot be loaded is told, and does no harm
    assert "unknown data set" in panel.error.value
    panel.dataset.value = "digits"
    assert panel.settings().samples is None and panel.error.value == ""


def test_a_picture_that_fails_is_told_and_the_painter_lives_on(
    panel, gate, monkeypatch
):
    def fail(arms):
        raise RuntimeError("no ink")

    with monkeypatch.context() as patch:
        patch.setattr("fednb.playground.panel.board", fail)
        panel.run_button.click()
        wait_for(lambda: "the picture failed: no ink" in panel.error.value)
    gate.let()
    wait_for(lambda: len(panel.board.panels) > 4)


def test_fixed_clusters_start_from_the_hidden_ones(panel):
    panel.slots[1].name.value = "FixedClusters"
    hidden = panel.settings().deal().truth
    assert panel.settings().methods[1] == FixedClusters(hidden)
    panel.slots[1].name.value = "(none)"
    assert len(panel.settings().methods) == 1


def test_a_method_is_told_how_many_clusters_there_are(panel):
    panel.slots[1].name.value = "IFCA"
    hidden = len(np.unique(panel.settings().deal().truth))
    assert panel.settings().methods[1] == IFCA(clusters=hidden)


@pytest.mark.parametrize("law, title", [("iid", "silhouette"), (SMALL.law, "ARI")])
def test_agreement_is_drawn_only_if_there_is_something_to_find(law, title):
    values = {} if law == "iid" else SMALL.law_values
    chosen = replace(SMALL, law=law, law_values=values, rounds=1)
    drawings = pictures.curves(played(chosen))
    assert title in drawings[2]["title"]
    named = "hidden clusters" in pictures.class_map(chosen)["title"]
    assert named == (law != "iid")


def test_presets_are_buttons(panel):
    panel.slots[0].name.value = "FedGWC"
    names = [button.description for button in panel.slots[0].presets.children]
    assert names == ["as printed", "as released", "corrected"]
    panel.slots[0].presets.children[0].click()
    printed = replace(FedGWC.as_printed(), sampled=1.0)
    assert panel.settings().arms() == (printed,)


def test_every_method_can_be_chosen(panel):
    for cls in methods.ALL:
        panel.slots[0].name.value = cls.__name__
        assert panel.error.value == ""
        assert type(panel.settings().methods[0]) is cls


def test_a_page_without_a_kernel_is_told_what_stands_here(panel):
    bundle = panel._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "JupyterLab" in data["text/html"]


def test_no_output_widget_is_used(panel):
    everything = list(below(panel.view))
    assert not any(isinstance(widget, ipywidgets.Output) for widget in everything)
    assert sum(isinstance(widget, widgets.Board) for widget in everything) == 2


def test_a_slow_browser_is_not_sent_more_than_it_draws():
    board = widgets.Board()
    board.show(widgets.text("one"))
    assert not board.busy  # nobody has ever drawn: there is no browser
    board.drawn = board.number
    board.show(widgets.text("two"))
    assert board.busy
    board.show(widgets.text("two"))
    assert board.number == 2  # the same once more is not sent
    board.drawn = board.number
    assert not board.busy


def test_a_board_that_was_busy_is_drawn_in_the_end(panel):
    panel.board.show(widgets.text("old"))
    panel.board.drawn = panel.board.number
    panel.board.show(widgets.text("new"))  # and the browser takes its time
    panel.rounds.value = 1
    panel.run_button.click()
    panel.session.join(PATIENCE)
    panel.board.drawn = panel.board.number
    wait_for(lambda: len(panel.board.panels) > 4)


def test_many_clients_make_no_large_pictures():
    chosen = Settings(clients=100, rounds=1, methods=(FedAvg(),))
    (arm,) = played(chosen)
    assert np.shape(pictures.similarity(arm)["z"]) == (40, 40)
    assert len(pictures.membership(arm)["y"]) == 40
    assert pictures.some_clients(100)[::39] == [0, 99]


def test_a_task_of_the_playground_is_a_task():
    (task,) = tasks(FedAvg(), rounds=1).values()
    assert isinstance(task, Task) and task.profile == "playground"
    assert session.STATES[0] == "ready"
