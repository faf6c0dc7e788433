"""Charts of one value per epoch: who is in them, and the shape of the regret's bound."""

import itertools
import json
import re

import numpy as np
import pytest

from apportion.report.build import write_report
from apportion.report.curves import bound_shape, learning_curves, log_labelings, time_chart
from apportion.report.read import read_runs
from apportion.runs.evaluation import Evaluation
from tests.report.made_runs import made_evaluation, made_run
from tests.report.reading_pages import read_page, section


def told(*runs):
    return read_page(write_report(list(runs), runs[0].with_suffix(".html"), force=True))


def bags_of(given, sizes) -> Evaluation:
    unsure = made_evaluation(1, 2).unsure
    nothing = (None,) * 4
    return Evaluation([*range(len(sizes))], np.array(sizes), given, given, *nothing, unsure)


@pytest.mark.parametrize("counts", [(2, 2), (3, 1, 1), (4, 0), (1,), (2, 2, 2)])
def test_labelings_are_counted(counts):
    size = sum(counts)
    labels = [c for c, n in enumerate(counts) for _ in range(n)]
    number = len(set(itertools.permutations(labels)))
    bag = bags_of(np.array([counts]) / size, [size])
    assert np.exp(log_labelings(bag)) == pytest.approx([number])


def test_the_bound_is_averaged_over_instances_and_never_above_one():
    bags = bags_of(np.array([[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]]), [4, 6, 2])
    expected = [
        (4 * min(1, (np.log(6) / t) ** 0.5) + 6 * 0 + 2 * min(1, (np.log(2) / t) ** 0.5)) / 12
        for t in (1, 2, 10)
    ]
    assert bound_shape(bags, np.array([1.0, 2.0, 10.0])) == pytest.approx(expected)


def test_curves_of_all_runs_share_their_charts(tmp_path):
    runs = [made_run(tmp_path / f"run{n}", epochs=3 + n, seed=n) for n in range(10)]
    page = told(*runs)
    for chart in section(page, "curves").all("figure"):
        names = [key.text for key in chart.one("ul", class_="legend").all("li")]
        assert names[:10] == [f"run{n}" for n in range(10)]
        looks = {str(line.attributes) for line in chart.one("ul", class_="legend").all("line")}
        assert len(looks) >= 10  # no two runs look alike


def test_test_bags_without_validation_select_nothing(tmp_path):
    evaluations = {"train": made_evaluation(5, 3), "test": made_evaluation(4, 3)}
    run = made_run(tmp_path / "a", evaluations, validated=False)
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    lines = [json.dumps(record | {"test_error": 0.1}) for record in records]
    (run / "log.jsonl").write_text("\n".join(lines) + "\n")
    curves = section(told(run), "curves")
    assert "Proportion error" in [title.text for title in curves.all("h3")]
    assert "selected" not in curves.text
    assert "lowest validation error" not in curves.text


def relogged(run, change):
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    lines = [json.dumps(change(record)) for record in records]
    (run / "log.jsonl").write_text("\n".join(lines) + "\n")
    return run


def lines(chart):
    """The colour of every line that goes through at least as many points as there are epochs."""
    paths = re.findall(r'<path d="([^"]*)"[^>]*style="[^"]*stroke: ([^;"]*)', chart.svg)
    return [colour for d, colour in paths if d.count("L") > 9]


def test_the_bound_has_the_colour_of_no_run(tmp_path):
    runs = [made_run(tmp_path / str(n), {"train": made_evaluation(6, 3, seed=n)}) for n in range(3)]
    (chart,) = [c for c in learning_curves(read_runs(runs)) if c.title == "Regret"]
    assert lines(chart) == ["var(--bound)"] * 3 + [f"var(--s{n})" for n in (1, 2, 3)]
    assert [key.label for key in chart.keys] == ["0", "1", "2", "shape of the bound"]


def test_a_regret_below_zero_is_drawn_on_plain_axes_without_a_bound(tmp_path):
    run = made_run(tmp_path / "a", {"train": made_evaluation(6, 3)})
    relogged(run, lambda record: record | {"regret": 0.1 - 0.02 * record["epoch"]})
    (chart,) = [c for c in learning_curves(read_runs([run])) if c.title == "Regret"]
    assert "logarithmic" not in chart.caption
    assert "bound" not in chart.caption
    assert lines(chart) == ["var(--s1)"]


def test_a_loss_that_rises_by_design_is_said_to(tmp_path):
    ramped, counts = (
        made_run(tmp_path / name, about={"method": {"name": name, "ramp": 0.4}})
        for name in ("llp-vat", "count-likelihood")
    )
    plain = made_run(tmp_path / "plain", method="proportion-loss")
    for chosen, expected in (
        ([ramped], "it takes in a second one, step by step"),
        ([plain, ramped], "that of llp-vat takes in a second one"),
        ([counts], "it passes to a stricter one"),
        ([counts, ramped], "that of count-likelihood passes to a stricter one and that of llp-vat"),
        ([plain], ""),
    ):
        loss = learning_curves(read_runs(chosen))[0]
        assert loss.title == "Loss"
        assert "Losses of different methods cannot be compared" in loss.caption
        assert ("A rise is not by itself a failure" in loss.caption) == bool(expected)
        assert expected in loss.caption


def test_captions_claim_nothing_about_single_instances_and_no_line_is_like_the_bound(tmp_path):
    runs = [made_run(tmp_path / str(n), {"train": made_evaluation(6, 3)}) for n in range(3)]
    charts = {chart.title: chart for chart in learning_curves(read_runs(runs))}
    assert "wrong class" not in charts["Proportion error, validation"].caption
    assert "Which single instances are right it cannot tell" in charts[
        "Proportion error, validation"].caption  # fmt: skip
    regret = charts["Regret"]
    assert regret.caption.startswith("How much worse the pseudo labels of all epochs so far were")
    assert [key.dashes for key in regret.keys].count("") == 2  # the first run and the bound
    assert [key.label for key in regret.keys if "bound" in key.colour] == ["shape of the bound"]


def test_an_epoch_far_slower_than_others_does_not_flatten_the_chart(tmp_path):
    run = made_run(tmp_path / "a", epochs=40)
    usual = time_chart(read_runs([run]))
    assert usual is not None
    assert "beyond the chart" not in usual.caption

    def first_is_slow(record):
        return record | {"seconds": {"train": 60.0 if record["epoch"] == 1 else 0.5}}

    chart = time_chart(read_runs([relogged(run, first_is_slow)]))
    assert chart is not None
    assert "The slowest took 60 s" in chart.caption
    ticks = [float(tick) for tick in re.findall(r">(\d+\.\d+)</text>", chart.svg)]
    assert max(ticks) < 1
