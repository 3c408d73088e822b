"""FedCVR-Bolt's records and printed numbers as frames, and the chapter's pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ... import claims, data, metrics, plots, tables
from ...methods import FedCVRBolt
from ...plots import COLOURS, DASHES, FAINT, INK, MARKERS, style
from ...similarity import covariance_step
from ..common import read, results
from . import tasks, theory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from ...federation import Federation

PAPER = "fedcvr_bolt"
REGRESSION = ("table1_d1_iid", "table1_d1_noniid", "table1_d2_iid", "table1_d2_noniid")
SYNTHETIC = ("synthetic_rivals", "synthetic_parts", "synthetic_beta")
SCALES = {"laptop": "laptop scale", "paper": "the paper's scale"}  # profiles in words
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
LAST = 5  # rounds whose mean is reported, and over which a run goes up and down
BOLT = "FedCVR-Bolt as released"
PICK = "as released, uniform pick"
CORRECTED = "FedCVR-Bolt corrected"
SHUFFLED = "as released, shuffled coalitions"
TURNS = "FedAvg in turn"
GREEDY = "as released, β = inf"
WEIGHTED = "as released, weight of the coalition"
ALONE = {  # what the corrected method changes on the regression, one at a time
    "as released, centred": "changes instead of models",
    "as released, innovation": "innovation",
    WEIGHTED: "the weight of the coalition",
    "as released, spectral clustering": "spectral clustering",
}
# Shuffled coalitions are lots once more, and pictures say so.
SHOWN = {SHUFFLED: "other lots (shuffled)"}
RIVALS = ("FedAvg", "Power-of-Choice", "Active FL")
ONE_FIT = "one fit to all data"  # least squares on all training data: nobody's method


# --- records --------------------------------------------------------------------------


def printed(table: str):
    """The paper's own numbers of Table "1", "2" or "4", accuracies as shares; a
    DataFrame with our tags.
    """
    return tables.printed(Path(__file__).with_name("printed.csv"), table)


def verdicts() -> list[claims.Claim]:
    """The chapter's claims with their verdicts, as written beside the records."""
    return claims.read(results(PAPER) / "verdicts.json")


def records(*names: str, profile: str = "laptop") -> DataFrame:
    """One line per run of some tables.

    A metric is its mean over the last five rounds. ``unrest`` is the standard deviation
    of the error or accuracy over them, ``area`` the mean of its curve after the
    warm-up, by the trapezoidal rule.
    """
    import pandas as pd

    frames = []
    for name in names:
        runs = tasks.TABLES[name](profile)
        frame = read(PAPER, name, runs, last=LAST, course=True)
        value = "mse" if name.startswith("table1") else "accuracy"
        warmups = [getattr(task.method, "warmup", None) for task in runs]
        warmup = max(w for w in warmups if w is not None)
        frame["unrest"] = [course[value][-LAST:].std() for course in frame["course"]]
        frame["area"] = [area(course, value, warmup) for course in frame["course"]]
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def area(course: DataFrame, value: str, start: int) -> float:
    """Mean height of a curve from round ``start`` on, by the trapezoidal rule.

    Rounds need not lie equally far apart. A run with fewer than two such rounds has
    none (nan).
    """
    late = course[course["round"] >= start]
    if len(late) < 2:
        return float("nan")
    x = late["round"].to_numpy(float)
    y = late[value].to_numpy(float)
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))


def regression(profile: str | None = None) -> DataFrame:
    """Table 1's runs, and those with one switch at a time.

    They are those of a profile; by default at `largest_scale`.
    """
    names = (*REGRESSION, "table1_parts")
    profile = profile or largest_scale(names)
    frame = records(*names, profile=profile)
    frame["log_mse"] = np.log(frame["mse"])
    frame["log_unrest"] = np.log(frame["unrest"])
    return frame.assign(scale=SCALES[profile])


def synthetic(profile: str | None = None) -> DataFrame:
    """The runs on Synthetic(1, 1), under one name; by default at `largest_scale`."""
    profile = profile or largest_scale(SYNTHETIC)
    frame = records(*SYNTHETIC, profile=profile)
    return frame.assign(dataset="synthetic", scale=SCALES[profile])


def largest_scale(names: Sequence[str]) -> str:
    """The profile ``paper`` if all runs of some tables are recorded in it, else
    ``laptop``.
    """
    for name in names:
        done = tables.by_key(results(PAPER) / f"{name}.json")
        if any(task.key not in done for task in tasks.TABLES[name]("paper")):
            return "laptop"
    return "paper"


