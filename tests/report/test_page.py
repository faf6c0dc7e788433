"""What a report says is what the files of its runs say: recomputed here, number by number."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest

from apportion.report.build import build
from apportion.report.reading import read_run
from apportion.report.words import notices, summary
from apportion.training.evaluate import Outcome
from tests.report.made_runs import made_outcome, made_records, made_run
from tests.report.reading_pages import read_page, section

EVIL = [
    "<script>alert(1)</script>",
    "\"quoted\" & 'single' $x_1$ {{ 1 }}",
    "Größe 日本 " + "x" * 90,
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run with three sets of bags, and its page."""
    outcomes = {name: made_outcome(n, 4, seed=n) for name, n in
                (("train", 30), ("valid", 12), ("test", 9))}  # fmt: skip
    about = {"data": {"kind": "table", "rows": "rows.csv"}, "model": {"net": "mlp"}}
    run = made_run(tmp_path_factory.mktemp("runs") / "a", outcomes, epochs=20, about=about)
    return run, outcomes, read_page(build([run]))


def variation(outcome: Outcome, bag: int) -> float:
    pairs = zip(outcome.given[bag], outcome.predicted[bag], strict=True)
    return sum(abs(float(p) - float(q)) for p, q in pairs) / 2


def error(outcome: Outcome) -> float:
    return float(np.mean([variation(outcome, bag) for bag in range(len(outcome.ids))]))


def test_the_summary_counts_what_there_is(made):
    _, outcomes, page = made
    told = page.one("header").text
    sizes = outcomes["train"].sizes
    assert f"30 bags of {min(sizes)} to {max(sizes)} (median {np.median(sizes):g})" in told
    assert f"{sum(sizes):,} in all" in told
    assert "4 classes (class 0, class 1, class 2 and class 3)" in told
    assert "Follow the Perturbed Leader, η = 1.25" in told
    assert "Network: mlp" in told
    for name, label in (("train", "training"), ("valid", "validation"), ("test", "test")):
        share = np.trace(outcomes[name].confusion) / outcomes[name].confusion.sum()
        assert f"{share:.1%} on the {label} bags" in told


def test_the_selected_epoch_is_the_first_of_least_validation_error(made):
    _, _, page = made
    errors = [record["valid_error"] for record in made_records(20, "fpl", True, 0)]
    best = 1 + errors.index(min(errors))
    assert f"Epoch {best} was selected" in page.one("header").text
    assert f"{min(errors):.4f}" in page.one("header").text
    chart = next(f for f in section(page, "curves").all("figure") if "error" in f.text)
    assert f"least validation error, {best}." in chart.text
    assert f"epoch {best} · {min(errors):.4f}" in chart.one("svg", class_="chart").text


def test_the_first_numbers_are_those_of_the_outcome(made):
    _, outcomes, page = made
    figures = {d.one("dt").text: d.one("dd", class_="value").text
               for d in page.one("dl").all("div")}  # fmt: skip
    assert figures["Test proportion error"] == f"{error(outcomes['test']):.4f}"
    assert figures["Validation proportion error"] == f"{error(outcomes['valid']):.4f}"
    confusion = outcomes["test"].confusion
    assert figures["Test accuracy"] == f"{np.trace(confusion) / confusion.sum():.1%}"


def test_guessing_the_mean_is_measured_with_the_training_bags(made):
    _, outcomes, page = made
    train, valid = outcomes["train"], outcomes["valid"]
    mean = sum(n * p for n, p in zip(train.sizes, train.given, strict=True)) / sum(train.sizes)
    guess = np.mean([np.abs(p - mean).sum() / 2 for p in valid.given])
    assert f"like the mean of the training bags would give {guess:.4f}" in page.one("header").text


@pytest.mark.parametrize(("place", "name"), [(0, "test"), (1, "valid"), (2, "train")])
def test_the_worst_bags_are_really_the_worst(made, place, name):
    _, outcomes, page = made
    outcome = outcomes[name]
    table = list(section(page, "bags").all("table"))[place]
    order = sorted(range(len(outcome.ids)), key=lambda bag: -variation(outcome, bag))
    _, *rows = table.rows()
    assert [row[0] for row in rows] == [outcome.ids[bag] for bag in order[: len(rows)]]
    for bag, row in zip(order, rows, strict=False):
        gaps = np.abs(outcome.given[bag] - outcome.predicted[bag])
        c = int(gaps.argmax())
        assert row[1:] == [
            str(outcome.sizes[bag]),
            f"{variation(outcome, bag):.4f}",
            f"class {c}",
            f"{outcome.given[bag, c]:.3f} → {outcome.predicted[bag, c]:.3f}",
        ]
    chart = list(section(page, "bags").all("figure"))[place]
    drawn = [text.text for text in chart.all("text")]
    assert all(outcome.ids[bag] in drawn for bag in order[:3])
    assert (
        f"The worst bag is {outcome.ids[order[0]]}"
        in chart.one(role="img").attributes["aria-label"]
    )
    assert f"Mean total variation {error(outcome):.4f}" in chart.text


