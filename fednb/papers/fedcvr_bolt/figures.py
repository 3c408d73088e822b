"""FedCVR-Bolt's chapter in pictures, and the small live runs that it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ... import plots
from ...methods import FedCVRBolt
from ...plots import COLOURS, DASHES, FAINT, INK, MARKERS, style
from ...similarity import covariance_step
from . import outcomes, tasks, theory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from ...federation import Federation


# --- what is computed for the page ----------------------------------------------------


def grouped(
    past: Sequence[theory.WatchedRound], kinds: np.ndarray, warmup: int
) -> outcomes.Grouped:
    """The coalitions of a run that was followed, after its warm-up."""
    rounds = list(range(warmup + 1, len(past) + 1))
    late = past[warmup:]
    coalitions = [now.coalitions.numpy() for now in late]
    dates = [t - 1 - now.waited for t, now in zip(rounds, late, strict=True)]
    return outcomes.Grouped(rounds, coalitions, dates, kinds)


def expected_never_seen() -> dict[str, float]:
    """Share of clients that P of K drawn by lot miss in the warm-up, on average."""
    laptop = tasks.SCALES["laptop"]
    paper = tasks.SCALES["paper"]
    setups = {
        "the paper": (paper.P / paper.clients, paper.warmup),
        "regression watched": (laptop.drawn.P / 100, laptop.drawn.warmup),
        "images at laptop scale": (laptop.P / laptop.clients, laptop.warmup),
    }
    return {name: (1 - share) ** rounds for name, (share, rounds) in setups.items()}


# --- pictures -------------------------------------------------------------------------


# One colour for a policy on the whole page; rows of forests have none.
LOTS_COLOUR = COLOURS[0]
RELEASED_COLOUR = COLOURS[1]
CORRECTED_COLOUR = COLOURS[2]
TURNS_COLOUR = COLOURS[3]
POLICIES = {
    "by lot": LOTS_COLOUR,
    "as released": RELEASED_COLOUR,
    "corrected": CORRECTED_COLOUR,
    "in turn": TURNS_COLOUR,
}
WEIGHTS = {"own": RELEASED_COLOUR, "coalition": CORRECTED_COLOUR}


def _figure(
    rows: int, columns: int, width: float, height: float, **how: Any
) -> tuple[Figure, np.ndarray]:
    from matplotlib.figure import Figure

    style()
    fig = Figure(figsize=(width, height))
    return fig, fig.subplots(rows, columns, squeeze=False, **how)


def overview() -> Figure:
    """A round: coalitions by what was sent last, one representative each, one model."""
    fig, axes = _figure(1, 1, 5.4, 4.6)
    ax = axes[0, 0]
    ax.set(xlim=(0, 8), ylim=(0, 6.8), aspect="equal")
    ax.axis("off")
    angles = np.arange(7) * 2.4
    spiral = 0.32 * np.sqrt(np.arange(7))[:, None]
    members = spiral * np.stack([np.cos(angles), np.sin(angles)], 1)  # (7, 2)
    for p, x in enumerate([1.2, 4.0, 6.8]):
        colour = COLOURS[p]
        centre = (x, 5.6)
        ax.add_patch(_circle(centre, 1.05, fill=False, ec=colour, ls="--", lw=1.2))
        ax.plot(*(members[1:] + centre).T, "o", color=colour, alpha=0.4, ms=6)
        ax.plot(*centre, MARKERS[p], color=colour, ms=11, mec=INK)
        arrow = {"arrowstyle": "<->", "color": colour, "lw": 1.8, "shrinkA": 8}
        ax.annotate("", (2.4 + 1.6 * p, 2.6), centre, arrowprops=arrow)
    box = {"boxstyle": "round,pad=0.6", "fc": "white", "ec": INK}
    words = (
        "server: keeps what each client sent last\n"
        "1  forms P coalitions of like models\n"
        "2  scores each client: how much does it\n    tell about the mean of all?\n"
        "3  draws one client of each coalition\n"
        "4  averages what these send back"
    )
    ax.text(4.0, 1.4, words, ha="center", va="center", ma="left", bbox=box)
    ax.text(0.2, 3.2, "down: the\nglobal model", fontsize=9.5)
    ax.text(6.2, 3.2, "up: what these\nthree trained", fontsize=9.5)
    return fig


def _circle(centre: tuple[float, float], radius: float, **how: Any) -> Any:
    from matplotlib.patches import Circle

    return Circle(centre, radius, **how)


def poll(
    opinions: np.ndarray, groups: Sequence[np.ndarray], polls: int = 3000
) -> Figure:
    """Clients' opinions (K, 2) in two groups; and how far two kinds of polls are
    off.
    """
    rng = np.random.default_rng(0)
    everyone = np.arange(len(opinions))
    ways = {"ten at random": [everyone, everyone], "five of each group": groups}
    colours = dict(zip(ways, (LOTS_COLOUR, RELEASED_COLOUR), strict=True))
    fig, axes = _figure(1, 2, 7.0, 3.0)
    left, right = axes[0]
    for place, group in enumerate(groups):
        how = {"color": INK, "alpha": 0.5, "fillstyle": ("full", "none")[place]}
        left.plot(*opinions[group].T, "os"[place], label=f"group {place}", **how)
    left.legend()
    for way, sides in ways.items():
        asked = [[rng.choice(side, 5) for side in sides] for _ in range(polls)]
        means = opinions[np.array(asked).reshape(polls, 10)].mean(1)  # (polls, 2)
        off = np.linalg.norm(means - opinions.mean(0), axis=1)
        label = f"{way}: {off.mean():.3f} on average"
        right.hist(off, 40, color=colours[way], alpha=0.6, label=label)
    right.legend(fontsize=8.5)
    right.margins(y=0.45)  # room for the legend
    left.set(title="each client's own line", xlabel="intercept θ₀", ylabel="slope θ₁")
    right.set(title="error of a poll", xlabel="distance from the mean of all")
    right.set_ylabel("polls")
    return fig


def waits(runs: Mapping[str, Sequence[theory.WatchedRound]], warmup: int) -> Figure:
    """How long those picked had waited, after the warm-up: a panel for each policy."""
    fig, axes = _figure(len(runs), 1, 5.8, 1.35 * len(runs), sharex=True, sharey=True)
    longest = max(int(now.waited.max()) for past in runs.values() for now in past)
    bins = np.arange(longest + 2) - 0.5
    for ax, (name, past) in zip(axes[:, 0], runs.items(), strict=True):
        late = past[warmup:]
        picked = np.concatenate([now.waited[now.picked] for now in late])
        share = np.full(len(picked), 1 / len(picked))
        ax.hist(picked, bins, weights=share, color=POLICIES[name])
        ax.set_title(f"{name}: at most {picked.max()} rounds", loc="left")
    axes[-1, 0].set_xlabel("rounds since a picked client was last seen")
    fig.supylabel("share of picks", fontsize=10)
    return fig


def dates_and_classes(runs: Mapping[str, outcomes.Grouped]) -> Figure:
    """Coalitions in the last round, by date and by class; below, both over the rounds.

    Two lines of panels for each data set. A column of squares is a coalition.
    """
    from matplotlib.figure import Figure

    style()
    fig = Figure(figsize=(6.6, 4.3 * len(runs)))
    mosaic: list[Any] = []
    for name in runs:
        mosaic += [[f"{name}: by date", f"{name}: by class"], [name, name]]
    axes = fig.subplot_mosaic(mosaic, height_ratios=[1.2, 1] * len(runs))
    for name, run in runs.items():
        by_date = axes[f"{name}: by date"]
        by_class = axes[f"{name}: by class"]
        dates = _stacks(by_date, run.coalitions[-1], run.dates[-1], "viridis")
        classes = _stacks(by_class, run.coalitions[-1], run.kinds, "tab10", (-0.5, 9.5))
        fig.colorbar(dates, ax=by_date, label="last seen in round")
        fig.colorbar(
            classes, ax=by_class, label="most frequent class", ticks=range(0, 10, 3)
        )
        by_date.set_title(f"{name}: by date")
        by_class.set_title(f"{name}: by class")
        with_dates, with_kinds = run.agreement()
        ax = axes[name]
        ax.plot(run.rounds, with_dates, color=INK, label="with the date")
        ax.plot(run.rounds, with_kinds, "--", color="0.55", label="with the class")
        ax.axhline(0, color=INK, linewidth=0.8)
        ax.set(xlabel="round", ylabel="AMI of coalitions", ylim=(-0.2, 0.9))
        ax.legend(loc="upper right", ncols=2, fontsize=8.5)
    return fig


def _stacks(
    ax: Axes,
    coalitions: np.ndarray,
    colours: np.ndarray,
    cmap: str,
    limits: tuple[float, float] | None = None,
) -> Any:
    """Clients as squares, stacked by coalition, sorted and coloured by some number.

    Returns what a colour bar needs.
    """
    low, high = limits or (colours.min(), colours.max())
    places = []
    shades = []
    order = np.argsort(-np.bincount(coalitions))
    for x, p in enumerate(order):
        members = np.sort(colours[coalitions == p])
        places += [(x, y + 1) for y in range(len(members))]
        shades += members.tolist()
    size = 900 / max(np.bincount(coalitions).max(), 20)
    x, y = np.transpose(places)
    how = {"cmap": cmap, "marker": "s", "s": size, "vmin": low, "vmax": high}
    drawn = ax.scatter(x, y, c=shades, **how)
    ax.set(xlabel="coalition", ylabel="number of clients", xticks=[])
    ax.margins(0.12)
    return drawn


def choice_over_beta(
    runs: Mapping[str, Sequence[theory.WatchedRound]], betas: Sequence[float]
) -> Figure:
    """How freely representatives are drawn, for any β; dotted: the paper's β = 1."""
    fig, axes = _figure(1, 1, 6.4, 3.2)
    ax = axes[0, 0]
    for i, (name, past) in enumerate(runs.items()):
        free = [theory.freedom(past, beta) for beta in betas]
        line = f"{MARKERS[i]}{DASHES[i % len(DASHES)]}"
        colour = CORRECTED_COLOUR if name == "corrected" else RELEASED_COLOUR
        if "digits" in name:
            colour = COLOURS[4]
        ax.semilogx(betas, free, line, color=colour, markersize=4, label=name)
    ax.axvline(1, color="0.5", linestyle=":")
    ax.set(xlabel="β", ylabel="entropy, as a share of lots", ylim=(0, 1.05))
    ax.legend(fontsize=8.5)
    return fig