def images(setting: str = "α = 0.1") -> DataFrame:
    """The laptop runs on MNIST, CIFAR-10 and CIFAR-100, or MNIST dealt IID."""
    frame = records("table2")
    return frame[frame["setting"] == setting]


def own_scale(dataset: str) -> DataFrame | None:
    """Runs at the paper's own scale, whole seeds only; None if there are none yet."""
    name = f"{dataset}_paper"
    path = results(PAPER) / f"{name}.json"
    if not path.exists():
        return None
    done = tables.by_key(path)
    runs = tasks.TABLES[name]("paper")
    missing = {task.seed for task in runs if task.key not in done}
    whole = [task for task in runs if task.seed not in missing]
    if not whole:
        return None
    frame = read(PAPER, name, whole, last=LAST, course=True)
    warmup = tasks.SCALES["paper"].warmup
    courses = frame["course"]
    frame["unrest"] = [course["accuracy"][-LAST:].std() for course in courses]
    frame["area"] = [area(course, "accuracy", warmup) for course in courses]
    return frame


class Grouped(NamedTuple):
    """The coalitions of a run in some rounds, and what they might have in common."""

    rounds: list[int]  # counted from 1
    coalitions: list[np.ndarray]  # (K,) for each of these rounds
    dates: list[np.ndarray]  # (K,) the round when a client was last seen; 0: never
    kinds: np.ndarray  # (K,) each client's most frequent class

    def agreement(self, seen_only: bool = False) -> tuple[list[float], list[float]]:
        """AMI of coalitions with dates, and with kinds, in each of the rounds.

        ``seen_only`` leaves out clients that were never seen: they are one coalition by
        necessity, since the server has the same row for all of them.
        """
        with_dates = []
        with_kinds = []
        for coalitions, dates in zip(self.coalitions, self.dates, strict=True):
            kept = dates > 0 if seen_only else np.full(len(dates), True)
            with_dates.append(metrics.ami(dates[kept], coalitions[kept]))
            with_kinds.append(metrics.ami(self.kinds[kept], coalitions[kept]))
        return with_dates, with_kinds

    def never_seen(self) -> float:
        """Share of clients that were not seen in the warm-up."""
        return float((self.dates[0] == 0).mean())


def grouped(
    past: Sequence[theory.WatchedRound], kinds: np.ndarray, warmup: int
) -> Grouped:
    """The coalitions of a run that was followed, after its warm-up."""
    rounds = list(range(warmup + 1, len(past) + 1))
    late = past[warmup:]
    coalitions = [now.coalitions.numpy() for now in late]
    dates = [t - 1 - now.waited for t, now in zip(rounds, late, strict=True)]
    return Grouped(rounds, coalitions, dates, kinds)


def grouped_record(
    curves: Mapping[str, Sequence[Any]], kinds: np.ndarray, warmup: int
) -> Grouped:
    """The coalitions that a record keeps, after the warm-up.

    The coalitions of a round are formed before its clients train, so a date is a round
    before it.
    """
    who = tasks.trained(curves["odd"], len(kinds))  # (rounds, K)
    found = Grouped([], [], [], kinds)
    last = np.zeros(len(kinds), int)
    for t, text in enumerate(curves["coalitions"]):
        if text and t >= warmup:
            found.rounds.append(t + 1)
            found.coalitions.append(tasks.numbers(text))
            found.dates.append(last.copy())
        last[who[t]] = t + 1
    return found


def recorded_groups(dataset: str) -> dict[int, Grouped]:
    """The coalitions as released at the paper's own scale, by seed; {} without runs."""
    frame = own_scale(dataset)
    if frame is None:
        return {}
    name = f"{dataset}_paper"
    done = tables.by_key(results(PAPER) / f"{name}.json")
    seeds = set(frame["seed"])
    found = {}
    for task in tasks.TABLES[name]("paper"):
        if task.tags["row"] == BOLT and task.seed in seeds:
            record = done[task.key]["metrics"]
            kinds = tasks.numbers(record["final"]["kinds"])
            found[task.seed] = grouped_record(
                record["curves"], kinds, task.method.warmup
            )
    return found


def runs_needed() -> DataFrame:
    """Table 1's printed leads with two groups, in per cent, and the unpaired runs that
    each would need. With one group the paper claims none.
    """
    table = printed("1").astype({"D": int}).query("heterogeneity == 'non-IID'")
    bolt = table[table["row"] == BOLT]
    rivals = table[table["row"] != BOLT]
    cells = rivals.merge(bolt, on=["D", "heterogeneity"], suffixes=("", "_bolt"))
    cells["lead"] = 100 * (1 - cells["mse_bolt"] / cells["mse"])
    cells["runs"] = [
        theory.seeds_needed(cell.mse - cell.mse_bolt, cell.mse_std, cell.mse_std_bolt)
        for cell in cells.itertuples()
    ]
    return cells[["D", "heterogeneity", "row", "lead", "runs"]]