def test_the_confusion_is_that_of_the_test_bags(made):
    _, outcomes, page = made
    header, *rows = section(page, "instances").one("table", class_="confusion").rows()
    assert header == ["", *(f"class {c}" for c in range(4)), "right"]
    confusion = outcomes["test"].confusion
    for c, row in enumerate(rows):
        assert row[1:-1] == [str(n) for n in confusion[c]]
        assert row[-1] == f"{confusion[c, c] / confusion[c].sum():.1%}"
    assert "test bags" in section(page, "instances").text


def test_the_calibration_error_is_that_of_the_bins(made):
    _, outcomes, page = made
    expected = 0.0
    bins = outcomes["test"].calibration
    for n, confidence, right in bins:
        if n:
            expected += n / bins[:, 0].sum() * abs(right / n - confidence / n)
    chart = section(page, "instances").one("figure")
    assert f"Expected calibration error {expected:.4f}" in chart.text


def test_every_unsure_row_can_be_traced(made):
    _, outcomes, page = made
    unsure = outcomes["test"].unsure
    header, *rows = section(page, "unsure").one("table").rows()
    assert header[:5] == ["row", "bag", "likeliest", "second", "truth"]
    assert len(rows) == len(unsure.rows)
    for k, row in enumerate(rows):
        first, second = np.argsort(-unsure.confidence[k])[:2]
        assert row[0] == str(unsure.rows[k])
        assert row[1] == outcomes["test"].ids[unsure.bags[k]]
        assert row[2] == f"class {first} {unsure.confidence[k, first]:.1%}"
        assert row[3] == f"class {second} {unsure.confidence[k, second]:.1%}"
        assert row[4] == f"class {unsure.truth[k]}"
        assert [float(v.replace("−", "-")) for v in row[5:]] == pytest.approx(
            unsure.x[0][k].tolist(), abs=1e-4
        )


def test_time_adds_up(made):
    _, _, page = made
    rows = section(page, "time").one("table").rows()[1:]
    records = made_records(20, "fpl", True, 0)
    total = sum(sum(record["seconds"].values()) for record in records)
    shares = {row[0]: float(row[3].rstrip("%")) / 100 for row in rows}
    own = sum(record["seconds"]["labels"] for record in records)
    assert shares["label decisions"] == pytest.approx(own / total, abs=1e-3)
    assert sum(shares.values()) == pytest.approx(1, abs=2e-3)


def test_the_configuration_and_the_way_back_are_there(made):
    run, _, page = made
    found = section(page, "configuration")
    assert found.one("details").one("pre").text == " ".join(
        (run / "config.toml").read_text().split()
    )
    assert f"apportion train {run}/config.toml --out runs/again" in found.text
    assert "--resume" not in found.text


# ------------------------------------------------------------------------- what is not always there


def told(*runs):
    return read_page(build(list(runs), runs[0].with_suffix(".html"), force=True))


def noticed(run):
    return " ".join(" ".join(notice) for notice in notices(read_run(run, run.name)))


def summed_up(run):
    return " ".join(summary(read_run(run, run.name)))


def test_an_unfinished_run_says_so_on_top_and_how_to_go_on(tmp_path):
    about = {"data": {"kind": "table"}}
    run = made_run(tmp_path / "a b", epochs=12, epochs_wanted=100, about=about)
    page = told(run)
    first = page.one("header").one("ul", class_="notices").text
    assert first.startswith("Not finished: 12 of 100 epochs.")
    assert f"apportion train --resume '{run}' goes on." in first
    assert "was selected" not in page.text
    assert f"apportion train --resume '{run}'" in section(page, "configuration").text


def test_a_run_of_the_library_is_gone_on_with_by_the_library(tmp_path):
    found = noticed(made_run(tmp_path / "b", epochs=12, epochs_wanted=100))
    assert "12 of 100 epochs" in found
    assert "The same call of fit" in found
    assert "--resume" not in found


def test_an_early_stop_is_an_end(tmp_path):
    outcomes = {"train": made_outcome(5, 2), "valid": made_outcome(3, 2)}
    run = made_run(tmp_path / "a", outcomes, epochs=12, epochs_wanted=100, patience=3)
    assert "Not finished" not in noticed(run)
    assert "stopped early: the validation error had not improved for 3 epochs" in summed_up(run)


def test_all_epochs_without_an_outcome_are_told(tmp_path):
    found = noticed(made_run(tmp_path / "a", epochs=12))
    assert "outcome.safetensors" in found
    assert "Not finished" not in found


