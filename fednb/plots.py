"""The book's pictures: clients and classes, learning curves, matrices, points.

Each function returns a matplotlib Figure; put it on the page with
:func:`fednb.show.show` and an alternative text. With ``ax`` most draw into these axes
of a larger figure instead. The colours are those of Okabe and Ito, which colour-blind
readers can tell apart; groups differ in more than colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# of Okabe and Ito
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#B8A800",
)
MARKERS = "osD^vP*X"
DASHES = ("-", "--", "-.", ":")
INK = "#333333"
FAINT = "#D9D9D9"
NAMES = {
    "client_updates": "client updates",
    "bytes": "traffic in MB",
    "macro_f1": "macro F1",
    "macro_f1_union": "macro F1 (union)",
    "accuracy_weighted": "accuracy (by samples)",
}


def svg(figure: Figure, texts: str, **options: Any) -> bytes:
    """A figure as SVG; the same figure gives the same bytes.

    With ``texts="path"`` words are drawn as outlines, with ``"none"`` they stay text.
    ``options`` are savefig's.
    """
    import matplotlib as mpl

    buffer = BytesIO()
    with mpl.rc_context({"svg.hashsalt": "fednb", "svg.fonttype": texts}):
        figure.savefig(buffer, format="svg", **options)
    return buffer.getvalue()


def webp(figure: Figure, quality: int, **options: Any) -> bytes:
    """A figure as WebP; ``options`` are savefig's."""
    buffer = BytesIO()
    packed = {"quality": quality, "method": 6}
    figure.savefig(buffer, format="webp", pil_kwargs=packed, **options)
    return buffer.getvalue()


def few_colours(figure: Figure, **options: Any) -> bytes:
    """A figure as lossless WebP with 256 colours: small and sharp for lines and words.

    ``options`` are savefig's.
    """
    from PIL import Image

    drawn = BytesIO()
    figure.savefig(drawn, format="png", **options)
    picture = Image.open(drawn).convert("RGB")
    reduced = picture.quantize(256, dither=Image.Dither.NONE).convert("RGB")
    buffer = BytesIO()
    reduced.save(buffer, "webp", lossless=True, method=6)
    return buffer.getvalue()


def style() -> None:
    """Set the book's look for all matplotlib figures of this session.

    Every plot below does so itself.
    """
    import matplotlib as mpl
    from cycler import cycler

    mpl.rcParams.update({
        "axes.prop_cycle": cycler(color=COLOURS),
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.titlesize": 11,
        "axes.titleweight": "normal",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.figsize": (6.4, 3.6),
        "figure.constrained_layout.use": True,
        "font.size": 10,
        "grid.color": FAINT,
        "grid.linewidth": 0.6,
        "image.cmap": "viridis",
        "legend.frameon": False,
        "lines.linewidth": 1.8,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
    })  # fmt: skip