def differences(frame: DataFrame, base: str, value: str = "accuracy") -> DataFrame:
    """Each row's paired difference from a base over seeds: mean, low, high.

    In points; in per cent, the minus sign for less, if ``value`` is a logarithm.
    """
    import pandas as pd

    def unit(x: float) -> float:
        return 100 * (np.expm1(x) if value.startswith("log_") else x)

    lines = []
    for row in frame["row"].unique():
        if row != base:
            pair = tables.paired(frame, "row", row, base, value, ["seed"])
            lines.append((row, *map(unit, pair[:3])))
    return pd.DataFrame(lines, columns=["row", "mean", "low", "high"])


def with_one_fit(part: DataFrame) -> DataFrame:
    """A cell of Table 1 with a further row: one least-squares fit to all training
    data.
    """
    import pandas as pd

    one = part[part["row"] == "FedAvg"].assign(row=ONE_FIT)
    errors = [theory.pooled(*data.generate(name)) for name in one["dataset"]]
    one["log_mse"] = np.log(errors)
    return pd.concat([part, one], ignore_index=True)


def table1_differences(kind: str = "non-IID") -> dict[str, DataFrame]:
    """Two cells of Table 1: by how many per cent each error differs from FedAvg's."""
    frame = regression()
    groups = "one group" if kind == "IID" else "two groups"
    found = {}
    for D in (1, 2):
        part = frame[(frame["D"] == D) & (frame["heterogeneity"] == kind)]
        if kind == "non-IID":
            part = with_one_fit(part)
        found[f"D = {D}, {groups}"] = differences(part, "FedAvg", "log_mse")
    return found


def unrest_table() -> dict[str, DataFrame]:
    """How steady the last rounds are, as a multiple of FedAvg's standard deviation."""
    frame = regression()
    found = {}
    for D in (1, 2):
        part = frame[(frame["D"] == D) & (frame["heterogeneity"] == "non-IID")]
        cell = differences(part, "FedAvg", "log_unrest")
        for name in ("mean", "low", "high"):
            cell[name] = 1 + cell[name] / 100
        found[f"D = {D}, two groups"] = cell
    return found


def image_differences() -> dict[str, DataFrame]:
    """Table 2's data sets at laptop scale: points above or below FedAvg."""
    frame = images()
    found = {}
    for name, title in TITLES.items():
        part = frame[frame["dataset"] == name]
        found[title] = differences(part, "FedAvg")
    return found


def mnist() -> DataFrame:
    """MNIST at the paper's own scale, or at laptop scale until that has been run."""
    own = own_scale("mnist")
    if own is not None:
        return own.assign(scale="the paper's scale")
    laptop = images()
    return laptop[laptop["dataset"] == "mnist"].assign(scale="laptop scale")


def largest_difference(frame: DataFrame) -> float:
    """The mean difference from FedAvg that is farthest from zero, in points."""
    return float(differences(frame, "FedAvg")["mean"].abs().max())


def both_scales() -> DataFrame:
    """The image data, by their titles, at laptop scale and, where run, at the
    paper's.
    """
    import pandas as pd

    frames = [images().assign(scale="laptop scale")]
    for dataset in ("mnist", "cifar10"):
        own = own_scale(dataset)
        if own is not None:
            frames.append(own.assign(scale="the paper's scale"))
    whole = pd.concat(frames, ignore_index=True)
    return whole.assign(data=whole["dataset"].map(TITLES))


def printed_images() -> DataFrame:
    """Tables 2 and 4 in one frame, every cell once."""
    import pandas as pd

    both = pd.concat([printed("2"), printed("4")]).drop_duplicates(["dataset", "row"])
    return both.assign(data=both["dataset"].map(TITLES))


def own_differences() -> dict[str, DataFrame]:
    """Points above or below FedAvg at the paper's own scale; {} without runs."""
    found = {}
    for dataset in ("mnist", "cifar10"):
        own = own_scale(dataset)
        if own is not None:
            found[f"{TITLES[dataset]}, {seeds(own)}"] = differences(own, "FedAvg")
    return found


