"""The playground itself: widgets around settings, a session and its pictures.

Runs happen in threads, and one more thread draws, at most every ``REFRESH`` seconds:
the kernel stays free, also while three methods learn. There is no ``Output`` widget.
"""

from __future__ import annotations

import html
import math
import threading
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import ipywidgets as w

from .. import data, methods, store
from ..widgets import Board, text
from .forms import SMALL, WIDE, Form, presets, three_digits
from .pictures import board, class_map, warning
from .session import Session
from .settings import (
    LAWS,
    MOST_METHODS,
    Knob,
    Settings,
    networks_for,
    start_values,
)

REFRESH = 0.4  # seconds between two pictures
START_SAMPLES = 2000  # of a large data set, so that a round stays short
NONE = "(none)"
STEPS = ("1. The clients", "2. A round", "3. The methods")  # titles of the tabs
EARLIER = "You have changed a setting. These pictures belong to the run before: "
TABLE = "playground.json"
COLUMNS = {  # up to three side by side, one on a narrow screen
    "grid_template_columns": "repeat(auto-fit, minmax(min(100%, 310px), 1fr))",
    "grid_gap": "4px 24px",
    "width": "100%",
}
SCROLLS = {  # a long list of fields does not push Run off the screen
    "display": "block",
    "max_height": "230px",
    "overflow": "auto",
}
PRESET_NOTES = {
    "as_printed": "all fields as the paper's text says",
    "as_released": "all fields as the authors' released code has them",
    "corrected": "all fields as we would set them, errors that we found mended",
}
STATIC = (  # colours of its own: a page may paint a light box behind it in the dark
    '<div style="background:#eef4fa;color:#1f2328;border-left:4px solid #0072b2;'
    'padding:0.6rem 0.9rem">Here stands the playground, which needs a kernel. Open '
    "this notebook in JupyterLab and run the cell. On this page the explorer below "
    "moves over settings that were run beforehand.</div>"
)