def uphill(runs: Mapping[str, Sequence[theory.Look]], warmup: int) -> Figure:
    """Alignment, noise and global loss of watched runs, round by round."""
    fig, axes = _figure(3, 1, 5.8, 6.6, sharex=True)
    alignment, noise, loss = axes[:, 0]
    for name, found in runs.items():
        rounds = np.arange(warmup + 1, warmup + len(found) + 1)
        how = {"color": POLICIES[name], "linewidth": 1.4, "label": name}
        alignment.plot(rounds, [look.alignment for look in found], **how)
        noise.semilogy(rounds, [look.noise for look in found], **how)
        loss.plot(rounds, [look.loss for look in found], **how)
    alignment.axhline(0, color=INK, linewidth=1)
    alignment.set_yscale("symlog", linthresh=2)
    alignment.set(title="A3 wants this above 0", ylabel="⟨G, ∇L⟩ / ‖∇L‖²")
    noise.axhline(1, color=LOTS_COLOUR, linewidth=1.4, label="by lot")
    noise.set(title="variance of an update within a round", ylabel="times that by lot")
    loss.set(title="global loss on training data", ylabel="loss", xlabel="round")
    handles, names = noise.get_legend_handles_labels()
    fig.legend(handles, names, ncols=3, loc="outside upper center", fontsize=8.5)
    return fig


