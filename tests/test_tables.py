"""Tables: records meet tags by key, every number stands in its cell, and comparisons
and verdicts are right.
"""

import re
from functools import partial
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fednb import models, partition, store, tables
from fednb.methods import FedAvg, FixedClusters, LocalOnly
from fednb.sweeps import Task
from fednb.tables import Pair, beside, frame, paired, summary
from fednb.training import Local

METHODS = {
    "FedAvg": FedAvg(),
    "WeCFL": FixedClusters([0, 0, 1, 1]),
    "LocalOnly": LocalOnly(),
}


def task(row="FedAvg", seed=0, K=1, setting="iid", profile="laptop", **tags):
    return Task(
        method=METHODS[row],
        dataset="digits",
        partition=partial(partition.dirichlet, clients=4, alpha=K + len(setting)),
        model=partial(models.mlp, inputs=64, hidden=(8,), classes=10),
        local=Local(),
        rounds=4,
        seed=seed,
        profile=profile,
        tags={"setting": setting, "K": K, "row": row} | tags,
    )


def save(path, task, accuracy, curve=(), note="", data_sha256="0", **final):
    """Write the record that a run of this task could have left."""
    facts = dict.fromkeys(store.REQUIRED, "x") | {
        "seconds": 1.5,
        "client_updates": 16,
        "bytes": 640,
        "data_note": note,
        "data_sha256": data_sha256,
    }
    numbers = {"accuracy": accuracy, "clusters": 2, "labels": [0, 1], **final}
    curves = (
        {"round": list(range(1, len(curve) + 1)), "accuracy": list(curve)}
        if curve
        else {}
    )
    store.append(
        path,
        facts
        | task.spec()
        | {"key": task.key, "metrics": {"final": numbers, "curves": curves}},
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "wecfl" / "table2.json"


def runs(
    rows=("FedAvg", "WeCFL", "LocalOnly"),
    seeds=(0, 1, 2),
    settings=("iid", "skew <2>"),
    noise=0.01,
):
    """A frame as from records, with accuracies that rise by row, setting and seed."""
    lines = []
    for r, row in enumerate(rows):
        for s, setting in enumerate(settings):
            for seed in seeds:
                facts = {
                    "dataset": "digits",
                    "seed": seed,
                    "rounds": 4,
                    "profile": "laptop",
                    "data_note": "1 % subset",
                }
                facts |= {"client_updates": 16, "bytes": 640, "seconds": 1.5}
                number = 0.5 + 0.1 * r - 0.15 * s * (r == 1) + noise * seed
                lines.append(
                    {"setting": setting, "K": 5, "row": row}
                    | facts
                    | {"accuracy": number}
                )
    return pd.DataFrame(lines)


PAPER = pd.DataFrame({
    "setting": ["iid", "skew <2>", "iid"],
    "K": [5, 5, 5],
    "row": ["FedAvg", "FedAvg", "IFCA & co"],
    "accuracy": [0.8125, 0.7, 0.9],
    "accuracy_std": [0.0123, np.nan, 0.01],
})  # fmt: skip


def grid(table):
    """The cells of an HTML table by (row, column), spans spread out; text of a <strong>
    between double stars.
    """
    cells, rows = {}, ElementTree.fromstring(table.html).iter("tr")
    for r, line in enumerate(rows):
        c = 0
        for cell in line:
            while (r, c) in cells:
                c += 1
            strong = "**" if cell.find("strong") is not None else ""
            for i in range(int(cell.get("rowspan", 1))):
                for j in range(int(cell.get("colspan", 1))):
                    cells[r + i, c + j] = strong + "".join(cell.itertext()) + strong
            c += int(cell.get("colspan", 1))
    assert len(cells) == (1 + max(r for r, _ in cells)) * (
        1 + max(c for _, c in cells)
    ), "a hole in the grid"
    return cells


def lines(table):
    cells = grid(table)
    return [
        [cells[r, c] for c in range(1 + max(c for _, c in cells))]
        for r in range(1 + max(r for r, _ in cells))
    ]


# --- frame ----------------------------------------------------------------------------


def test_frame_joins_tags_and_records_by_key_in_the_order_of_the_tasks(path):
    tasks = [task("WeCFL", 1), task("FedAvg", 0), task("WeCFL", 0)]
    for i, one in enumerate(tasks):
        save(path, one, 0.1 * i, loss=None, note="1 % subset")
    found = frame(tasks, path)
    assert [*found] == [
        "setting",
        "K",
        "row",
        *tables.FACTS,
        "accuracy",
        "clusters",
        "loss",
    ]  # and no labels
    assert found["row"].tolist() == ["WeCFL", "FedAvg", "WeCFL"] and found[
        "seed"
    ].tolist() == [1, 0, 0]
    assert (
        found["accuracy"].tolist() == pytest.approx([0, 0.1, 0.2])
        and found["loss"].isna().all()
    )
    assert found["K"].dtype.kind == "i" and set(found["data_note"]) == {"1 % subset"}
    assert [record["seed"] for record in store.read(path)] == [
        0,
        0,
        1,
    ]  # the file has an order of its own


def test_one_run_may_stand_in_two_cells(path):
    save(path, task(), 0.5)
    twice = [task(shown="left"), task(shown="right")]
    assert frame(twice, path)["accuracy"].tolist() == [0.5, 0.5]


def test_missing_records_are_counted_and_the_command_named(path):
    tasks = [task(seed=seed) for seed in range(3)]
    command = "python -m fednb.reproduce wecfl --table table2 --profile laptop"
    with pytest.raises(
        FileNotFoundError,
        match=f"lacks 3 of 3 records; make them with {command}, or your own",
    ):
        frame(tasks, path)
    save(path, tasks[0], 0.5)
    with pytest.raises(
        ValueError, match=f"lacks 2 of 3 records; make them with {command}, or your own"
    ):
        frame(tasks, path)
    with pytest.raises(
        ValueError, match="laptop and python -m .* --profile paper, or your own"
    ):
        frame([*tasks, task(profile="paper")], path)


def test_last_is_a_mean_over_the_end_of_the_curve(path):
    save(path, task(), 0.8, curve=[0.1, 0.3, 0.5, 0.8], loss=2.0)
    assert frame([task()], path)["accuracy"][0] == 0.8
    found = frame([task()], path, last=3)
    assert found["accuracy"][0] == pytest.approx((0.3 + 0.5 + 0.8) / 3)
    assert found["loss"][0] == 2.0 and "round" not in found  # no curve: final
    assert frame([task()], path, last=9)["accuracy"][0] == pytest.approx(
        0.425
    )  # all there are
    save(path, task(), 0.8, curve=[0.1, None, 0.8])
    assert np.isnan(frame([task()], path, last=2)["accuracy"][0])
    save(path, task(), 0.8)
    with pytest.raises(ValueError, match=r"last=2 needs curves, and FedAvg.* has none"):
        frame([task()], path, last=2)


def test_a_frame_may_carry_the_course_of_each_run(path):
    save(path, task(), 0.8, curve=[0.1, 0.8])
    (course,) = frame([task()], path, course=True)["course"]
    assert course["accuracy"].tolist() == [0.1, 0.8] and "course" not in frame(
        [task()], path
    )
    save(path, task(), 0.8)
    with pytest.raises(ValueError, match="has no curves"):
        frame([task()], path, course=True)


@pytest.mark.parametrize(
    "tasks, last, words",
    [
        ([], 1, "0 tasks"),
        ([task()], 0, "last=0"),
        ([task(), task(extra=1)], 1, "the same tags"),
        ([task(seed=0, accuracy="high")], 1, r"a tag is called \['accuracy'\]"),
    ],
)
def test_frame_refuses_nonsense(path, tasks, last, words):
    save(path, task(), 0.5)
    with pytest.raises(ValueError, match=words):
        frame(tasks, path, last)


def test_printed_numbers_come_by_table_without_empty_columns(tmp_path):
    (tmp_path / "x.csv").write_text(
        "table,row,accuracy,clusters\n2,FedAvg,0.5,\n5,GCFL,0.6,4\n"
    )
    two = tables.printed(tmp_path / "x.csv", "2")
    assert two.to_dict("records") == [{"row": "FedAvg", "accuracy": 0.5}]
    assert (
        tables.printed(tmp_path / "x.csv", "5", clusters="Int64")["clusters"].dtype
        == "Int64"
    )
    with pytest.raises(ValueError, match="no table '3': there are 2, 5"):
        tables.printed(tmp_path / "x.csv", "3")


# --- summary --------------------------------------------------------------------------


def test_curves_are_gathered_by_tag_run_by_run(path):
    tasks = [task("WeCFL", seed=1), task("FedAvg"), task("WeCFL")]
    for number, one in enumerate(tasks):
        save(path, one, 0.5, curve=[0.1 * number, 0.2])
    found = tables.curves(tasks, path)
    assert [*found] == ["WeCFL", "FedAvg"] and [
        len(runs) for runs in found.values()
    ] == [2, 1]
    assert [run["accuracy"][0] for run in found["WeCFL"]] == pytest.approx([0, 0.2])
    assert found["FedAvg"][0]["round"].tolist() == [1, 2]
    save(path, task("LocalOnly"), 0.5)
    with pytest.raises(ValueError, match="no curves"):
        tables.curves([task("LocalOnly")], path)
    with pytest.raises(ValueError, match="1 of 1 records"):
        tables.curves([task("LocalOnly", seed=9)], path)


def test_summary_is_mean_and_sample_deviation_in_order():
    data = pd.DataFrame(
        {"row": list("zzazb"), "K": [2, 2, 1, 2, 1], "x": [1.0, 2.0, 5.0, 6.0, np.nan]}
    )
    found = summary(data, ["row", "K"], "x")
    assert [*found] == ["row", "K", "mean", "std", "n"] and found["row"].tolist() == [
        "z",
        "a",
        "b",
    ]
    assert found["mean"].tolist() == pytest.approx([3, 5, np.nan], nan_ok=True)
    assert found["std"].tolist() == pytest.approx(
        [np.std([1, 2, 6], ddof=1), np.nan, np.nan], nan_ok=True
    )
    assert found["n"].tolist() == [3, 1, 0]
    with pytest.raises(ValueError, match="no column 'seed', 'y': there are row, K, x"):
        summary(data, ["row", "seed"], "y")


# --- beside ---------------------------------------------------------------------------


def shown(
    data=None,
    paper=PAPER,
    rows=("row",),
    columns=("setting",),
    caption="Table 2 & more.",
    **options,
):
    data = runs() if data is None else data
    return beside(
        data,
        paper,
        rows=rows,
        columns=columns,
        value="accuracy",
        caption=caption,
        **options,
    )


def test_beside_puts_every_number_in_its_cell():
    assert lines(shown()) == [
        ["row", "source", "iid", "skew <2>"],
        ["FedAvg", "paper", "81.25 ± 1.23", "70.00"],
        ["FedAvg", "ours", "51.00 ± 1.00", "51.00 ± 1.00"],
        ["WeCFL", "paper", "–", "–"],
        ["WeCFL", "ours", "61.00 ± 1.00", "46.00 ± 1.00"],
        ["LocalOnly", "paper", "–", "–"],
        ["LocalOnly", "ours", "**71.00 ± 1.00**", "**71.00 ± 1.00**"],
        ["IFCA & co", "paper", "90.00 ± 1.00", "–"],
        ["IFCA & co", "ours", "–", "–"],
    ]


def test_the_other_side_can_have_another_name():
    for text in (shown(theirs="archive").text, shown(theirs="archive").html):
        assert "archive" in text and "paper" not in text


def test_beside_groups_headers_over_rows_and_columns():
    table = shown(
        rows=["K", "row"],
        columns=["dataset", "setting"],
        paper=PAPER.assign(dataset="digits"),
    )
    head, second, *body = lines(table)
    assert head == ["K", "row", "source", "digits", "digits"] and second[3:] == [
        "iid",
        "skew <2>",
    ]
    assert [line[:2] for line in body[::2]] == [
        ["5", row] for row in ("FedAvg", "WeCFL", "LocalOnly", "IFCA & co")
    ]
    tree = ElementTree.fromstring(table.html)
    assert {th.get("scope") for th in tree.find(".//thead").iter("th")} == {"col"}
    assert {th.get("scope") for th in tree.find(".//tbody").iter("th")} == {"row"}
    assert len([th for th in tree.iter("th") if th.text == "digits"]) == 1
    numbers = lines(
        shown(
            columns=["K"],
            data=runs(settings=["iid"]),
            paper=PAPER[PAPER["setting"] == "iid"],
        )
    )
    assert numbers[0] == ["row", "source", "K = 5"]  # a bare 5 would not speak


def test_rows_of_one_group_stay_together_whoever_has_them():
    data = pd.concat([runs(rows=["FedAvg"]), runs(rows=["FedAvg"]).assign(K=10)])
    body = lines(shown(data, rows=["K", "row"]))[1::2]
    assert [line[:2] for line in body] == [
        ["5", "FedAvg"],
        ["5", "IFCA & co"],
        ["10", "FedAvg"],
    ]


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), max_size=12
    )
)
def test_ordered_keeps_groups_whole_and_first_come_first(keys):
    found = tables._ordered(keys)
    assert sorted(found) == sorted(set(keys))
    for n in (1, 2, 3):
        heads = [key[:n] for key in found]
        runs = [h for i, h in enumerate(heads) if i == 0 or heads[i - 1] != h]
        assert len(runs) == len(set(runs)), "a group is torn apart"
    assert list(dict.fromkeys(k[0] for k in found)) == list(
        dict.fromkeys(k[0] for k in keys)
    )


