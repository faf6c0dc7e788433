"""Charts of the selected model: what is drawn lies where the numbers say."""

import base64
import io
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from apportion.report.charts import bag_chart, calibration_chart, heat_map, worst
from tests.report.made_runs import made_evaluation


def points(svg: str) -> np.ndarray:
    """The places of all lines without length."""
    ends = re.findall(r"M ([\d.-]+) ([\d.-]+)L ([\d.-]+) ([\d.-]+)", svg)
    return np.array([end[:2] for end in ends if end[:2] == end[2:]], dtype=float)


def test_bags_that_are_met_lie_on_the_diagonal():
    evaluation = made_evaluation(40, 3)
    same = replace(evaluation, predicted=evaluation.given)
    drawn = points(str(bag_chart("a", "train", same, ["x", "y", "z"]).svg))
    sums = drawn.sum(axis=1)  # down the page is less: on the diagonal x + y is constant
    assert len(drawn) > 100
    assert np.ptp(sums) <= 0.21
    off = points(str(bag_chart("a", "train", evaluation, ["x", "y", "z"]).svg))
    assert np.ptp(off.sum(axis=1)) > 5


def test_every_bag_and_class_is_a_point():
    evaluation = made_evaluation(200, 4)
    drawn = points(str(bag_chart("a", "train", evaluation, list("abcd")).svg))
    order = np.argsort(evaluation.given.ravel())
    assert len(drawn) == 800
    # Given proportions go to the right, predicted ones up, by the same scale.
    across = np.sort(drawn[:, 0])
    assert np.corrcoef(across, evaluation.given.ravel()[order])[0, 1] > 0.99999
    up = np.sort(-drawn[:, 1])
    assert np.corrcoef(up, np.sort(evaluation.predicted.ravel()))[0, 1] > 0.99999


def test_bags_without_finite_predictions_are_left_out_and_counted():
    evaluation = made_evaluation(10, 3)
    evaluation.predicted[4, 1] = np.nan
    chart = bag_chart("a", "valid", evaluation, ["x", "y", "z"])
    assert "Left out: 1 bag" in chart.caption
    assert "nan" not in str(chart.svg)


def with_three_off():
    evaluation = made_evaluation(30, 3)
    evaluation.predicted[:] = evaluation.given
    for bag in (4, 9, 20):
        evaluation.predicted[bag] = np.roll(evaluation.given[bag], 1)
    return replace(evaluation, sizes=np.full(30, 2000))


def test_the_bags_that_are_off_are_ringed_where_their_largest_gap_is():
    evaluation = with_three_off()
    svg = str(bag_chart("a", "train", evaluation, ["x", "y", "z"]).svg)
    rings = np.array(re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*ink', svg), dtype=float)
    named = [bag for bag in worst(evaluation, ["x", "y", "z"]) if bag.is_off]
    assert {bag.bag for bag in named} == {"ward-4", "ward-9", "ward-20"}
    assert len(rings) == 3
    drawn = points(svg)
    scale = np.ptp(drawn[:, 0]) / np.ptp(evaluation.given)
    origin = drawn[:, 0].min() - scale * evaluation.given.min()
    expected = sorted(origin + scale * bag.given for bag in named)
    assert sorted(rings[:, 0]) == pytest.approx(expected, abs=0.1)


def test_only_the_farthest_is_ringed_where_none_is_off():
    evaluation = made_evaluation(30, 2, noise=0.02)
    far = worst(evaluation, ["x", "y"])
    assert not far[0].is_off
    chart = bag_chart("a", "train", evaluation, ["x", "y"], 1)
    written = re.findall(r"<text[^>]*>(ward[^<]*)</text>", str(chart.svg))
    assert written == [far[0].bag]
    assert "Ringed: the farthest bag, which is not off, at its share of y" in chart.caption


def test_of_two_classes_always_the_same_is_told():
    evaluation = with_three_off()
    two = replace(evaluation, given=evaluation.given[:, :2], predicted=evaluation.predicted[:, :2])
    for only in (0, 1):
        assert {bag.label for bag in worst(two, ["x", "y"], only=only)} == {"xy"[only]}


@pytest.mark.parametrize("names", [["a", "b", "c"], ["x" * 90, "日本", "$x_1$ <b> & #010203"]])
def test_names_stay_as_they_are_written(names):
    evaluation = made_evaluation(3, 3, ids=names)
    evaluation = replace(
        evaluation,
        predicted=np.roll(evaluation.given, 1, axis=1),
        sizes=np.full(3, 10_000),  # so that all are off, and named
    )
    svg = str(bag_chart("a", "train", evaluation, ["x", "y", "z"]).svg)
    written = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    if len(names[0]) == 1:
        assert {"bag a", "bag b", "bag c"} <= set(written)
    else:
        assert {"日本", "bag 日本"} & set(written)
        assert "$x_1$ &lt;b…#010203" in written
        assert all(len(text) < 60 for text in written)


def test_dense_points_are_drawn_in_layers():
    drawn = [bag_chart("a", "train", made_evaluation(n, 2), ["x", "y"]) for n in (100, 2000)]
    assert [len(re.findall(r"opacity: 0\.\d", str(chart.svg))) for chart in drawn] == [2, 8]


def test_points_of_the_calibration_lie_where_accuracy_and_confidence_say():
    bins = np.zeros((20, 3))
    bins[9], bins[19] = (10, 4.75, 5), (30, 29.25, 15)
    chart = calibration_chart("a", "test", bins)
    # A circle is a path that begins at its lowest point.
    places = re.findall(r'd="M ([\d.]+) ([\d.]+)C [^"]*z" style="fill: var', str(chart.svg))
    (x1, y1), (x2, y2) = np.array(places, dtype=float)
    assert y1 == pytest.approx(y2, abs=2)  # both are right half of the time
    assert x2 - x1 == pytest.approx(0.5 * (330 - 42 - 12) / 1.04, abs=0.5)
    assert "Expected calibration error 0.3625" in chart.caption  # (0.25 + 14.25) / 40
    assert "on average confidence is 35.0% above accuracy" in chart.caption


def test_a_heat_map_is_the_confusion_by_row():
    confusion = np.zeros((25, 25), int)
    confusion[np.arange(25), np.arange(25)] = 9
    confusion[3, 7] = 27
    chart = heat_map("a", "test", confusion, [f"class {c}" for c in range(25)])
    assert "class 3 as class 7 (27)." in chart.caption
    (data,) = re.findall(r'href="data:image/png;base64,([^"]*)"', str(chart.svg))
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        alpha = np.asarray(image.convert("RGBA"))[..., 3] / 255
    alpha = alpha[::-1] if alpha[3, 7] == 0 else alpha  # an SVG may hold it upside down
    assert alpha.shape == (25, 25)
    assert alpha[3, 7] > alpha[3, 3] > 0
    assert alpha[0, 0] == 1
    assert np.count_nonzero(alpha) == 26
