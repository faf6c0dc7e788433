"""Charts and examples: what is drawn lies where the numbers say."""

import base64
import io
import itertools
import json
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import apportion.report
from apportion.data.encoding import encode, learn_columns
from apportion.report.bag_charts import proportions_chart
from apportion.report.build import write_report
from apportion.report.regret import bound_shape, log_labelings
from apportion.runs.evaluation import Evaluation
from tests.report.made_runs import made_evaluation, made_run
from tests.report.reading_pages import read_page, section

STYLE = (Path(apportion.report.__file__).parent / "style.css").read_text()


def points(svg: str) -> np.ndarray:
    paths = re.findall(r'd="((?:M[\d.-]+ [\d.-]+h0)+)"', svg)
    found = [pair for path in paths for pair in re.findall(r"M([\d.-]+) ([\d.-]+)h0", path)]
    return np.array(found, dtype=float)


def test_bags_that_are_met_lie_on_the_diagonal():
    evaluation = made_evaluation(40, 3)
    same = replace(evaluation, predicted=evaluation.given)
    drawn = points(str(proportions_chart("a", "train", same, ["x", "y", "z"]).svg))
    sums = drawn.sum(axis=1)  # down the page is less: on the diagonal x + y is constant
    assert len(drawn) > 100
    assert np.ptp(sums) <= 0.21
    off = points(str(proportions_chart("a", "train", evaluation, ["x", "y", "z"]).svg))
    assert np.ptp(off.sum(axis=1)) > 5


def test_every_bag_and_class_is_a_point():
    evaluation = made_evaluation(50, 4)
    drawn = points(str(proportions_chart("a", "train", evaluation, list("abcd")).svg))
    order = np.argsort(evaluation.given.ravel())
    assert len(drawn) == 200
    # Given proportions go to the right, predicted ones up, by the same scale.
    across = np.sort(drawn[:, 0])
    assert np.corrcoef(across, evaluation.given.ravel()[order])[0, 1] > 0.99999
    up = np.sort(-drawn[:, 1])
    assert np.corrcoef(up, np.sort(evaluation.predicted.ravel()))[0, 1] > 0.99999


def test_bags_without_finite_predictions_are_left_out_and_counted():
    evaluation = made_evaluation(10, 3)
    evaluation.predicted[4, 1] = np.nan
    chart = proportions_chart("a", "valid", evaluation, ["x", "y", "z"])
    assert "Left out: 1 bag" in chart.caption
    assert "nan" not in str(chart.svg)


def bags_of(given, sizes) -> Evaluation:
    unsure = made_evaluation(1, 2).unsure
    return Evaluation([*range(len(sizes))], np.array(sizes), given, given, None, None, unsure)


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


# ----------------------------------------------------------------------------------------- examples


def page_of(folder, x, **options):
    run = made_run(folder, {"valid": made_evaluation(6, 3, x=x)}, **options)
    return section(read_page(write_report([run])), "unsure")


def pixels(image) -> np.ndarray:
    data = image.attributes["src"].removeprefix("data:image/png;base64,")
    with Image.open(io.BytesIO(base64.b64decode(data))) as opened:
        return np.asarray(opened.convert("RGB"))


def test_images_are_shown_pixel_by_pixel(tmp_path):
    rng = np.random.default_rng(0)
    stored = rng.integers(256, size=(5, 3, 8, 6), dtype=np.uint8)
    shown = list(page_of(tmp_path / "rgb", (stored,)).all("img"))
    assert len(shown) == 5
    for image, array in zip(shown, stored, strict=True):
        assert np.array_equal(pixels(image), np.moveaxis(array, 0, 2))
    gray = rng.random((5, 1, 8, 8)).astype(np.float32)
    for image, array in zip(page_of(tmp_path / "gray", (gray,)).all("img"), gray, strict=True):
        for channel in range(3):
            assert np.abs(pixels(image)[..., channel] - 255 * array[0]).max() <= 0.51


def test_numbers_beyond_0_and_1_are_stretched_and_large_images_made_smaller(tmp_path):
    wide = np.linspace(-3, 5, 4 * 300 * 200).reshape(4, 1, 300, 200)
    shown = [pixels(image) for image in page_of(tmp_path / "a", (wide,)).all("img")]
    assert max(shown[0].shape) <= 96
    assert min(image.min() for image in shown) <= 1
    assert max(image.max() for image in shown) >= 254


