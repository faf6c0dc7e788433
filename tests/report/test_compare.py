"""Several runs side by side: what is best, and what differs."""

from dataclasses import replace

import numpy as np

from apportion.report.build import write_report
from apportion.report.compare import differences, verdict
from apportion.report.read import read_runs
from tests.report.made_runs import logged, made_evaluation, made_run, wrong_bag
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


def three(tmp_path, *judged):
    """Runs of the same bags, one of which is wrong; some are judged by nets of their own."""
    for n, standard_errors in enumerate(judged):
        run = made_run(tmp_path / f"run{n}", wrong_bag(), epochs=4 + n)
        if standard_errors is not None:
            logged(run, skill=0.75, standard_errors=standard_errors)
        yield run


def test_a_comparison_ends_in_a_run_to_take_and_why_not_the_others(tmp_path):
    runs = list(three(tmp_path, None, 4.0, None))
    found = section(told(*runs), "comparison").text
    assert "no run is clearly the best of run0, run1 and run2" in found
    assert "Take run1: it alone was also tried on bags that its nets had not seen" in found
    assert "run0 and run2 may be as good, but only the 12 validation bags speak for them" in found
    assert "not to be used yet for want of evidence, not because of a larger error" in found
    assert "ward-3 is off in all runs, whatever the method: first check whether its" in found


def test_of_runs_that_are_as_good_the_quickest_is_taken(tmp_path):
    found = list(verdict(read_runs(list(three(tmp_path, 4.0, 4.0)))))
    assert found[1] == "Take run0: it is as good as any, and took the least time to train."


def test_no_run_is_taken_where_none_is_better_than_the_overall_shares(tmp_path):
    found = list(verdict(read_runs(list(three(tmp_path, None, 0.2)))))
    assert found[1].startswith("Use none of them yet: none is clearly better than the overall")


def test_a_bag_that_one_run_predicts_is_not_off_in_all(tmp_path):
    sets = wrong_bag()
    met = {**sets, "valid": replace(sets["valid"], predicted=sets["valid"].given.copy())}
    runs = [made_run(tmp_path / name, own) for name, own in (("a", sets), ("b", met))]
    found = list(verdict(read_runs(runs)))
    assert found == [
        "On the 12 validation bags, b has the lowest error, beyond what chance explains.",
        "Take b.",
    ]


def test_accuracies_and_stars_are_told_of_where_there_are_any(tmp_path):
    for name, truth in (("a", True), ("b", False)):
        sets = {"valid": made_evaluation(9, 2, truth=truth)}
        runs = [made_run(tmp_path / f"{name}{n}", sets) for n in (1, 2)]
        found = section(told(*runs), "comparison").text
        assert ("and accuracies of the selected model" in found) == truth
        assert "A star (★) marks" in found


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