def test_the_best_of_ours_is_bold_by_what_is_shown():
    data = runs(rows=["FedAvg", "WeCFL"], settings=["iid"], seeds=[0])
    data["accuracy"] = [0.50001, 0.50002]
    assert [line[2] for line in lines(shown(data))[2:6:2]] == [
        "**50.00**",
        "**50.00**",
    ]  # one seed has no deviation
    data["accuracy"] = [0.3, 0.4]
    assert [line[2] for line in lines(shown(data, best=min))[2:6:2]] == [
        "**30.00**",
        "40.00",
    ]
    assert (
        "<strong>" not in shown(data, best=None).html
        and "bold" not in shown(data, best=None).text
    )
    data["accuracy"] = [-0.00001, np.nan]
    assert [line[2] for line in lines(shown(data, percent=False, digits=3))[2:6:2]] == [
        "**0.000**",
        "–",
    ]


def test_the_caption_says_where_the_numbers_come_from():
    whole = (
        "Table 2 & more. Ours: profile laptop; seeds 0, 1, 2; data digits (1 % subset)."
    )
    table = shown()
    tree = ElementTree.fromstring(table.html)
    caption = "".join(tree.find(".//caption").itertext())
    assert caption == (
        f"{whole} Mean ± standard deviation over seeds in %; bold: our best per column."
    )
    assert (tree.get("role"), tree.get("tabindex"), tree.get("aria-label")) == (
        "region",
        "0",
        "Table 2 & more.",
    )
    assert (
        repr(table) == table.text
        and table.text.startswith(caption)
        and table._repr_html_() == table.html
    )
    assert re.search(
        r"LocalOnly +paper +– +–\n +ours +\*\*71.00 ± 1.00\*\*", table.text
    )
    uneven = (
        runs()
        .iloc[1:]
        .assign(
            profile=lambda d: np.where(d["seed"] == 2, "paper", "laptop"), data_note=""
        )
    )
    uneven.loc[3, "accuracy"] = np.nan
    text = shown(uneven).text
    assert "profile laptop, paper;" in text and "data digits;" in text
    assert "; 2 to 3 runs per cell; 1 of 17 runs have no number." in text