def test_a_validation_error_that_still_falls_is_told(tmp_path):
    outcomes = {"train": made_outcome(5, 2), "valid": made_outcome(3, 2)}
    for last, expected in ((0.01, True), (0.5, False)):
        run = made_run(tmp_path / str(last), outcomes, epochs=4)
        records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        records[-1]["valid_error"] = last
        (run / "log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
        assert ("more epochs may lower it" in noticed(run)) == expected


def test_without_validation_the_last_epoch_is_taken(tmp_path):
    run = made_run(tmp_path / "a", {"train": made_outcome(5, 3)}, validated=False)
    assert "no validation bags" in noticed(run)
    assert "The last epoch was taken" in noticed(run)
    assert "on the training bags only" in noticed(run)
    page = told(run)
    assert "was selected" not in page.text
    assert "Proportion error" not in [title.text for title in section(page, "curves").all("h3")]


def test_test_bags_without_validation_select_nothing(tmp_path):
    outcomes = {"train": made_outcome(5, 3), "test": made_outcome(4, 3)}
    run = made_run(tmp_path / "a", outcomes, validated=False)
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    lines = [json.dumps(record | {"test_error": 0.1}) for record in records]
    (run / "log.jsonl").write_text("\n".join(lines) + "\n")
    curves = section(told(run), "curves")
    assert "Proportion error" in [title.text for title in curves.all("h3")]
    assert "selected" not in curves.text
    assert "least validation error" not in curves.text


def test_without_truth_nothing_is_said_of_accuracy(tmp_path):
    outcomes = {"train": made_outcome(5, 3, truth=False), "valid": made_outcome(4, 3, truth=False)}
    run = made_run(tmp_path / "a", outcomes, method="proportion-loss")
    assert "no accuracy can be told" in noticed(run)
    page = told(run)
    assert "Accuracy of single instances" not in page.one("header").text
    assert not list(page.all("table", class_="confusion"))
    assert "truth" not in section(page, "unsure").one("table").rows()[0]
    titles = [figure.one("h3").text for figure in section(page, "curves").all("figure")]
    assert "Regret" not in titles
    assert "Labels changed" not in titles


def test_a_model_no_better_than_guessing_is_called_so(tmp_path):
    train, valid = made_outcome(9, 3), made_outcome(9, 3, seed=1, noise=1.0)
    for name, own, expected in (("a", valid, True), ("b", made_outcome(9, 3, seed=1), False)):
        run = made_run(tmp_path / name, {"train": train, "valid": own})
        assert ("no better than saying the same of every bag" in noticed(run)) == expected


@pytest.mark.parametrize(("n_bags", "n_classes"), [(1, 2), (30, 20), (1, 21), (30, 100)])
def test_any_number_of_bags_and_classes(tmp_path, n_bags, n_classes):
    outcome = made_outcome(n_bags, n_classes)
    run = made_run(tmp_path / "a", {"train": outcome}, validated=False, epochs=1)
    page = told(run)
    shown = section(page, "instances")
    assert len(list(shown.all("table"))) == (n_classes <= 20)
    assert len(list(shown.all("figure"))) == 1 + (n_classes > 20)
    keys = list(section(page, "bags").one("figure").all("ul", class_="legend"))
    assert len(keys) == (n_classes <= 8)
    assert f"{n_bags * n_classes:,} points" in section(page, "bags").text


def test_names_are_texts_and_nothing_else(tmp_path):
    outcomes = {"train": made_outcome(1, 3, ids=EVIL[:1]), "valid": made_outcome(3, 3, ids=EVIL)}
    folder = tmp_path / "<b>run & 'co'"
    runs = [made_run(folder, outcomes, classes=EVIL), made_run(tmp_path / "b", outcomes)]
    for chosen in (runs[:1], runs):
        page = told(*chosen)
        assert not list(page.all("script"))
        assert not list(page.all("b"))
        assert EVIL[0] in section(page, "bags").text
        assert EVIL[1] in section(page, "bags").text
        titles = {e.attributes["title"] for e in page.all() if "title" in e.attributes}
        assert set(EVIL) <= titles  # long names are shortened, but can be had
        assert "<b>run & 'co'" in page.one("h1").text


# ---------------------------------------------------------------------------------- several runs


def test_the_comparison_marks_the_best_where_bags_are_the_same(tmp_path):
    bags = made_outcome(8, 3, seed=1)
    near = Outcome(bags.ids, bags.sizes, bags.given, 0.5 * (bags.given + bags.predicted),
                   bags.confusion, bags.calibration, bags.unsure)  # fmt: skip
    far = made_run(tmp_path / "far", {"valid": bags}, epochs=9)
    close = made_run(
        tmp_path / "close", {"valid": near}, epochs=5, method="proportion-loss", seed=3
    )
    page = told(far, close)
    table = next(iter(section(page, "comparison").all("table")))
    header, *rows = table.rows()
    at = header.index("validation error")
    assert [row[0] for row in rows] == ["far", "close"]
    assert [row[at] for row in rows] == [f"{error(bags):.4f}", f"{error(near):.4f}"]
    assert [cell.text for cell in table.all("td", class_="best")] == [f"{error(near):.4f}"]
    assert [row[header.index("epochs")] for row in rows] == ["9", "5"]
    differing = list(section(page, "comparison").all("table"))[1].rows()[1:]
    assert ["train.epochs", "9", "5"] in differing
    assert ["method.name", "fpl", "proportion-loss"] in differing
    assert not any(row[0] == "train.batch_size" for row in differing)


def test_runs_of_different_bags_are_not_ranked(tmp_path):
    one = made_run(tmp_path / "1", {"valid": made_outcome(8, 3, seed=1)})
    two = made_run(tmp_path / "2", {"valid": made_outcome(8, 5, seed=2)})
    open_one = made_run(tmp_path / "3", epochs=2, epochs_wanted=9)
    for runs in ((one, two), (one, open_one)):
        page = told(*runs)
        assert "not strictly comparable" in section(page, "comparison").text
        assert not list(page.all("td", class_="best"))


def test_curves_of_all_runs_share_their_charts(tmp_path):
    runs = [made_run(tmp_path / f"run{n}", epochs=3 + n, seed=n) for n in range(10)]
    page = told(*runs)
    for chart in section(page, "curves").all("figure"):
        names = [key.text for key in chart.one("ul", class_="legend").all("li")]
        assert names[:10] == [f"run{n}" for n in range(10)]
        looks = {str(line.attributes) for line in chart.one("ul", class_="legend").all("line")}
        assert len(looks) >= 10  # no two runs look alike


def test_runs_of_one_name_are_told_apart_by_their_paths(tmp_path):
    runs = [made_run(tmp_path / parent / "a", epochs=2) for parent in ("x", "y")]
    page = read_page(build(runs, tmp_path / "page.html"))
    rows = next(iter(section(page, "comparison").all("table"))).rows()[1:]
    assert [row[0] for row in rows] == [str(run) for run in runs]


# ------------------------------------------------------------------------------- what holds always


@pytest.fixture(scope="module")
def pages(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    images = np.random.default_rng(0).integers(256, size=(24, 3, 8, 8), dtype=np.uint8)
    valid = made_outcome(40, 9, x=(images,))
    run = made_run(folder / "b", {"train": made_outcome(40, 9), "valid": valid})
    return [build([made[0]], folder / "1.html"), build([made[0], run], folder / "2.html"),
            build([run], folder / "3.html")]  # fmt: skip


def test_pages_need_nothing_but_themselves(pages):
    for file in pages:
        text, page = file.read_text(), read_page(file)
        assert not re.search(r"https?://", text.replace("http://www.w3.org/", ""))
        assert "@import" not in text
        for element in page.all():
            for name in ("src", "href"):
                address = element.attributes.get(name, "#")
                assert address.startswith(("#", "data:")), address
            if element.attributes.get("href", "").startswith("#"):
                assert element.attributes["href"] != "#"


def test_names_of_parts_are_unique_and_all_references_are_met(pages):
    for file in pages:
        page = read_page(file)
        names = [e.attributes["id"] for e in page.all() if "id" in e.attributes]
        assert len(names) == len(set(names))
        referred = re.findall(r'(?:href="#|url\(#)([^")]+)', file.read_text())
        assert referred
        assert set(referred) <= set(names)


def test_headings_go_down_in_order(pages):
    for file in pages:
        levels = [int(e.tag[1]) for e in read_page(file).all() if re.fullmatch("h[1-6]", e.tag)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))


def test_what_is_drawn_is_also_told(pages):
    for file in pages:
        page = read_page(file)
        assert page.one("html").attributes["lang"] == "en"
        assert len(list(page.all("main"))) == 1
        for chart in page.all("svg", class_="chart"):
            assert chart.attributes["role"] == "img"
            assert re.search(r"\d", chart.attributes["aria-label"])
        assert all(image.attributes["alt"] for image in page.all("img"))
        for table in page.all("table"):
            assert table.one("caption").text
            assert all("scope" in cell.attributes for cell in table.all("th"))
        for box in page.all("div", class_="scroll"):
            assert box.attributes["tabindex"] == "0"
            assert box.attributes["aria-label"]


def test_no_colour_of_a_drawing_is_fixed(pages):
    for file in pages:
        page = read_page(file)
        styles = [e.attributes.get("style", "") for s in page.all("svg") for e in s.all()]
        assert not any(re.search("#[0-9a-f]{6}", style) for style in styles)
        assert any("var(--ink)" in style for style in styles)