class Playground:
    """Choose a federation and one to three methods, press Run, and watch.

    Display it as the last line of a cell in JupyterLab. ``settings()`` is what is
    chosen, ``session`` what is running, ``code()`` the Python that does the same.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        start = Settings() if settings is None else settings
        self.session = Session(self._something_new)
        self._news = threading.Event()
        self._painter_lock = threading.Lock()
        self._status_lock = threading.Lock()
        self._painter: threading.Thread | None = None
        self._up_to_date = True  # whether the last picture was sent
        self._quiet = True  # while widgets are being set by the program
        self._note = ""  # what a button has to say behind the status
        self._pictured: Settings | None = None  # what the pictures belong to
        self._changed = False  # whether something else is chosen now
        self._make_common(start)
        self._make_law(start)
        chosen = [*start.methods, None, None][:MOST_METHODS]
        self.slots = [
            Slot(number, method, self._hidden_clusters, self._settings_changed)
            for number, method in enumerate(chosen)
        ]
        self._make_run()
        self.view = self._arrange()
        self._quiet = False
        self._settings_changed()
        self.refresh()

    # --- what the person chose --------------------------------------------------------

    def settings(self) -> Settings:
        """What the widgets say; a value that does not fit is refused in a sentence."""
        chosen = [slot.form.value() for slot in self.slots if slot.form is not None]
        return self._settings(tuple(chosen))

    def _settings(self, chosen: tuple[Any, ...]) -> Settings:
        rows = data.load(self.dataset.value).n_train
        return Settings(
            dataset=self.dataset.value,
            samples=None if self.samples.value >= rows else self.samples.value,
            law=self.law.value,
            law_values=self._law_values(),
            clients=self.clients.value,
            model=self.model.value,
            share=_short(self.share.value),
            epochs=self.epochs.value,
            steps=self.steps.value or None,
            lr=_short(self.lr.value),
            batch_size=self.batch_size.value,
            rounds=self.rounds.value,
            seed=self.seed.value,
            methods=chosen,
        )

    def _hidden_clusters(self) -> list[int]:
        """The clusters that the law hides; one for all if it hides none."""
        truth = self._settings((methods.FedAvg(),)).deal().truth
        return [0] * self.clients.value if truth is None else truth.tolist()

    def code(self) -> str:
        """The Python that does the same."""
        return self.settings().code()

    def save(self, folder: str | Path) -> Path:
        """Write a record of each run into ``playground.json`` in a folder."""
        if not self.session.arms:
            raise ValueError("save: nothing has run yet; press Run first")
        if not str(folder).strip():
            raise ValueError("save: name a folder to write to")
        path = Path(folder).expanduser() / TABLE
        for arm in list(self.session.arms):
            store.append(path, arm.record())
        return path

    def _law_values(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for (name, knob), slider in zip(
            LAWS[self.law.value].knobs, self._knobs.children, strict=True
        ):
            value = _short(slider.value)
            if knob.place is None:
                values[name] = value
            else:
                values[name] = (*values.get(name, ()), value)
        return values

    # --- widgets ----------------------------------------------------------------------

    def _make_common(self, start: Settings) -> None:
        rows = data.load(start.dataset).n_train
        self.dataset = _dropdown("data set", data.at_hand(), start.dataset)
        self.samples = _slider("samples used", start.samples or rows, 100, rows)
        self.clients = _slider("clients", start.clients, 2, 100)
        self.seed = _slider("seed", start.seed, 0, 100)
        names = list(networks_for(start.dataset))
        self.model = _dropdown("network", names, start.model)
        self.share = _slider("share sampled", start.share, 0.05, 1.0)
        self.epochs = _slider("local epochs", start.epochs, 1, 10)
        self.steps = _slider("steps (0: epochs)", start.steps or 0, 0, 100)
        self.batch_size = _slider("batch size", start.batch_size, 4, 128)
        self.lr = _knob_slider(Knob("learning rate", start.lr, 1e-4, 10, log=True))
        self.rounds = _slider("rounds", start.rounds, 1, 300)
        self.dataset.observe(self._dataset_changed, "value")
        dealt = (self.samples, self.clients, self.seed)
        rest = (self.model, self.share, self.epochs, self.steps, self.batch_size)
        for widget in (*dealt, *rest, self.lr, self.rounds):
            widget.observe(self._settings_changed, "value")

    def _make_law(self, start: Settings) -> None:
        options = [(law.label, name) for name, law in LAWS.items()]
        self.law = _dropdown("who holds what", options, start.law)
        self._knobs = w.VBox()
        self.map = Board(columns=1)
        self.map_error = w.HTML()
        self._law_changed(values=start.law_values)
        self.law.observe(lambda _: self._law_changed(), "value")

    def _make_run(self) -> None:
        self.run_button = _button("Run", self._run, "play", "success")
        self.pause_button = _button("Pause", self._pause, "pause")
        self.stop_button = _button("Stop", self._stop, "stop", "danger")
        self.reset_button = _button("Reset", self._reset, "undo")
        self.code_button = _button("As code", self._show_code, "code")
        self.save_button = _button("Save", self._save, "save")
        self.folder = w.Text(
            value="my_runs",
            description="folder",
            tooltip="where Save writes playground.json",
            layout=w.Layout(width="260px"),
        )
        self.bar = w.FloatProgress(min=0, max=1, layout=w.Layout(width="260px"))
        self.status = w.HTML()
        self.error = w.HTML()
        self.warning = w.HTML()  # says that a method does not learn
        self.code_view = w.HTML()
        self.earlier = w.HTML()  # says that the pictures belong to other settings
        self.board = Board()

    def _arrange(self) -> w.Widget:
        wrap = w.Layout(flex_flow="row wrap", display="flex", align_items="center")
        federation = w.VBox(
            [self.dataset, self.samples, self.clients, self.law]
            + [self._knobs, self.seed]
        )
        picture = w.VBox([self.map_error, self.map])
        model = w.VBox([self.model, self.share, self.rounds])
        training = w.VBox([self.epochs, self.steps, self.batch_size, self.lr])
        steps = [
            [federation, picture],
            [model, training],
            [slot.view for slot in self.slots],
        ]
        # Tabs keep Run, the error and the first pictures on one screen.
        self.tabs = w.Tab(
            [w.GridBox(step, layout=w.Layout(**COLUMNS)) for step in steps],
            titles=STEPS,
        )
        buttons = w.Box(
            [self.run_button, self.pause_button, self.stop_button, self.reset_button]
            + [self.code_button, self.save_button, self.folder],
            layout=wrap,
        )
        view = w.VBox(
            [self.tabs, buttons, w.Box([self.bar, self.status], layout=wrap)]
            + [self.error, self.warning, self.code_view, self.earlier, self.board]
        )
        view.add_class("fednb-playground")
        return view

    # --- changes of settings ----------------------------------------------------------

    def _dataset_changed(self, _: Any = None) -> None:
        self._guarded(self._take_dataset)

    def _take_dataset(self) -> None:
        """Offer what the chosen data set has, then show who holds what."""
        found = data.load(self.dataset.value)
        networks = list(networks_for(self.dataset.value))
        chosen = self.model.value
        self._quiet = True
        try:
            self.samples.max = found.n_train
            self.samples.value = min(found.n_train, START_SAMPLES)
            self.model.options = networks
            self.model.value = chosen if chosen in networks else networks[0]
        finally:
            self._quiet = False
        self._settings_changed()

    def _law_changed(self, values: dict[str, Any] | None = None) -> None:
        law = self.law.value
        values = start_values(law) if values is None else values
        sliders = []
        for name, knob in LAWS[law].knobs:
            value = values[name] if knob.place is None else values[name][knob.place]
            slider = _knob_slider(knob._replace(start=value))
            slider.observe(self._settings_changed, "value")
            sliders.append(slider)
        self._knobs.children = sliders
        self._settings_changed()

    def _settings_changed(self, _: Any = None) -> None:
        """Draw who holds what, or say why it cannot be."""
        if self._quiet:
            return
        self.code_view.value = ""
        self.map_error.value = ""
        try:
            self.map.show(class_map(self._settings((methods.FedAvg(),))))
        except Exception as error:
            self.map_error.value = _alarm(str(error))
        self._changed = True
        self._guarded(self._compare)

    def _compare(self) -> None:
        """Find out whether the pictures belong to what is chosen now."""
        self._changed = self.settings() != self._pictured

    # --- the buttons ------------------------------------------------------------------

    def _run(self, _: Any = None) -> None:
        def run() -> None:
            chosen = self.settings()
            chosen.deal()  # a law that does not fit is refused before any run starts
            self.session.run(chosen.tasks())
            self._pictured = chosen
            self._changed = False

        self._guarded(run)

    def _pause(self, _: Any = None) -> None:
        if self.session.state in ("pausing", "paused"):
            self._guarded(self.session.resume)
        else:
            self._guarded(self.session.pause)

    def _stop(self, _: Any = None) -> None:
        self._guarded(self.session.stop)

    def _reset(self, _: Any = None) -> None:
        self.code_view.value = ""
        self._guarded(self.session.reset)

    def _show_code(self, _: Any = None) -> None:
        def show() -> None:
            look = "overflow:auto;padding:0.6rem;border:1px solid #8886;line-height:1.4"
            code = html.escape(self.code())
            self.code_view.value = f'<pre style="{look}">{code}</pre>'

        self._guarded(show)

    def _save(self, _: Any = None) -> None:
        def save() -> None:
            path = self.save(self.folder.value)
            self._note = f" · saved to {path}"

        self._guarded(save)

    def _guarded(self, act: Any) -> None:
        """Do it, and show what goes wrong where the person looks: under the buttons."""
        self.error.value = ""
        self._note = ""
        try:
            act()
        except Exception as error:
            self.error.value = _alarm(str(error) or type(error).__name__)
        if not self._quiet:
            self._show_status()

    # --- drawing ----------------------------------------------------------------------

    def _something_new(self) -> None:
        """Called by the session from any thread: wake the painter, or start it."""
        self._news.set()
        with self._painter_lock:
            if self._painter is None:
                self._painter = threading.Thread(
                    target=self._paint, name="playground painter", daemon=True
                )
                self._painter.start()

    def _paint(self) -> None:
        """Draw whenever there is something new, until nothing runs any more."""
        while True:
            self._news.wait(1.0 if self._up_to_date else REFRESH)
            self._news.clear()
            try:
                self.refresh()
            except Exception as error:  # the painter must live on
                self.error.value = _alarm(f"the picture failed: {error}")
            time.sleep(REFRESH)
            with self._painter_lock:
                more_to_come = self.session.active or self._news.is_set()
                if self._up_to_date and not more_to_come:
                    self._painter = None
                    return

    def refresh(self) -> None:
        """Bring buttons, progress and pictures up to date."""
        self._show_status()
        if self.session.error:
            self.error.value = _alarm(self.session.error)
        told = [warning(arm) for arm in self.session.arms]
        self.warning.value = "".join(_note(html.escape(one)) for one in told if one)
        self._up_to_date = not self.board.busy
        if self._up_to_date:  # else the browser would fall behind
            drawings = board(self.session.arms)
            if not drawings and self.session.active:
                drawings = [text("The first round is under way …")]
            self.board.show(*drawings)

    def _show_status(self) -> None:
        """Bring buttons, progress bar and status up to date, one thread at a time."""
        with self._status_lock:
            session = self.session
            status = _status(session) + self._note
            active = session.active
            paused = status.startswith(("pausing", "paused"))
            self.run_button.disabled = active
            self.pause_button.disabled = not active
            self.pause_button.description = "Continue" if paused else "Pause"
            self.pause_button.icon = "play" if paused else "pause"
            self.stop_button.disabled = not active
            self.save_button.disabled = not session.arms
            self.bar.value = session.progress
            self.status.value = html.escape(status)
            self.earlier.value = ""
            if session.arms and self._changed:
                press = "Stop, then Run" if active else "Run"
                self.earlier.value = _note(f"{EARLIER}press {press} for new ones.")

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The live panel, and for a page without a kernel a note."""
        bundle = self.view._repr_mimebundle_(**kwargs)
        found, *rest = bundle if isinstance(bundle, tuple) else (bundle,)
        found = {**(found or {}), "text/html": STATIC}
        return (found, *rest) if rest else found


