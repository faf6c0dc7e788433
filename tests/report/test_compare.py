"""Several runs side by side: what is best, and what differs."""

from dataclasses import replace

import numpy as np

from apportion.report.build import write_report
from apportion.report.compare import differences
from apportion.report.read import read_runs
from tests.report.made_runs import made_evaluation, made_run
from tests.report.reading_pages import read_page, section


def told(*runs):
    return read_page(write_report(list(runs), runs[0].with_suffix(".html"), force=True))


def error(evaluation):
    return float(np.mean(np.abs(evaluation.given - evaluation.predicted).sum(axis=1)) / 2)


def test_the_comparison_marks_the_best_where_bags_are_the_same(tmp_path):
    bags = made_evaluation(8, 3, seed=1)
    near = replace(bags, predicted=0.5 * (bags.given + bags.predicted))
    far = made_run(tmp_path / "far", {"valid": bags}, epochs=9)
    close = made_run(
        tmp_path / "close", {"valid": near}, epochs=5, method="proportion-loss", seed=3
    )
    page = told(far, close)
    table = next(iter(section(page, "comparison").all("table")))
    header, *rows = table.rows()
    at = header.index("validation error")
    assert [row[0] for row in rows] == ["far", "close"]
    assert [row[at].split()[0] for row in rows] == [f"{error(bags):.4f}", f"{error(near):.4f}"]
    assert [cell.text for cell in table.all("span", class_="best")] == [f"{error(near):.4f}"]
    assert "close has the lowest error" in section(page, "comparison").text
    assert [row[header.index("length")] for row in rows] == ["9 epochs", "5 epochs"]
    differing = list(section(page, "comparison").all("table"))[1].rows()[1:]
    assert ["train.epochs", "9", "5"] in differing
    assert ["method.name", "fpl", "proportion-loss"] in differing
    assert not any(row[0] == "train.batch_size" for row in differing)


def test_a_difference_within_the_uncertainty_of_the_bags_is_nobody_s_best(tmp_path):
    """One run is better on 7 of 12 bags, by more than the other on the rest: by chance, perhaps."""
    rng = np.random.default_rng(0)
    bags = made_evaluation(12, 2, seed=1)
    noise = rng.normal(0, 0.05, size=(12, 1)) * [1, -1]
    other = replace(bags, predicted=np.clip(bags.given + 1.02 * noise[::-1], 0, 1))
    one = replace(bags, predicted=np.clip(bags.given + noise, 0, 1))
    assert error(one) < error(other)
    page = told(*(made_run(tmp_path / name, {"valid": own}) for name, own in
                  (("one", one), ("other", other))))  # fmt: skip
    assert not [cell for cell in page.all("span", class_="best") if cell.text.startswith("0.")]
    assert "no run is clearly the best of one and other" in section(page, "comparison").text


def test_pairing_finds_a_small_difference_that_all_bags_share(tmp_path):
    """Intervals of both errors overlap widely, but the difference is the same in every bag."""
    bags = made_evaluation(12, 2, seed=1, truth=False)
    far = np.linspace(0.01, 0.2, 12)[:, None] * np.where(bags.given > 0.5, -1, 1)
    runs = [
        made_run(tmp_path / name, {"valid": replace(bags, predicted=bags.given + f * far)})
        for name, f in (("near", 0.97), ("far", 1.0))
    ]
    page = told(*runs)
    cells = list(section(page, "comparison").all("span", class_="interval"))
    assert len(cells) >= 2
    near, far_one = (tuple(map(float, cell.text.split(" to "))) for cell in cells[:2])
    assert near[1] > far_one[0]
    assert "near has the lowest error" in section(page, "comparison").text


def test_an_accuracy_is_best_beyond_its_uncertainty_alone(tmp_path):
    bags = made_evaluation(12, 2, seed=1)
    assert bags.right is not None
    assert bags.confusion is not None
    worse = np.maximum(bags.right - 5, 0)
    fewer = bags.confusion - np.diag([20, 20]) + np.array([[0, 20], [20, 0]])
    one = made_run(tmp_path / "one", {"valid": bags})
    two = made_run(tmp_path / "two", {"valid": replace(bags, right=worse, confusion=fewer)})
    best = [cell.text for cell in told(one, two).all("span", class_="best")]
    assert best == [f"{np.trace(bags.confusion) / bags.confusion.sum():.1%}"]


def test_runs_of_different_bags_are_not_ranked(tmp_path):
    one = made_run(tmp_path / "1", {"valid": made_evaluation(8, 3, seed=1)})
    two = made_run(tmp_path / "2", {"valid": made_evaluation(8, 5, seed=2)})
    open_one = made_run(tmp_path / "3", epochs=2, epochs_wanted=9)
    for runs in ((one, two), (one, open_one)):
        page = told(*runs)
        assert "cannot be compared directly" in section(page, "comparison").text
        assert not list(page.all("span", class_="best"))


def test_the_same_number_is_nobody_s_best(tmp_path):
    same = made_evaluation(8, 3)
    page = told(*(made_run(tmp_path / name, {"valid": same}) for name in "ab"))
    assert not list(page.all("span", class_="best"))
    assert "All runs have the same configuration." in section(page, "comparison").text


def test_reasons_of_a_plan_are_not_among_the_differences(tmp_path):
    runs = [
        made_run(tmp_path / str(n), about={"plan": {"epochs": f"{n} (chosen)"}}, epochs=n)
        for n in (2, 3)
    ]
    assert [option for option, _ in differences(read_runs(runs))] == ["train.epochs"]
