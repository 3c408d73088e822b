"""Sentences of FedCVR-Bolt's chapter that numbers complete, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...claims import Claim, counted
from . import outcomes, tasks
from .outcomes import BOLT, PICK, SHOWN, TITLES, WEIGHTED, seeds

if TYPE_CHECKING:
    from pandas import DataFrame

ALONE = {  # what the corrected method changes on the regression, one at a time
    "as released, centred": "changes instead of models",
    "as released, innovation": "innovation",
    WEIGHTED: "the weight of the coalition",
    "as released, spectral clustering": "spectral clustering",
}


def scale_of_runs() -> str:
    """How large our runs are beside the paper's, in words."""
    laptop = tasks.SCALES["laptop"]
    frame = outcomes.regression()
    rounds = frame["course"].iloc[0]["round"].max()
    words = (
        f"Regression at {frame['scale'].iloc[0]}: 100 clients, 10 a round, {rounds} "
        f"rounds, {seeds(frame)}; the runs that we watched have "
        f"{laptop.drawn.rounds}, at twice the learning rate. Synthetic: the same, "
        f"{seeds(outcomes.synthetic())}. Images at laptop scale: {laptop}, "
        f"{laptop.samples:,} images, {len(laptop.seeds)} seeds (the paper: 100 "
        "clients, 10 a round, 100 rounds, all images)."
    )
    for dataset in ("mnist", "cifar10"):
        own = outcomes.own_scale(dataset)
        if own is not None:
            words += f" {TITLES[dataset]} at the paper's scale: {seeds(own)}."
    return words


def mnist_in_words(judged: Sequence[Claim]) -> str:
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
    for cell in outcomes.differences(frame, base).itertuples():
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
        own = outcomes.own_scale(dataset)
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
    if outcomes.own_scale("mnist") is not None:
        return f"At laptop scale runs tell less: with {fewer}."
    return (
        "At laptop scale our models are about as good as the paper's on MNIST, but "
        f"with {fewer}. FedCVR-Bolt can hardly be told from FedAvg, in any of its "
        "versions, nor the score's part from the coalitions'."
    )


def alone_in_words() -> str:
    """Which change of the corrected method does what on the regression."""
    frame = outcomes.regression()
    words = []
    for D in (1, 2):
        part = frame[(frame["D"] == D) & (frame["heterogeneity"] == "non-IID")]
        cells = outcomes.differences(part, BOLT, "log_mse").set_index("row")
        each = []
        for row, name in ALONE.items():
            mean, low, high = cells.loc[row, ["mean", "low", "high"]]
            each.append(f"{name} {mean:+.1f} % ({low:+.1f} to {high:+.1f})")
        words.append(f"D = {D}: {', '.join(each)}.")
    return (
        "Which change of *corrected* does it? Each alone, against the error as "
        f"released (minus: a lower error). {' '.join(words)} So it is mostly the "
        "weight of the coalition; with it in place the others do no harm."
    )


def louder_in_words() -> str:
    """What a moderately louder score does on Synthetic."""
    frame = outcomes.synthetic()
    rows = [f"as released, β = {beta}" for beta in (3, 10, 30)]
    cells = outcomes.differences(frame, PICK).set_index("row")
    each = []
    for row in rows:
        mean, low, high = cells.loc[row, ["mean", "low", "high"]]
        each.append(f"{row.split(', ')[1]} {mean:+.1f} ({low:+.1f} to {high:+.1f})")
    return f"In between, points against a uniform pick: {', '.join(each)}."


def _points(claim: Claim) -> str:
    """A claim's effect with its interval and verdict, in words."""
    assert claim.interval is not None
    mean, low, high = claim.interval
    ends = f" ({low:+.1f} to {high:+.1f})" if low < high else ""
    because = f", since {claim.why}" if claim.verdict == "fails" else ""
    return f"{mean:+.1f} points{ends}: *{claim.verdict}*{because}"


def said_of_images(judged: Sequence[Claim]) -> str:
    """How the paper's claims about MNIST stand, and which about images do not count."""
    about: dict[str, list[Claim]] = {title: [] for title in TITLES.values()}
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
            f"On MNIST ({scale}, {runs}) we judge {len(part)} claims: {counted(part)}."
        )
    for title in (TITLES["cifar10"], TITLES["cifar100"]):
        for claim in about[title]:
            if claim.interval is None:
                what = claim.statement.removeprefix(f"{title}: ")
                words.append(f"{title}, {what}: not testable. {claim.reason}.")
    return " ".join(words)