class Slot:
    """A place for one method: which it is, its presets, and a form of its fields.

    ``hidden_clusters`` tells where the fixed clusters start: from the true ones.
    """

    def __init__(
        self,
        number: int,
        method: Any | None,
        hidden_clusters: Callable[[], list[int]],
        on_change: Callable[[], None],
    ) -> None:
        self._hidden_clusters = hidden_clusters
        self._on_change = on_change
        self.form: Form | None = None
        names = [cls.__name__ for cls in methods.ALL]
        if number:
            names = [NONE, *names]
        name = NONE if method is None else type(method).__name__
        self.name = _dropdown(f"method {number + 1}", names, name)
        self.idea = w.HTML()
        self.presets = w.Box(layout=w.Layout(flex_flow="row wrap"))
        self._fold = w.Accordion([w.VBox()], titles=("parameters",))
        self.view = w.VBox([self.name, self.idea, self.presets, self._fold])
        self._build(method)
        self.name.observe(self._name_changed, "value")

    def _name_changed(self, _: Any) -> None:
        self._build(self._default())
        self._on_change()

    def _default(self) -> Any | None:
        """The chosen class as it is by default, told how many clusters there are."""
        if self.name.value == NONE:
            return None
        cls = getattr(methods, self.name.value)
        hidden = self._hidden_clusters()
        if cls is methods.FixedClusters:
            return cls(hidden)
        many = len(set(hidden))
        told = any(field.name == "clusters" for field in fields(cls))
        return cls(clusters=many) if told and many > 1 else cls()

    def _build(self, method: Any | None) -> None:
        """Show a method: its idea in a sentence, its presets, its fields."""
        self.form = None
        self.idea.value = ""
        self.presets.children = ()
        self._fold.children = (w.VBox(),)
        self._fold.layout.display = "none"
        if method is None:
            return
        form = Form(method, on_change=self._on_change)
        self.form = form
        self.idea.value = f'<div style="{SMALL}">{html.escape(_idea(method))}</div>'
        self.presets.children = tuple(
            _button(
                name.replace("_", " "),
                lambda _, name=name: form.preset(name),
                tooltip=PRESET_NOTES[name],
            )
            for name in presets(type(method))
        )
        if form.widgets:
            self._fold.children = (w.Box([form.view], layout=w.Layout(**SCROLLS)),)
            self._fold.layout.display = None