def goals(
    z: np.ndarray, coalitions: np.ndarray, brought: Mapping[str, np.ndarray]
) -> Figure:
    """Clients' goals z (K, 2), their mean, and what each weighting brings home.

    Assumption A3 fails in the disc between the mean and what own weights bring.
    """
    fig, axes = _figure(1, 1, 6.2, 3.6)
    ax = axes[0, 0]
    middle = z.mean(0)
    for p in range(coalitions.max() + 1):
        goals = z[coalitions == p]
        label = f"goals of coalition {p + 1}"
        ax.plot(*goals.T, MARKERS[p], color="0.55", markersize=4, label=label)
    bias = brought["own"] - middle
    radius = float(np.linalg.norm(bias)) / 2
    disc = {"alpha": 0.3, "color": RELEASED_COLOUR}
    ax.add_patch(_circle(middle + bias / 2, radius, **disc))
    for name, colour in WEIGHTS.items():
        label = f"weight: {name}, z̃"
        ax.plot(*brought[name], "*", color=colour, markersize=13, label=label)
    ax.plot(*middle, "k+", markersize=16, label="z̄, the minimum")
    ax.set(aspect="equal", xlabel="θ₁", ylabel="θ₂", title="A3 fails in the disc")
    ax.legend(fontsize=8.5, loc="upper left", bbox_to_anchor=(1, 1))
    return fig


def floors(
    ends: Mapping[str, Mapping[str, Sequence[float]]], etas: Sequence[float]
) -> Figure:
    """Where the squared gradient ends for each learning rate: a panel for each case."""
    fig, axes = _figure(1, len(ends), 3.3 * len(ends), 3.1)
    for ax, (title, lines) in zip(axes[0], ends.items(), strict=True):
        for i, (name, end) in enumerate(lines.items()):
            colour = WEIGHTS.get(name.removeprefix("weight: "), INK)
            ax.loglog(etas, end, f"{MARKERS[i]}-", color=colour, label=name)
        ax.set(title=title, xlabel="learning rate η", ylabel="mean ‖∇L‖²  (better ↓)")
        ax.minorticks_off()
        ax.set_xticks(etas, [f"{eta:g}" for eta in etas])
        ax.legend(fontsize=8.5, loc="upper left", bbox_to_anchor=(0, 0.9))
    return fig