def mnist_measures() -> tables.Table:
    """The rows of MNIST by further measures, and what each of them sends."""
    frame = mnist()
    means = frame.groupby("row", sort=False).mean(numeric_only=True)
    heads = {
        "accuracy": "accuracy",
        "balanced_accuracy": "balanced",
        "macro_f1": "macro-F1",
        "unrest": "unrest",
    }
    rows = []
    for row, mean in means.iterrows():
        cells = [_per_cent(mean[name]) for name in heads]
        cells += [f"{mean['evenness']:.2f}", f"{mean['bytes'] / 1e6:,.0f}"]
        rows.append((str(row), *cells))
    caption = f"MNIST, {frame['scale'].iloc[0]}, mean of {seeds(frame)}."
    if "balanced_accuracy" not in frame["course"].iloc[0]:
        caption += " Balanced accuracy and macro-F1 are those of the last round."
    caption += (
        " Accuracies and F1 in %; unrest is the sd of accuracy over the last five "
        "rounds, in points. Evenness is 1 if all clients trained equally often. MB "
        "sent: both ways, over the whole run, with the models sent to ask for a loss."
    )
    names = ("row", *heads.values(), "evenness", "MB sent")
    return tables.words(names, rows, caption, kind="numbers")


def _per_cent(share: float) -> str:
    return "–" if np.isnan(share) else f"{100 * share:.1f}"


def seeds(frame: DataFrame) -> str:
    """How many seeds some runs have, in words."""
    n = frame["seed"].nunique()
    return "1 seed" if n == 1 else f"{n} seeds"


def scale_of_runs() -> str:
    """How large our runs are beside the paper's, in words."""
    laptop = tasks.SCALES["laptop"]
    frame = regression()
    rounds = frame["course"].iloc[0]["round"].max()
    words = (
        f"Regression at {frame['scale'].iloc[0]}: 100 clients, 10 a round, {rounds} "
        f"rounds, {seeds(frame)} (the paper: 100 rounds). Images at laptop scale: "
        f"{laptop}, {laptop.samples:,} images, {len(laptop.seeds)} seeds (the paper: "
        "100 clients, 10 a round, 100 rounds, all images)."
    )
    for dataset in ("mnist", "cifar10"):
        own = own_scale(dataset)
        if own is not None:
            words += f" {TITLES[dataset]} at the paper's scale: {seeds(own)}."
    return words


def mnist_in_words(judged: Sequence[claims.Claim]) -> str:
    """What the runs on MNIST say of the method, and of its score alone."""
    asked = {claim.statement: claim for claim in judged}
    lines = {
        "more accurate than FedAvg": "FedCVR-Bolt's accuracy minus FedAvg's",
        "converges faster than FedAvg": "The same over all rounds after the warm-up",
        "steadier than FedAvg": "How much steadier the last five rounds are",
        "the score adds accuracy": "The score's own share, with it minus without",
        "corrected is more accurate than FedAvg": "*Corrected* minus FedAvg",
    }
    first = asked["MNIST: more accurate than FedAvg"]
    runs = first.replicates.split(",")[0]
    words = [f"**MNIST** ({first.scale}, {runs})."]
    for statement, name in lines.items():
        claim = asked.get(f"MNIST: {statement}")
        if claim is not None:
            words.append(f"{name}: {_points(claim)}.")
    return " ".join(words)


def against(frame: DataFrame, base: str = "FedAvg") -> str:
    """Which rows are ahead of a base, behind it, or not to be told from it, in words.

    By the paired 95 % interval of each row alone.
    """
    ahead = []
    behind = []
    level = []
    for cell in differences(frame, base).itertuples():
        words = f"*{SHOWN.get(cell.row, cell.row)}* ({cell.mean:+.1f})"
        if cell.low > 0:
            ahead.append(words)
        elif cell.high < 0:
            behind.append(words)
        else:
            level.append(words)
    parts = [
        f"{name}: {', '.join(rows)}"
        for name, rows in (
            (f"ahead of {base}", ahead),
            (f"behind {base}", behind),
            ("not to be told from it", level),
        )
        if rows
    ]
    return "; ".join(parts)


def own_in_words() -> str:
    """What the runs at the paper's own scale tell; "" without runs."""
    words = []
    for dataset in ("mnist", "cifar10"):
        own = own_scale(dataset)
        if own is not None:
            words.append(
                f"**{TITLES[dataset]} at the paper's scale**: {tasks.SCALES['paper']} "
                f"of ten epochs, all images, {seeds(own)}. In points of accuracy, by "
                f"each row's own interval: {against(own)}. (The verdicts below judge "
                "three rivals together.)"
            )
    return "\n\n".join(words)


