"""Evaluations as a file: what goes in comes out, and damage is told."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from apportion.errors import RunError
from apportion.runs.evaluation import (
    BINS,
    Effects,
    Evaluation,
    Unsure,
    plain_names,
    read_evaluations,
    save_evaluations,
)
from apportion.runs.header import metadata, seal
from apportion.runs.run import Run

RNG = np.random.default_rng(0)
WITH_TRUTH = Evaluation(
    ids=["a", "b"],
    sizes=np.array([3, 4]),
    given=RNG.dirichlet([1, 1, 1], size=2),
    predicted=RNG.dirichlet([1, 1, 1], size=2),
    confusion=RNG.integers(9, size=(3, 3)),
    calibration=RNG.random((BINS, 3)),
    known=np.array([3, 2]),
    right=np.array([1, 2]),
    unsure=Unsure(
        rows=np.array([5, 2]),
        bags=np.array([1, 0]),
        confidence=RNG.dirichlet([1, 1, 1], size=2),
        truth=np.array([2, -1]),
    ),
    effects=Effects(["age", "größe"], np.array([[0.1, 0.05, 0.2], [0, -0.1, 0]]), np.array([2, 7])),
)
WITHOUT = Evaluation(
    [7, "é"], WITH_TRUTH.sizes, WITH_TRUTH.given, WITH_TRUTH.predicted.T.copy().T,
    None, None, None, None,
    Unsure(WITH_TRUTH.unsure.rows, WITH_TRUTH.unsure.bags, WITH_TRUTH.unsure.confidence, None),
)  # fmt: skip


@pytest.fixture
def run(tmp_path):
    run = Run(tmp_path)
    save_evaluations(run, ["x", np.int64(3), None], {"train": WITH_TRUTH, "valid": WITHOUT})
    return run


def test_a_file_gives_back_what_went_in(run):
    classes, found = read_evaluations(run)
    assert classes == ["x", 3, "None"]
    assert list(found) == ["train", "valid"]
    for name, saved in (("train", WITH_TRUTH), ("valid", WITHOUT)):
        assert found[name].ids == saved.ids
        for field in ("sizes", "given", "predicted", "confusion", "calibration", "known", "right"):
            np.testing.assert_array_equal(getattr(found[name], field), getattr(saved, field))
        for field in ("rows", "bags", "confidence", "truth"):
            ours, theirs = getattr(found[name].unsure, field), getattr(saved.unsure, field)
            np.testing.assert_array_equal(ours, theirs)
    effects, wanted = found["train"].effects, WITH_TRUTH.effects
    assert effects is not None
    assert wanted is not None
    assert effects.names == wanted.names
    np.testing.assert_array_equal(effects.increase, wanted.increase)
    np.testing.assert_array_equal(effects.measured, wanted.measured)
    assert found["valid"].effects is None


def test_no_instance_is_in_the_file(run):
    """Every array has bags, classes, bins, columns or the numbers of rows as its axes."""
    kept = {"sizes", "given", "predicted", "confusion", "calibration", "known", "right", "ids",
            "unsure.rows", "unsure.bags", "unsure.confidence", "unsure.truth",
            "effects.names", "effects.increase", "effects.measured"}  # fmt: skip
    assert {name.removeprefix("train.") for name in load_file(run.evaluation)
            if name.startswith("train.")} == kept  # fmt: skip


def test_a_run_that_has_not_ended_has_none(tmp_path):
    assert read_evaluations(Run(tmp_path)) == ([], {})


def test_names_are_kept_as_json_has_them():
    names = plain_names([np.str_("a"), np.float64(0.5), True, (1, 2), np.datetime64("2024-01-02")])
    assert names == ["a", 0.5, True, "(1, 2)", "2024-01-02"]
    assert json.loads(json.dumps(names)) == names


@pytest.mark.parametrize(
    ("name", "array", "problem"),
    [
        ("given", None, "KeyError 'given'"),
        ("ids", None, "KeyError 'ids'"),
        ("unsure.rows", None, "KeyError 'unsure.rows'"),
        ("unsure.x0", np.zeros((2, 4)), "train.unsure.x0 is not known"),
        ("right", None, "train has the truth in part"),
        ("right", np.array([3, 3]), "more instances than there are"),
        ("known", np.array([9, 2]), "more instances than there are"),
        ("effects.names", None, "train has effects in part"),
        ("effects.names", np.frombuffer(b'["a", "a"]', np.uint8), "train.effects.names are"),
        ("effects.names", np.frombuffer(b'["a", 3]', np.uint8), "train.effects.names are"),
        ("effects.names", np.frombuffer(b'["a"]', np.uint8), "train.effects.increase is float64"),
        ("effects.increase", np.full((2, 3), np.nan), "no intervals of shares"),
        ("effects.increase", np.full((2, 3), 7.0), "no intervals of shares"),
        ("effects.increase", np.array([[0.1, 0.2, 0.3]] * 2), "no intervals of shares"),
        ("effects.measured", np.array([0, 7]), "below 1 or too large"),
        ("ids", np.frombuffer(b"[1, ", np.uint8), "JSONDecodeError"),
        ("ids", np.frombuffer(b"3", np.uint8), "TypeError"),
        ("sizes", np.ones(3, np.int64), "train.sizes is int64 of shape (3,)"),
        ("sizes", np.ones(2), "train.sizes is float64"),
        ("predicted", np.ones((2, 4)), "train.predicted is float64 of shape (2, 4)"),
        ("confusion", np.ones((2, 2), np.int64), "train.confusion"),
        ("calibration", np.ones((4, 3)), "train.calibration"),
        ("unsure.bags", np.array([0, 2]), "train.unsure.bags is beyond its 2 names"),
        ("unsure.truth", np.array([0, -2]), "train.unsure.truth is beyond its 3 names"),
    ],
)
def test_damaged_content_is_named(run, name, array, problem):
    arrays = load_file(run.evaluation)
    if array is None:
        del arrays[f"train.{name}"]
    else:
        arrays[f"train.{name}"] = array
    content = {"classes": ["a", "b", "c"], "sets": ["train", "valid"]}
    save_file(arrays, run.evaluation, metadata("evaluation", content))
    seal(run.evaluation)
    with pytest.raises(RunError, match=re.escape(problem)) as refused:
        read_evaluations(run)
    assert str(refused.value).startswith(f"{run.evaluation} is damaged: ")


@pytest.mark.parametrize("content", [{}, {"classes": 3, "sets": []}, {"classes": [], "sets": 3}])
def test_a_header_without_classes_or_sets_is_refused(run, content):
    save_file(load_file(run.evaluation), run.evaluation, metadata("evaluation", content))
    seal(run.evaluation)
    with pytest.raises(RunError, match=r"evaluation\.safetensors is damaged"):
        read_evaluations(run)


def test_a_disk_that_is_full_is_told(run, monkeypatch):
    before = run.evaluation.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(RunError, match=r"evaluation\.safetensors cannot be written: No space"):
        save_evaluations(run, "abc", {"train": WITH_TRUTH})
    assert run.evaluation.read_bytes() == before