def class_map(
    counts: ArrayLike, truth: ArrayLike | None = None, ax: Axes | None = None
) -> Figure:
    """Draw how many samples of each class every client holds, as bubbles.

    ``counts`` is (K, C); a bubble's area is proportional to its count. With ``truth``
    (K,), the hidden clusters, clients are sorted by cluster, and each cluster has a
    colour and a name above it.
    """
    counts = _matrix(counts, "counts")
    K, C = counts.shape
    truth = _labels(truth, K)
    order = np.argsort(truth, kind="stable")
    fig, ax = _axes(min(11, max(4, 0.19 * K + 1.2)), min(8, max(2.2, 0.19 * C + 1)), ax)
    box = ax.get_position()
    width, height = fig.get_size_inches()
    cell = 72 * min(box.width * width / K, box.height * height / C)  # points
    place, c = np.nonzero(counts[order])
    n = counts[order][place, c]
    colour = np.array(COLOURS)[truth[order][place] % len(COLOURS)]
    ax.scatter(
        place,
        c,
        s=(0.95 * cell) ** 2 * n / max(n.max(initial=0), 1),
        c=colour,
        linewidths=0,
    )
    ax.set(xlabel="client", ylabel="class", xlim=(-0.6, K - 0.4), ylim=(C - 0.4, -0.6))
    shown = np.arange(0, K, -(-K // 20))
    ax.set_xticks(shown, order[shown])
    ax.set_yticks(np.arange(0, C, -(-C // 12)))
    if len(np.unique(truth)) > 1:
        _mark_blocks(ax, truth[order], across=False)
    return fig


def curves(
    histories: Mapping[str, Any],
    metric: str = "accuracy",
    x: str = "round",
    ax: Axes | None = None,
) -> Figure:
    """Draw a metric over rounds, traffic or time, one line per name.

    Each value is a History or its frame, or a list of such runs (seeds): then the line
    is their mean and the band one standard deviation to each side. ``x`` is a column
    too: ``round``, ``client_updates``, ``bytes``, ``seconds``.
    """
    fig, ax = _axes(ax=ax)
    for i, (name, runs) in enumerate(histories.items()):
        if not isinstance(runs, list | tuple):
            runs = [runs]
        frames = [_frame(run, (metric, x)) for run in runs]
        length = min(len(frame) for frame in frames)
        xs = np.stack([np.asarray(f[x], float)[:length] for f in frames])
        ys = np.stack([np.asarray(f[metric], float)[:length] for f in frames])
        at = xs.mean(0)  # (rounds,)
        if x == "bytes":
            at = at / 1e6
        mean = ys.mean(0)
        std = ys.std(0)
        colour = COLOURS[i % len(COLOURS)]
        ax.plot(at, mean, DASHES[i % len(DASHES)], color=colour, label=name)
        if len(frames) > 1:
            ax.fill_between(
                at, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0
            )
    ax.set(xlabel=NAMES.get(x, x), ylabel=NAMES.get(metric, metric.replace("_", " ")))
    if len(histories) > 5:
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1))  # beside the picture
    else:
        ax.legend()
    return fig


def matrix(
    M: ArrayLike,
    labels: ArrayLike | None = None,
    name: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Draw a matrix over pairs of clients (K, K) as a heat map.

    ``name`` says what the colours mean.

    With ``labels`` (K,), rows and columns are sorted by cluster, and lines part the
    clusters: a good clustering shows bright or dark blocks along the diagonal.
    """
    M = _matrix(M, "M")
    if M.shape[0] != M.shape[1]:
        raise ValueError(
            f"M has shape {M.shape}: give one row and one column per client, (K, K)"
        )
    labels = _labels(labels, len(M))
    order = np.argsort(labels, kind="stable")
    fig, ax = _axes(4.6, 3.9, ax)
    picture = ax.imshow(M[np.ix_(order, order)], interpolation="nearest")
    fig.colorbar(picture, ax=ax, label=name, shrink=0.85).outline.set_visible(False)
    ax.grid(False)
    shown = np.arange(0, len(M), -(-len(M) // 12))
    ax.set_xticks(shown, order[shown])
    ax.set_yticks(shown, order[shown])
    ax.set(xlabel="client", ylabel="client")
    if len(np.unique(labels)) > 1:
        _mark_blocks(ax, labels[order], across=True)
    return fig


def points(xy: ArrayLike, labels: ArrayLike | None = None) -> Figure:
    """Draw points of the plane (K, 2), groups told apart by colour and by shape."""
    xy = _matrix(xy, "xy")
    if xy.shape[1] != 2:
        raise ValueError(
            f"xy has shape {xy.shape}: give two coordinates per point, (K, 2)"
        )
    labels = _labels(labels, len(xy))
    fig, ax = _axes(5.2, 3.9)
    for i, label in enumerate(np.unique(labels)):
        group = xy[labels == label]
        ax.scatter(
            group[:, 0],
            group[:, 1],
            s=36,
            color=COLOURS[i % len(COLOURS)],
            marker=MARKERS[i % len(MARKERS)],
            alpha=0.85,
            linewidths=0,
            label=f"cluster {label}",
        )
    if len(np.unique(labels)) > 1:
        ax.legend()
    return fig


def spokes(
    xy: ArrayLike,
    labels: ArrayLike,
    weights: ArrayLike | None = None,
    names: Sequence[Any] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw points (K, 2), each joined to the mean of its cluster, ``labels`` (K,).

    When the colours are used up, the next clusters have hollow points. With ``weights``
    (K,) the mean is weighted and a point's area is its weight. ``names`` are written
    into the points: for instance the true clusters, if ``labels`` are those found.
    """
    xy = _matrix(xy, "xy")
    labels = _labels(labels, len(xy))
    if weights is None:
        weights = np.ones(len(xy))
    weights = np.asarray(weights, float)
    fig, ax = _axes(5.2, 3.9, ax)
    size = 150 * weights / weights.mean()
    ink = np.full(len(xy), "white", object)  # of the names
    for i, label in enumerate(np.unique(labels)):
        inside = labels == label
        colour = COLOURS[i % len(COLOURS)]
        is_hollow = i // len(COLOURS) % 2 == 1
        centre = np.average(xy[inside], axis=0, weights=weights[inside])  # (2,)
        centres = np.broadcast_to(centre, xy[inside].shape)
        # centre, point, centre, point, ...
        star = np.stack([centres, xy[inside]], 1).reshape(-1, 2)
        ax.plot(*star.T, color=colour, linewidth=1)
        fill: dict[str, Any] = {"color": colour, "linewidths": 0}
        if is_hollow:
            fill = {"color": "white", "edgecolors": colour, "linewidths": 1.5}
            ink[inside] = colour
        x, y = xy[inside].T
        ax.scatter(x, y, s=size[inside], zorder=3, **fill)
        x, y = centre
        ax.scatter(x, y, s=60, color=colour, marker="x", linewidths=2, zorder=2)
    if names is not None:
        for (x, y), name, colour in zip(xy, names, ink, strict=True):
            ax.text(
                x,
                y,
                str(name),
                size=8,
                color=colour,
                ha="center",
                va="center_baseline",
                zorder=4,
            )
    ax.margins(0.1)  # a heavy point is wide
    return fig


def rank_diagram(
    ranks: Mapping[str, float], groups: Sequence[Sequence[str]] = ()
) -> Figure:
    """Draw mean ranks on a line, the best to the left, and a bar for each group.

    ``ranks`` maps a method to its mean rank, 1 is best. ``groups`` are the methods that
    do not differ: Demšar's critical-difference diagram (JMLR 2006).
    """
    names = sorted(ranks, key=lambda name: ranks[name])
    unknown = [name for group in groups for name in group if name not in ranks]
    if not names or unknown:
        raise ValueError(f"no ranks of {', '.join(unknown) or 'any method'}")
    half = (len(names) + 1) // 2
    fig, ax = _axes(7.5, 0.25 * (half + len(groups)) + 0.6)
    ax.grid(False)
    ax.yaxis.set_visible(False)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.spines["top"].set_visible(True)
    ax.spines["top"].set_position("zero")
    ax.xaxis.set_ticks_position("top")
    for level, group in enumerate(groups, start=1):
        ends = [ranks[name] for name in group]
        ax.plot([min(ends), max(ends)], [-level, -level], color="black", linewidth=2.5)
    left = ranks[names[0]] - 0.1
    right = ranks[names[-1]] + 0.1
    for row, name in enumerate(names[:half], start=len(groups) + 1):
        _elbow(ax, ranks[name], left, row)
        ax.text(left, -row, f"{name} ({ranks[name]:.2f}) ", ha="right", va="center")
    for row, name in enumerate(names[: half - 1 : -1], start=len(groups) + 1):
        _elbow(ax, ranks[name], right, row)
        ax.text(right, -row, f" ({ranks[name]:.2f}) {name}", ha="left", va="center")
    ax.set_ylim(-(half + len(groups)) - 0.5, 0)
    return fig


def dots(
    ours: Any,
    paper: Any,
    *,
    rows: str,
    columns: str,
    value: str,
    ours_name: str = "ours",
    theirs: str = "paper",
    across: int | None = None,
) -> Figure:
    """Draw the paper's numbers beside ours.

    There is a panel for each column, and in it a line for each row. Panels stand side
    by side, or ``across`` of them in a line.

    ``ours`` has a line per run with the tags ``rows`` and ``columns`` and the metric
    ``value``; ``paper`` one per cell. A dot is our mean, a thin bar goes from our least
    to our greatest run, a diamond is the paper's number. If ``ours`` has runs at
    several scales, ``ours_name`` is the name of the column that tells them apart.
    ``theirs`` names the diamonds.
    """
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys([*ours[columns], *paper[columns]]))
    names = list(dict.fromkeys([*ours[rows], *paper[rows]]))
    by_scale = ours_name in ours
    scales = [ours_name]
    if by_scale:
        scales = list(dict.fromkeys(ours[ours_name]))
    style()
    across = min(across or len(panels), len(panels))
    down = -(-len(panels) // across)  # rounded up
    inches_per_row = 0.24
    if down == 1:
        inches_per_row = 0.32
    height = inches_per_row * len(names) * down + 1.2
    fig = Figure(figsize=(min(11, 2.6 * across + 1.6), height))
    axes = fig.subplots(down, across, sharey=True, squeeze=False)
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    for ax, panel in zip(axes.flat, panels, strict=False):
        for s, scale in enumerate(scales):
            mine = ours[ours[columns] == panel]
            if by_scale:
                mine = mine[mine[ours_name] == scale]
            shift = 0.22 * (s - (len(scales) - 1) / 2)
            for place, name in enumerate(names):
                runs = mine.loc[mine[rows] == name, value].dropna().to_numpy(float)
                if len(runs):
                    at = place + shift
                    ends = [runs.min(), runs.max()]
                    ax.plot(ends, [at, at], color=COLOURS[s], linewidth=1.2)
                    ax.plot(runs.mean(), at, MARKERS[s], color=COLOURS[s], ms=6)
        printed = paper[paper[columns] == panel]
        for place, name in enumerate(names):
            for x in printed.loc[printed[rows] == name, value].dropna():
                ax.plot(x, place, "D", mfc="none", mec=INK, ms=6)
        ax.set_title(str(panel))
        ax.set_xlabel(NAMES.get(value, value))
    axes[0, 0].set_yticks(range(len(names)), names)
    axes[0, 0].invert_yaxis()
    _dots_legend(fig, scales, theirs)
    return fig


def _dots_legend(fig: Figure, scales: Sequence[str], theirs: str) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=COLOURS[s], marker=MARKERS[s], label=str(scale))
        for s, scale in enumerate(scales)
    ]
    handles.append(Line2D([], [], ls="", marker="D", mfc="none", mec=INK, label=theirs))
    fig.legend(handles=handles, ncols=len(handles), loc="outside upper center")


# --- parts ---


def _axes(
    width: float | None = None, height: float | None = None, ax: Axes | None = None
) -> tuple[Figure, Axes]:
    """The given axes, or those of a new figure.

    Pyplot does not know of it: nothing shows it twice, and nothing has to close it.
    """
    from matplotlib.figure import Figure

    style()
    if ax is not None:
        return cast("Figure", ax.figure), ax
    fig = Figure()
    if width is not None and height is not None:
        fig = Figure(figsize=(width, height))
    return fig, fig.add_subplot()


def _elbow(ax: Axes, rank: float, x: float, row: int) -> None:
    """A mark at a rank on the line, and the way from there to the name at (x, -row)."""
    ax.plot([x, rank, rank], [-row, -row, 0], color=INK, linewidth=1)
    ax.plot(rank, 0, "o", color=INK, markersize=5, clip_on=False)


def _mark_blocks(ax: Axes, labels: np.ndarray, across: bool) -> None:
    """Part the blocks of sorted labels by lines, with the cluster's name above each.

    The lines are upright; with ``across`` they go both ways.
    """
    starts = np.flatnonzero(np.r_[True, labels[1:] != labels[:-1]])
    ends = [*starts[1:], len(labels)]
    for start, end in zip(starts, ends, strict=True):
        label = labels[start]
        if start > 0 and across:
            ax.axvline(start - 0.5, color="white", linewidth=1.2)
            ax.axhline(start - 0.5, color="white", linewidth=1.2)
        elif start > 0:
            ax.axvline(start - 0.5, color=INK, linewidth=0.8)
        colour = INK
        if not across:
            colour = COLOURS[label % len(COLOURS)]
        name = str(label)
        if start == 0 and end > 3:
            name = f"cluster {label}"
        ax.text(
            x=(start + end - 1) / 2,
            y=1.01,
            s=name,
            transform=ax.get_xaxis_transform(),
            ha="center",
            va="bottom",
            size=9,
            color=colour,
        )


def _frame(run: Any, columns: Sequence[str]) -> Any:
    frame = run
    if hasattr(run, "frame"):
        frame = run.frame()
    missing = [name for name in columns if name not in frame]
    if missing:
        raise ValueError(
            f"no column {missing[0]!r} in this history; it has "
            f"{', '.join(map(str, frame))}"
        )
    return frame


def _matrix(x: ArrayLike, name: str) -> np.ndarray:
    x = np.asarray(x, float)
    if x.ndim != 2 or not x.size:
        raise ValueError(
            f"{name} has shape {x.shape}: give a matrix with at least one row and one "
            "column"
        )
    return x


def _labels(labels: ArrayLike | None, K: int) -> np.ndarray:  # (K,)
    """Labels as integers; names are numbered, and None is one cluster for all."""
    if labels is None:
        return np.zeros(K, int)
    labels = np.asarray(labels)
    if labels.shape != (K,):
        raise ValueError(
            f"labels of shape {labels.shape} for {K} clients: give one per client"
        )
    if labels.dtype.kind in "iu":
        return labels
    return np.unique(labels, return_inverse=True)[1]