def test_traces_end_where_their_signals_do(tmp_path):
    frames = np.zeros((4, 2, 50), np.float32)
    lengths = np.array([50, 20, 1, 10])
    for k, n in enumerate(lengths):
        frames[k, :, :n] = np.arange(n)
        frames[k, :, n:] = 1000.0
    shown = page_of(tmp_path / "a", (frames, lengths))
    for trace, n in zip(shown.all("svg", class_="trace"), lengths, strict=True):
        lines = list(trace.all("polyline"))
        assert len(lines) == 2
        places = [tuple(map(float, p.split(","))) for p in lines[0].attributes["points"].split()]
        assert len(places) == n
        if n > 1:  # up in equal steps from corner to corner: no padding among them
            assert places[0] == (2.0, 62.0)
            assert places[-1] == (158.0, 2.0)


def test_rows_of_a_table_come_back_as_they_were(tmp_path):
    frame = pd.DataFrame(
        {
            "age": [38.0, None, 51.0, 27.0],
            "job": ["cook", "nurse", None, "<i>cook</i>"],
            "seen": [1.7e9 + 1, 1.7e9 + 2, 1.7e9 + 3, 1.7e9 + 4],
            "height": [1.5, 1.625, 1.75, -0.5],
        }
    )
    columns = learn_columns(frame)
    assert columns.shifted == ("seen",)
    stored = json.loads(json.dumps(columns.to_dict()))
    encoded = encode(columns, frame)
    assert isinstance(encoded, tuple)
    header, *rows = page_of(tmp_path / "a", encoded, model={"columns": stored}).one("table").rows()
    assert header[5:] == ["age", "job", "seen", "height"]
    assert [row[5] for row in rows] == ["38", "missing", "51", "27"]
    assert [row[6] for row in rows] == ["cook", "nurse", "missing", "<i>cook</i>"]
    seen = [float(row[7].replace(",", "")) for row in rows]
    assert seen == pytest.approx(frame["seen"], abs=0.2)
    assert [row[8] for row in rows] == ["1.5000", "1.6250", "1.7500", "−0.5000"]


def test_wide_tables_are_cut_and_say_so(tmp_path):
    wide = page_of(tmp_path / "a", (np.zeros((3, 64), np.float32),))
    assert len(wide.one("table").rows()[0]) == 5 + 12
    assert "first 12 of 64 columns" in wide.text


# -------------------------------------------------------------------------------- colours and size


def luminance(colour: tuple[float, ...]) -> float:
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def themes() -> list[dict[str, tuple[float, ...]]]:
    found = []
    for block in re.findall(r":root \{(.*?)\}", STYLE, flags=re.DOTALL):
        colours = {
            name: tuple(int(hexed[i : i + 2], 16) / 255 for i in (0, 2, 4))
            for name, hexed in re.findall(r"--([\w-]+): #([0-9a-f]{6})", block)
        }
        heat = re.search(r"--heat: (\d+) (\d+) (\d+)", block)
        assert heat is not None
        found.append({**colours, "heat": tuple(int(n) / 255 for n in heat.groups())})
    return found


def test_all_texts_and_lines_stand_out_in_both_themes():
    light, dark, printed = themes()
    assert light == printed
    assert luminance(light["paper"]) > 0.9 > 0.1 > luminance(dark["paper"])
    for theme in (light, dark):
        for ink in ("ink", "muted", "accent"):
            assert contrast(theme[ink], theme["paper"]) >= 4.5
            assert contrast(theme[ink], theme["card"]) >= 4.5
        assert contrast(theme["ink"], theme["note-paper"]) >= 4.5
        for number in range(1, 9):
            assert contrast(theme[f"s{number}"], theme["paper"]) >= 3
        strongest = tuple(
            0.55 * h + 0.45 * p for h, p in zip(theme["heat"], theme["paper"], strict=True)
        )
        assert contrast(theme["ink"], strongest) >= 4.5


def test_a_long_run_of_many_bags_stays_small_and_quick(tmp_path):
    evaluations = {"train": made_evaluation(1600, 10), "valid": made_evaluation(400, 10, seed=1)}
    run = made_run(tmp_path / "a", evaluations, epochs=400)
    began = time.perf_counter()
    page = write_report([run])
    assert time.perf_counter() - began < 15  # a second or two, on a machine that has nothing else
    assert page.stat().st_size < 1_500_000
    assert "16,000 points of 1,600 bags" in page.read_text()