def _idea(method: Any) -> str:
    """What a method does, in the first sentence of its class's docstring."""
    first = (type(method).__doc__ or "").strip().partition("\n\n")[0]
    return " ".join(first.replace("``", "").split())


def _short(value: float) -> float:
    """A slider's number with three digits; integers as they are."""
    return value if isinstance(value, int) else three_digits(value)


def _status(session: Session) -> str:
    """One line: the state, how far, how long still."""
    words = [session.state]
    if session.arms:
        rounds = ", ".join(f"{arm.rounds_done}" for arm in session.arms)
        words.append(f"round {rounds} of {session.arms[0].task.rounds}")
        words.append(f"{session.seconds:.1f} s")
    if session.seconds_left is not None:
        words.append(f"about {session.seconds_left:.0f} s left")
    return " · ".join(words)


def _alarm(message: str) -> str:
    look = "color:#b3261e;font-weight:600;white-space:pre-wrap"
    return f'<div role="alert" style="{look}">{html.escape(message)}</div>'


def _note(message: str) -> str:
    """A line on a yellow bar, with colours of its own for light and dark pages."""
    look = "background:#fff3c4;color:#1f2328;border-left:4px solid #b08000"
    return f'<div role="status" style="{look};padding:2px 8px">{message}</div>'


def _button(
    label: str, act: Any, icon: str = "", style: str = "", tooltip: str = ""
) -> w.Button:
    button = w.Button(
        description=label,
        icon=icon,
        button_style=style,
        tooltip=tooltip,
        layout=w.Layout(width="auto"),
    )
    button.on_click(act)
    return button


def _dropdown(label: str, options: Any, value: Any) -> w.Dropdown:
    return w.Dropdown(
        description=label,
        options=options,
        value=value,
        style=WIDE,
        layout=w.Layout(width="auto"),
    )


def _slider(label: str, value: float, least: float, most: float) -> w.Widget:
    """A slider over integers, or over shares in steps of 0.05."""
    look = {
        "description": label,
        "style": WIDE,
        "layout": w.Layout(width="auto"),
    }
    if isinstance(least, int):
        return w.IntSlider(value, least, most, **look)
    return w.FloatSlider(value, min=least, max=most, step=0.05, **look)


def _knob_slider(knob: Knob) -> w.Widget:
    if not knob.log:
        return _slider(knob.label, int(knob.start), int(knob.least), int(knob.most))
    return w.FloatLogSlider(
        knob.start,
        min=math.log10(knob.least),
        max=math.log10(knob.most),
        step=0.001,  # of the exponent: fine enough to hit 0.05 and the like
        description=knob.label,
        readout_format=".3g",
        style=WIDE,
        layout=w.Layout(width="auto"),
    )
