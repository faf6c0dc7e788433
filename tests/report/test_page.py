"""What a page says is what the files of its runs say: recomputed here, number by number."""

import re
from itertools import pairwise

import numpy as np
import pytest

from apportion.report.build import write_report
from apportion.runs.evaluation import Evaluation
from tests.report.made_runs import (
    logged,
    made_bags,
    made_evaluation,
    made_records,
    made_run,
    wrong_bag,
)
from tests.report.reading_pages import read_page, section

EVIL = [
    "<script>alert(1)</script>",
    "\"quoted\" & 'single' $x_1$ {{ 1 }}",
    "Größe 日本 " + "x" * 90,
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run with three sets of bags, and its page."""
    evaluations = {name: made_evaluation(n, 4, seed=n) for name, n in
                (("train", 30), ("valid", 12), ("test", 9))}  # fmt: skip
    about = {"data": {"kind": "table", "rows": "rows.csv"}, "model": {"net": "mlp"}}
    run = made_run(tmp_path_factory.mktemp("runs") / "a", evaluations, epochs=20, about=about)
    return run, evaluations, read_page(write_report([run]))


def variation(evaluation: Evaluation, bag: int) -> float:
    pairs = zip(evaluation.given[bag], evaluation.predicted[bag], strict=True)
    return sum(abs(float(p) - float(q)) for p, q in pairs) / 2


def by_chance(evaluation: Evaluation, bag: int) -> float:
    """The mean distance of a normal number from its mean is √(2/π) standard deviations."""
    n, p = evaluation.sizes[bag], evaluation.predicted[bag]
    return float(sum((2 / np.pi * q * (1 - q) / n) ** 0.5 for q in p) / 2)


def times(evaluation: Evaluation, bag: int) -> float:
    """A third of an instance more than chance, since shares are of whole instances."""
    chance = by_chance(evaluation, bag) + 1 / (3 * evaluation.sizes[bag])
    return variation(evaluation, bag) / float(chance)


def error(evaluation: Evaluation) -> float:
    return float(np.mean([variation(evaluation, bag) for bag in range(len(evaluation.ids))]))


def test_the_summary_counts_what_there_is(made):
    _, evaluations, page = made
    told = page.one("header").text
    sizes = evaluations["train"].sizes
    assert f"30 bags of {min(sizes)} to {max(sizes)} (median {np.median(sizes):g}) rows" in told
    assert f"{sum(sizes):,} in all" in told
    assert "4 classes (class 0, class 1, class 2 and class 3)" in told
    assert "Follow the Perturbed Leader, η = 1.25" in told
    assert "Network: mlp" in told
    for name, label in (("train", "training"), ("valid", "validation"), ("test", "test")):
        share = np.trace(evaluations[name].confusion) / evaluations[name].confusion.sum()
        assert f"{share:.1%} on the {label} bags (95% interval " in told


def test_the_selected_epoch_is_the_first_of_least_validation_error(made):
    _, _, page = made
    errors = [record["valid_error"] for record in made_records(20, "fpl", True, 0)]
    best = 1 + errors.index(min(errors))
    assert f"Epoch {best} was selected" in page.one("header").text
    assert f"{min(errors):.4f}" in page.one("header").text
    chart = next(f for f in section(page, "curves").all("figure") if "error" in f.text)
    assert f"lowest validation error, {best}." in chart.text
    assert f"epoch {best} · {min(errors):.4f}" in chart.one("svg", class_="chart").text


def test_the_first_numbers_are_those_of_the_evaluation(made):
    _, evaluations, page = made
    figures = {d.one("dt").text: d.one("dd", class_="value").text
               for d in page.one("dl").all("div")}  # fmt: skip
    assert figures["Test proportion error"] == f"{error(evaluations['test']):.4f}"
    assert figures["Validation proportion error"] == f"{error(evaluations['valid']):.4f}"
    confusion = evaluations["test"].confusion
    assert figures["Test accuracy"] == f"{np.trace(confusion) / confusion.sum():.1%}"


def test_guessing_the_mean_is_measured_with_the_training_bags(made):
    _, evaluations, page = made
    train, valid = evaluations["train"], evaluations["valid"]
    mean = sum(n * p for n, p in zip(train.sizes, train.given, strict=True)) / sum(train.sizes)
    guess = np.mean([np.abs(p - mean).sum() / 2 for p in valid.given])
    assert f"overall shares: {guess:.4f}" in page.one("header").text


@pytest.mark.parametrize(("place", "name"), [(0, "test"), (1, "valid"), (2, "train")])
def test_the_worst_bags_are_really_the_worst(made, place, name):
    _, evaluations, page = made
    evaluation = evaluations[name]
    table = list(section(page, "bags").all("table"))[place]
    order = sorted(range(len(evaluation.ids)), key=lambda bag: -times(evaluation, bag))
    _, *rows = table.rows()
    assert [row[0] for row in rows] == [evaluation.ids[bag] for bag in order[: len(rows)]]
    for bag, row in zip(order, rows, strict=False):
        gaps = np.abs(evaluation.given[bag] - evaluation.predicted[bag])
        c = int(gaps.argmax())
        assert row[1:] == [
            f"{evaluation.given[bag, c]:.1%} → {evaluation.predicted[bag, c]:.1%} class {c}",
            f"{100 * variation(evaluation, bag):.1f}",
            "◆ " * (times(evaluation, bag) > 3) + f"{times(evaluation, bag):.1f}",
            str(evaluation.sizes[bag]),
        ]
    chart = list(section(page, "bags").all("figure"))[place]
    drawn = [text.text for text in chart.all("text") if text.text in evaluation.ids]
    off = [bag for bag in order[:3] if times(evaluation, bag) > 3] or order[:1]
    assert set(drawn) == {evaluation.ids[bag] for bag in off}
    assert (
        f"Farthest off is {evaluation.ids[order[0]]}"
        in chart.one(role="img").attributes["aria-label"]
    )
    assert f"Mean total variation {error(evaluation):.4f}" in chart.text


def test_the_confusion_is_that_of_the_test_bags(made):
    _, evaluations, page = made
    header, *rows = section(page, "instances").one("table", class_="confusion").rows()
    assert header == ["", *(f"class {c}" for c in range(4)), "right"]
    confusion = evaluations["test"].confusion
    for c, row in enumerate(rows):
        assert row[1:-1] == [str(n) for n in confusion[c]]
        assert row[-1] == f"{confusion[c, c] / confusion[c].sum():.1%}"
    assert "test bags" in section(page, "instances").text


def test_the_calibration_error_is_that_of_the_bins(made):
    _, evaluations, page = made
    expected = 0.0
    bins = evaluations["test"].calibration
    for n, confidence, right in bins:
        if n:
            expected += n / bins[:, 0].sum() * abs(right / n - confidence / n)
    chart = section(page, "instances").one("figure")
    assert f"Expected calibration error {expected:.4f}" in chart.text


def test_every_unsure_row_can_be_traced(made):
    _, evaluations, page = made
    unsure = evaluations["test"].unsure
    header, *rows = section(page, "unsure").one("table").rows()
    assert header[:5] == ["row", "bag", "likeliest", "second", "truth"]
    assert len(rows) == len(unsure.rows)
    for k, row in enumerate(rows):
        first, second = np.argsort(-unsure.confidence[k])[:2]
        assert row[0] == str(unsure.rows[k])
        assert row[1] == evaluations["test"].ids[unsure.bags[k]]
        assert row[2] == f"class {first} {unsure.confidence[k, first]:.1%}"
        assert row[3] == f"class {second} {unsure.confidence[k, second]:.1%}"
        assert row[4:] == [f"class {unsure.truth[k]}"]


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
    assert "apportion train a/config.toml --out runs/again" in found.text
    assert "--resume" not in found.text


def told(*runs):
    return read_page(write_report(list(runs), runs[0].with_suffix(".html"), force=True))


def test_text_rings_and_marks_name_the_same_bags(tmp_path):
    run = made_run(tmp_path / "a", wrong_bag(), classes=["yes", "no"])
    page = told(run)
    assert "Of the 12 validation bags, 1 is off" in page.one("header").text
    found = section(page, "bags")
    tables, charts = list(found.all("table")), list(found.all("figure"))
    assert [row.one("th").text for row in tables[0].all("tr", class_="off")] == ["ward-3"]
    assert not list(tables[1].all("tr", class_="off"))
    drawn = [t.text for t in charts[0].all("text") if t.text.startswith("ward")]
    assert drawn == ["ward-3"]
    header, first, *_ = tables[0].rows()
    assert header == ["bag", "known → predicted", "times chance", "size"]
    assert first == ["ward-3", "81.0% → 36.0%", "◆ 10.8", "100"]
    assert "Known and predicted shares of yes" in found.text


def test_commands_are_never_broken_within_an_option(tmp_path):
    about = {"data": {"kind": "table"}}
    run = made_run(tmp_path / "a", {"train": made_evaluation(9, 2)}, validated=False, about=about)
    commands = list(told(run).all("code", class_="command"))
    assert any("--validation 0.2 --out runs/held-out" in command.text for command in commands)
    for command in commands:
        words = [word.text for word in command.all("span", class_="nowrap")]
        assert words == command.text.split()


def test_a_run_of_one_minute_has_one_date(tmp_path):
    run = logged(
        made_run(tmp_path / "a", {"train": made_evaluation(9, 2)}, epochs=1), at=1795019344
    )
    text = told(run).one("header").text
    assert re.search(r"Training took 1 epoch and [\d.]+ s on cpu, on 2026-11-18 16:29 UTC\.", text)


def test_the_least_certain_say_what_they_are_for(made):
    found = section(made[2], "unsure").text
    assert "Look here for what the model cannot tell apart" in found


def test_an_unfinished_run_says_so_on_top_and_how_to_go_on(tmp_path):
    about = {"data": {"kind": "table"}}
    run = made_run(tmp_path / "a b", epochs=12, epochs_wanted=100, about=about)
    page = told(run)
    first = page.one("header").one("ul", class_="notices").text
    assert first.startswith("Not finished: 12 of 100 epochs.")
    assert "To continue: apportion train --resume 'a b'" in first
    assert "was selected" not in page.text
    assert "apportion train --resume 'a b'" in section(page, "configuration").text


def test_without_validation_nothing_is_selected(tmp_path):
    run = made_run(tmp_path / "a", {"train": made_evaluation(5, 3)}, validated=False)
    page = told(run)
    assert "was selected" not in page.text
    assert "Proportion error" not in [title.text for title in section(page, "curves").all("h3")]


def test_without_truth_nothing_is_said_of_accuracy(tmp_path):
    evaluations = {
        "train": made_evaluation(5, 3, truth=False),
        "valid": made_evaluation(4, 3, truth=False),
    }
    run = made_run(tmp_path / "a", evaluations, method="proportion-loss")
    page = told(run)
    assert "there is no accuracy" in page.one("header").text
    assert "Accuracy on single instances" not in page.one("header").text
    assert not list(page.all("table", class_="confusion"))
    assert "truth" not in section(page, "unsure").one("table").rows()[0]
    titles = [figure.one("h3").text for figure in section(page, "curves").all("figure")]
    assert "Regret" not in titles
    assert "Labels changed" not in titles


@pytest.mark.parametrize(("n_bags", "n_classes"), [(1, 2), (30, 20), (1, 21), (30, 100)])
def test_any_number_of_bags_and_classes(tmp_path, n_bags, n_classes):
    evaluation = made_evaluation(n_bags, n_classes)
    run = made_run(tmp_path / "a", {"train": evaluation}, validated=False, epochs=1)
    page = told(run)
    shown = section(page, "instances")
    assert len(list(shown.all("table"))) == (n_classes <= 20)
    assert len(list(shown.all("figure"))) == 1 + (n_classes > 20)
    keys = list(section(page, "bags").one("figure").all("ul", class_="legend"))
    assert len(keys) == (n_classes <= 8)
    assert f"{n_bags * n_classes:,} points" in section(page, "bags").text


def test_names_are_texts_and_nothing_else(tmp_path):
    evaluations = {
        "train": made_evaluation(1, 3, ids=EVIL[:1]),
        "valid": made_evaluation(3, 3, ids=EVIL),
    }
    folder = tmp_path / "<b>run & 'co'"
    runs = [made_run(folder, evaluations, classes=EVIL), made_run(tmp_path / "b", evaluations)]
    for chosen in (runs[:1], runs):
        page = told(*chosen)
        assert not list(page.all("script"))
        assert not list(page.all("b"))
        assert EVIL[0] in section(page, "bags").text
        assert EVIL[1] in section(page, "bags").text
        titles = {e.attributes["title"] for e in page.all() if "title" in e.attributes}
        assert set(EVIL) <= titles  # long names are shortened, but can be had
        assert "<b>run & 'co'" in page.one("h1").text


@pytest.fixture(scope="module")
def pages(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    images = np.random.default_rng(0).integers(256, size=(24, 3, 8, 8), dtype=np.uint8)
    valid = made_evaluation(40, 9, columns=["age", "job"])
    run = made_run(folder / "b", {"train": made_evaluation(40, 9), "valid": valid})
    shown = {"valid": made_bags(valid, (images,))}
    chosen = (([made[0]], None), ([made[0], run], [None, shown]), ([run], shown))
    return [
        write_report(runs, folder / f"{n}.html", instances=own)
        for n, (runs, own) in enumerate(chosen)
    ]


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