def laptop_in_words() -> str:
    """What the runs at laptop scale tell, as far as there are no larger ones."""
    laptop = tasks.SCALES["laptop"]
    fewer = (
        f"{len(laptop.seeds)} seeds most intervals are wide, and with {laptop.P} "
        "clients a round the method has half the paper's coalitions"
    )
    if own_scale("mnist") is not None:
        return f"At laptop scale runs tell less: with {fewer}."
    return (
        "At laptop scale our models are about as good as the paper's on MNIST, but "
        f"with {fewer}. FedCVR-Bolt can hardly be told from FedAvg, in any of its "
        "versions, nor the score's part from the coalitions'."
    )


def alone_in_words() -> str:
    """Which change of the corrected method does what on the regression."""
    frame = regression()
    words = []
    for D in (1, 2):
        part = frame[(frame["D"] == D) & (frame["heterogeneity"] == "non-IID")]
        cells = differences(part, BOLT, "log_mse").set_index("row")
        each = []
        for row, name in ALONE.items():
            mean, low, high = cells.loc[row, ["mean", "low", "high"]]
            each.append(f"{name} {mean:+.1f} % ({low:+.1f} to {high:+.1f})")
        words.append(f"D = {D}: {', '.join(each)}.")
    return (
        "Which change of *corrected* does it? Each alone, against the error as "
        f"released. {' '.join(words)} So it is the weight of the coalition."
    )


def louder_in_words() -> str:
    """What a moderately louder score does on Synthetic."""
    frame = synthetic()
    rows = [f"as released, β = {beta}" for beta in (3, 10, 30)]
    cells = differences(frame, PICK).set_index("row")
    each = []
    for row in rows:
        mean, low, high = cells.loc[row, ["mean", "low", "high"]]
        each.append(f"{row.split(', ')[1]} {mean:+.1f} ({low:+.1f} to {high:+.1f})")
    return f"In between, points against a uniform pick: {', '.join(each)}."


def _points(claim: claims.Claim) -> str:
    """A claim's effect with its interval and verdict, in words."""
    assert claim.interval is not None
    mean, low, high = claim.interval
    ends = f" ({low:+.1f} to {high:+.1f})" if low < high else ""
    because = f", since {claim.why}" if claim.verdict == "fails" else ""
    return f"{mean:+.1f} points{ends}: *{claim.verdict}*{because}"


def said_of_images(judged: Sequence[claims.Claim]) -> str:
    """How the paper's claims about MNIST stand, and which about images do not count."""
    about: dict[str, list[claims.Claim]] = {title: [] for title in TITLES.values()}
    for claim in judged:
        title = claim.statement.split(": ")[0]
        if title in about:
            about[title].append(claim)
    words = []
    tested = [claim for claim in about["MNIST"] if claim.interval is not None]
    for scale in dict.fromkeys(claim.scale for claim in tested):
        part = [claim for claim in tested if claim.scale == scale]
        runs = part[0].replicates.split(",")[0]
        words.append(
            f"On MNIST ({scale}, {runs}) we judge {len(part)} claims: "
            f"{claims.counted(part)}."
        )
    for title in (TITLES["cifar10"], TITLES["cifar100"]):
        for claim in about[title]:
            if claim.interval is None:
                what = claim.statement.removeprefix(f"{title}: ")
                words.append(f"{title}, {what}: not testable. {claim.reason}.")
    return " ".join(words)


def expected_never_seen() -> dict[str, float]:
    """Share of clients that P of K drawn by lot miss in the warm-up, on average."""
    laptop = tasks.SCALES["laptop"]
    paper = tasks.SCALES["paper"]
    setups = {
        "the paper": (paper.P / paper.clients, paper.warmup),
        "regression and Synthetic here": (laptop.drawn.P / 100, laptop.drawn.warmup),
        "images here": (laptop.P / laptop.clients, laptop.warmup),
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


def dates_and_classes(runs: Mapping[str, Grouped]) -> Figure:
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
    """Mean and interval of each row, a panel for each frame of `differences`.

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
    shown = [SHOWN.get(name, name) for name in names]
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
    digits = mnist()
    shown = digits.loc[digits["row"].isin(rows), "course"]
    fig, axes = _figure(2, 1, 6.6, 6.2)
    frames = (synthetic(), digits)
    for ax, frame in zip(axes[:, 0], frames, strict=True):
        runs = {row: list(frame.loc[frame["row"] == row, "course"]) for row in rows}
        plots.curves(runs, "accuracy", ax=ax)
    late = min(course["accuracy"].iloc[len(course) // 3 :].min() for course in shown)
    axes[1, 0].set_ylim(bottom=late)  # the first third would hide the differences
    axes[0, 0].set_title(f"Synthetic(1, 1), {frames[0]['scale'].iloc[0]}")
    axes[1, 0].set_title(f"MNIST, {digits['scale'].iloc[0]}, {seeds(digits)}")
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