def test_the_page_brings_no_colours_and_no_style_per_cell():
    html = shown().html
    assert "style=" not in html and not re.search(r"#[0-9a-f]{3}|rgb|hsl", html)
    assert "skew &lt;2&gt;" in html and "IFCA &amp; co" in html and len(html) < 5_000


@pytest.mark.parametrize(
    "options, words",
    [
        ({"rows": []}, "at least one tag"),
        ({"columns": ["group"]}, "no column 'group': there are setting, K, row"),
        (
            {"data": pd.concat([runs(), runs().assign(K=10)])},
            r"two lines have row, setting, seed = \('FedAvg', 'iid', 0\)",
        ),
        (
            {"paper": pd.concat([PAPER, PAPER])},
            r"two lines have row, setting = \('FedAvg', 'iid'\)",
        ),
        (
            {"paper": PAPER.assign(accuracy=81.2)},
            "accuracy goes beyond 1.*percent=False",
        ),
        (
            {"paper": PAPER.assign(accuracy_std=1.2)},
            "accuracy goes beyond 1.*percent=False",
        ),
        ({"paper": PAPER.drop(columns="accuracy")}, "no column 'accuracy'"),
        ({"data": runs().drop(columns="profile")}, "no column 'profile'"),
    ],
)
def test_beside_refuses_what_would_mislead(options, words):
    with pytest.raises(ValueError, match=words):
        shown(**options)


