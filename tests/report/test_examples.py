"""The least certain instances, as pictures, traces or rows of a table."""

import base64
import io
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from apportion.bags.columns import Columns
from apportion.data.encoding import encode, learn_columns
from apportion.report.build import write_report
from apportion.report.instances import Instances
from tests.report.made_runs import made_bags, made_evaluation, made_run
from tests.report.reading_pages import read_page, section


def page_of(folder, x, names=None, **options):
    evaluation = made_evaluation(6, 3, k=len(x[0]))
    run = made_run(folder, {"valid": evaluation}, **options)
    found = Instances({"valid": made_bags(evaluation, x)}, names)
    return section(read_page(write_report([run], instances=found)), "unsure")


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
    assert [row[8] for row in rows] == ["1.500", "1.625", "1.750", "−0.500"]  # as many digits each


def test_wide_tables_are_cut_and_say_so(tmp_path):
    wide = page_of(tmp_path / "a", (np.zeros((3, 64), np.float32),))
    assert len(wide.one("table").rows()[0]) == 5 + 12
    assert "first 12 of 64 columns" in wide.text


@pytest.mark.parametrize("codes", [np.full((3, 1), 9), np.zeros((3, 2), int), np.full((3, 1), -1)])
def test_columns_that_do_not_fit_are_not_used(tmp_path, codes):
    columns = Columns(("age", "job"), {"age": 40.0}, (), (), {"job": ("cook",)}, {})
    x = (np.ones((3, 1), np.float32), codes)
    shown = page_of(tmp_path / "a", x, model={"columns": columns.to_dict()})
    assert shown.one("table").rows()[0][5:] == ["x1"]
    fitting = (np.ones((3, 1), np.float32), np.ones((3, 1), int))
    shown = page_of(tmp_path / "b", fitting, model={"columns": columns.to_dict()})
    assert shown.one("table").rows()[1][5:] == ["1", "cook"]


def test_images_and_signals_are_called_by_their_names(tmp_path):
    names = [f"slides/{n}.png" for n in range(1000)]
    for kind, x in (("images", np.zeros((4, 1, 8, 8))), ("signals", np.zeros((4, 2, 9)))):
        shown = page_of(tmp_path / kind, (x,), names)
        assert [li.all("p", class_="bag") for li in shown.all("li")]
        told = [p.text for p in shown.all("p", class_="bag") if p.text.startswith("bag")]
        assert all(
            f"slides/{row}.png" in own for row, own in zip(range(100, 104), told, strict=True)
        )
        assert not any(", row " in own for own in told)


def test_without_instances_rows_are_numbers_and_nothing_more(tmp_path):
    evaluation = made_evaluation(6, 3)
    shown = section(read_page(write_report([made_run(tmp_path / "a", {"valid": evaluation})])),
                    "unsure")  # fmt: skip
    assert not list(shown.all("img"))
    header, *rows = shown.one("table").rows()
    assert header == ["row", "bag", "likeliest", "second", "truth"]
    assert [row[0] for row in rows] == [str(row) for row in evaluation.unsure.rows]
    assert "not part of this page" in shown.text


@pytest.mark.parametrize("kind", ["signals", "images"])
def test_signals_are_no_rows_of_their_file(tmp_path, kind):
    run = made_run(tmp_path / "a", {"valid": made_evaluation(6, 3)}, about={"data": {"kind": kind}})
    shown = section(read_page(write_report([run])), "unsure")
    of_signals = "Signals are counted from 0, in the order in which they begin." in shown.text
    assert of_signals == (kind == "signals") == ("Rows are counted" not in shown.text)
    assert shown.one("table").rows()[0][0] == ("signal" if of_signals else "row")


def test_a_truth_that_is_not_known_is_a_dash(tmp_path):
    evaluation = made_evaluation(6, 3)
    assert evaluation.unsure.truth is not None
    truth = evaluation.unsure.truth.copy()
    truth[1] = -1
    changed = replace(evaluation, unsure=replace(evaluation.unsure, truth=truth))
    page = read_page(write_report([made_run(tmp_path / "a", {"valid": changed})]))
    _, *rows = section(page, "unsure").one("table").rows()
    assert [row[4] == "–" for row in rows[:3]] == [False, True, False]