def forest(
    panels: Mapping[str, DataFrame],
    xlabel: str,
    line: float = 0.0,
    log: bool = False,
    limits: tuple[float, float] | None = None,
) -> Figure:
    """Mean and interval of each row, a panel for each frame of `outcomes.differences`.

    A dark square has an interval that excludes the line, a grey circle one that
    contains it. What lies beyond ``limits`` is cut off, with an arrow and its mean.
    """
    names = list(dict.fromkeys(row for part in panels.values() for row in part["row"]))
    height = 0.27 * len(names) + 0.9
    width = 2.4 + 2.1 * len(panels)
    fig, axes = _figure(1, len(panels), width, height, sharey=True)
    for ax, (title, part) in zip(axes[0], panels.items(), strict=True):
        ax.axvline(line, color=INK, linewidth=1)
        for cell in part.itertuples():
            place = names.index(cell.row)
            clear = cell.low > line or cell.high < line
            colour = INK if clear else "0.6"
            if limits and not limits[0] < cell.mean < limits[1]:
                _beyond(ax, cell.mean, place, limits)
                continue
            ax.plot([cell.low, cell.high], [place, place], color=colour, lw=1.8)
            ax.plot(cell.mean, place, "s" if clear else "o", color=colour, ms=4.5)
        if log:
            ax.set_xscale("log")
        if limits:
            ax.set_xlim(limits)
        ax.set(title=title, xlabel=xlabel)
        ax.grid(axis="y", color=FAINT)
    shown = [outcomes.SHOWN.get(name, name) for name in names]
    axes[0, 0].set_yticks(range(len(names)), shown)
    axes[0, 0].set_ylim(len(names) - 0.5, -0.5)
    return fig


def _beyond(ax: Axes, mean: float, place: int, limits: tuple[float, float]) -> None:
    """An arrow at the edge, and the mean that lies beyond it."""
    right = mean > limits[1]
    edge = limits[int(right)]
    how: dict[str, Any] = {"va": "center", "fontsize": 8.5, "color": INK}
    if right:
        ax.text(edge, place, f"{mean:+.0f} ▶", ha="right", **how)
    else:
        ax.text(edge, place, f"◀ {mean:+.0f}", ha="left", **how)


def learning(rows: Sequence[str]) -> Figure:
    """Accuracy over the rounds on Synthetic and MNIST; mean and spread over seeds.

    MNIST's axis begins at the lowest accuracy after the first third of the rounds.
    """
    digits = outcomes.mnist()
    shown = digits.loc[digits["row"].isin(rows), "course"]
    fig, axes = _figure(2, 1, 6.6, 6.2)
    frames = (outcomes.synthetic(), digits)
    for ax, frame in zip(axes[:, 0], frames, strict=True):
        runs = {row: list(frame.loc[frame["row"] == row, "course"]) for row in rows}
        plots.curves(runs, "accuracy", ax=ax)
    late = min(course["accuracy"].iloc[len(course) // 3 :].min() for course in shown)
    axes[1, 0].set_ylim(bottom=late)  # the first third would hide the differences
    axes[0, 0].set_title(f"Synthetic(1, 1), {frames[0]['scale'].iloc[0]}")
    axes[1, 0].set_title(f"MNIST, {digits['scale'].iloc[0]}, {outcomes.seeds(digits)}")
    axes[0, 0].get_legend().remove()
    return fig


def costs(fed: Federation, sizes: Sequence[int], width: int = 300) -> DataFrame:
    """Seconds of the server's work in a round, for K clients and some parameters.

    The last line is ten clients' training, in this federation.
    """
    import pandas as pd

    lines = []
    rng = torch.Generator().manual_seed(0)
    for K in sizes:
        rows = torch.randn(K, width, generator=rng).double()
        seconds = _seconds(FedCVRBolt().form, rows, 10, 0)
        lines.append((f"coalitions of {K:,} clients", seconds))
    old = torch.ones(K, width).double()
    share = torch.ones(K).double() / K
    seconds = _seconds(covariance_step, old, old, rows, share, 0.1)
    lines.append((f"covariances of {K:,} clients", seconds))
    seconds = _seconds(fed.train, fed.start()[0], torch.arange(10))
    lines.append(("ten clients train ten steps", seconds))
    return pd.DataFrame(lines, columns=["", "seconds"]).set_index("").round(4)


def _seconds(work: Callable[..., Any], *args: Any) -> float:
    """The fastest of three calls, so that imports and other programs do not count."""
    found = []
    for _ in range(3):
        start = perf_counter()
        work(*args)
        found.append(perf_counter() - start)
    return min(found)