# --- paired ---------------------------------------------------------------------------

BY = ["setting", "K", "seed"]


def test_paired_agrees_with_scipy():
    data = runs(seeds=range(6))
    data["accuracy"] += np.random.default_rng(0).normal(0, 0.02, len(data))
    pair = paired(
        data.sample(frac=1, random_state=1), "row", "WeCFL", "FedAvg", "accuracy", BY
    )
    a, b = (
        data[data["row"] == row]["accuracy"].to_numpy() for row in ("WeCFL", "FedAvg")
    )
    expected = stats.ttest_1samp(a - b, 0).confidence_interval(0.95)
    assert (pair.mean, pair.low, pair.high) == pytest.approx(
        (np.mean(a - b), *expected)
    )
    assert (pair.wins, pair.n) == (np.sum(a > b), 12) and 0 < pair.wins < 12
    joined = (
        data[data["row"] == "WeCFL"]
        .assign(difference=a - b)
        .merge(pair.differences, on=BY)
    )
    assert (
        joined["difference_x"].to_numpy()
        == pytest.approx(joined["difference_y"].to_numpy())
        and len(joined) == 12
    )
    back = paired(data, "row", "FedAvg", "WeCFL", "accuracy", BY)
    assert (back.mean, back.low, back.wins) == pytest.approx(
        (-pair.mean, -pair.high, 12 - pair.wins)
    )


