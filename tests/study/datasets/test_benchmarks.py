"""Benchmarks: arrays as the files have them, and files that are refused."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from apportion.errors import ConfigError, DataError
from apportion.study.datasets import benchmarks
from apportion.study.datasets.benchmarks import Benchmark, digits


def refused(function, *arguments):
    with pytest.raises(DataError) as caught:
        function(*arguments)
    return str(caught.value)


# ------------------------------------------------------------------------------------------ digits


def test_digits_are_those_of_scikit_learn():
    data, (x, labels) = digits(), load_digits(return_X_y=True)
    assert data.x.dtype == data.x_test.dtype == np.float32
    assert data.truth.dtype == data.truth_test.dtype == np.int64
    assert data.x.shape == (1258, 64)
    assert data.x_test.shape == (539, 64)
    assert data.classes == ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
    pairs = [(data.x, data.truth), (data.x_test, data.truth_test)]
    found = sorted(
        (own.tobytes(), label)
        for rows, own_labels in pairs
        for own, label in zip(rows, own_labels, strict=True)
    )
    whole = zip(x.astype(np.float32), labels, strict=True)
    assert found == sorted((row.tobytes(), label) for row, label in whole)


def test_digits_are_cut_at_random_by_the_seed():
    data, again, other = digits(test=0.1, seed=4), digits(test=0.1, seed=4), digits(test=0.1)
    assert len(data.x_test) == 180
    assert np.array_equal(data.x_test, again.x_test)
    assert np.array_equal(data.truth, again.truth)
    assert not np.array_equal(data.x_test, other.x_test)


@pytest.mark.parametrize("test", [0, 1, -0.1, 30, float("nan")])
def test_digits_refuse_a_share_that_leaves_nothing(test):
    with pytest.raises(ConfigError, match=rf"test must be between 0 and 1, .*; got {test!r}\."):
        digits(test=test)


def test_repr_says_what_there_is():
    assert repr(digits()) == (
        "Benchmark(1,258 rows to train on, 539 to test on, 64 float32 each; 10 classes: 0, 1, …, 9)"
    )
    x, labels = np.zeros((2, 3, 4), np.uint8), np.array([0, 1])
    assert repr(Benchmark(x, labels, x[:1], labels[:1], ("no", "yes"))) == (
        "Benchmark(2 rows to train on, 1 to test on, 3 × 4 uint8 each; 2 classes: no, yes)"
    )


# ---------------------------------------------------------------------------------------- imports


def test_import_costs_no_reader_of_files():
    source = Path(benchmarks.__file__).parents[3]
    code = "import apportion.study.datasets.benchmarks, sys; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    loaded = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert {"apportion.study.datasets.benchmarks", "scipy.io", "scipy", "sklearn", "torch"} & {
        *loaded.split()
    } == {"apportion.study.datasets.benchmarks"}
