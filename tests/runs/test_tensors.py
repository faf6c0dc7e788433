"""Named tensors of a file: every difference is found and named, of numpy's and of torch's."""

from pathlib import Path

import numpy as np
import pytest
import torch

from apportion.errors import RunError
from apportion.runs.tensors import check_tensors, is_finite

PATH = Path("a.safetensors")
LIKE = {"bias": np.zeros(2, np.float32), "weight": np.zeros((2, 3), np.float32)}


def refused(found, like=LIKE, **options):
    with pytest.raises(RunError) as refused:
        check_tensors(PATH, found, like, problem="is of another net", remedy="Pass it.", **options)
    return str(refused.value)


@pytest.mark.parametrize("of", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bias": np.zeros(3, np.float32)}, "bias is float32 of shape (3,) there and float32 of"),
        ({"bias": np.zeros(2, np.int64)}, "bias is int64 of shape (2,) there"),
        ({"bias": np.zeros(2, np.complex64)}, "bias is complex64 of shape (2,) there"),
        ({"more": np.zeros(2)}, "more is float64 of shape (2,) there and missing here"),
    ],
)
def test_a_difference_is_named_with_both_sides(of, change, words):
    found = {name: of(value) for name, value in {**LIKE, **change}.items()}
    like = {name: torch.from_numpy(value).to("meta") for name, value in LIKE.items()}
    assert words in refused(found, like)


def test_all_that_is_missing_is_counted():
    found = refused({})
    assert "bias is missing there and float32 of shape (2,) here (and 1 more like it)" in found


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_only_where_it_must_be_a_value_must_be_finite(value):
    found = {**LIKE, "bias": np.array([0, value], np.float32)}
    check_tensors(PATH, found, LIKE, problem="", remedy="", finite=["weight"])
    assert "a.safetensors is damaged: bias has values" in refused(found, finite=LIKE)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float64, torch.complex64]
)
def test_numbers_of_any_type_are_looked_at(dtype):
    values = torch.ones(3).to(dtype)
    assert is_finite(values)
    assert is_finite(values[:0])
    if dtype.is_floating_point or dtype.is_complex:
        values[1] = torch.nan
        assert not is_finite(values)