def test_a_pair_in_words():
    data = runs(settings=["iid"])
    data.loc[data["seed"] == 1, "accuracy"] += np.where(
        data["row"] == "WeCFL", 0.01, 0
    )[data["seed"] == 1]
    pair = paired(data, "row", "WeCFL", "FedAvg", "accuracy", BY)
    assert (
        str(pair)
        == repr(pair)
        == "+10.3 points (95 % interval +8.9 to +11.8; higher in 3 of 3 pairs)"
    )
    assert pair.short == "+10.3 (+8.9 to +11.8)"
    assert str(
        paired(data, "row", "WeCFL", "FedAvg", "accuracy", BY, percent=False)
    ).startswith("+0.103 (95 %")
    assert str(
        paired(
            data.assign(accuracy=data["accuracy"] * 10),
            "row",
            "FedAvg",
            "WeCFL",
            "accuracy",
            BY,
        )
    ).startswith("-1.03 (95 % interval -1.18 to -0.89; higher in 0")
    one = paired(data[data["seed"] == 0], "row", "WeCFL", "FedAvg", "accuracy", BY)
    assert np.isnan([one.low, one.high]).all() and str(one) == (
        "+10.0 points (one pair gives no interval; higher in 1 of 1 pairs)"
    )
    same = paired(data.assign(accuracy=0.5), "row", "WeCFL", "FedAvg", "accuracy", BY)
    assert tuple(same[:5]) == (0, 0, 0, 0, 3) and isinstance(same, Pair)


@pytest.mark.parametrize(
    "change, by, words",
    [
        (
            lambda d: d.iloc[1:],
            BY,
            "1 lines of WeCFL and FedAvg have no partner, "
            r"first setting, K, seed = \('iid', 5, 0\)",
        ),
        (
            lambda d: d.drop(6),
            BY,
            r"1 lines of WeCFL and FedAvg have no partner.* = \('iid', 5, 0\)",
        ),
        (
            lambda d: d,
            ["setting", "K"],
            "two lines have setting, K = .*tells them apart",
        ),
        (
            lambda d: d[d["row"] != "WeCFL"],
            BY,
            "no line with row = 'WeCFL': there are .*'LocalOnly'",
        ),
        (lambda d: d[d["row"] != "FedAvg"], BY, "no line with row = 'FedAvg'"),
        (
            lambda d: d.assign(accuracy=np.where(d["seed"] == 1, np.nan, 0.5)),
            BY,
            "2 of 6 pairs have no accuracy",
        ),
        (lambda d: d, ["fold"], "no column 'fold'"),
    ],
)
def test_paired_refuses_what_does_not_pair(change, by, words):
    with pytest.raises(ValueError, match=words):
        paired(change(runs()), "row", "WeCFL", "FedAvg", "accuracy", by)


def test_runs_on_different_files_of_one_data_set_do_not_mix(path):
    some = [task(seed=0), task(seed=1)]
    for number, one in enumerate(some):
        save(path, one, accuracy=0.5, data_sha256=str(number))
    with pytest.raises(ValueError, match="different files of digits"):
        frame(some, path)


def test_an_old_record_stands_in_for_a_run_that_is_due(path):
    old = task(row="FedAvg")
    new = task(row="LocalOnly")
    save(path, old, accuracy=0.25)
    notes = {new.key: {"stands_in": old.key, "why": "mended"}}
    with pytest.raises(ValueError, match="lacks 1 of 1 records"):
        frame([new], path)
    store.write_pending(path.parent, notes)
    assert frame([new], path)["accuracy"].tolist() == [0.25]
    assert tables.pending([new, old], path) == {new.key: "mended"}
    save(path, new, accuracy=0.75)
    assert frame([new], path)["accuracy"].tolist() == [0.75]
    assert tables.pending([new, old], path) == {}
