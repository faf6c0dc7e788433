"""Columns of a table: what they come to in numbers, in JSON, and on one line."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.bags.columns import Columns
from apportion.errors import DataError

NAMES = st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=8, unique=True)


@st.composite
def some_columns(draw) -> Columns:
    """Columns of any names, each numeric or categorical."""
    names = draw(NAMES)
    numeric = [name for name in names if draw(st.booleans())]
    words = st.lists(st.text(max_size=3), max_size=4, unique=True).map(tuple)
    categories = {name: draw(words) for name in names if name not in numeric}
    return Columns(
        names=tuple(names),
        means={name: draw(st.floats(-1e9, 1e9)) for name in numeric},
        shifted=tuple(name for name in numeric if draw(st.booleans())),
        gaps=tuple(name for name in numeric if draw(st.booleans())),
        categories=categories,
        left_out={name: draw(st.integers(1, 9)) for name in categories if draw(st.booleans())},
    )


@given(some_columns())
def test_json_keeps_every_field(columns):
    assert Columns.from_dict(json.loads(json.dumps(columns.to_dict()))) == columns


@given(some_columns())
def test_every_column_is_numeric_or_categorical_in_the_order_of_the_table(columns):
    both = iter(columns.numeric), iter(columns.categorical)
    merged = [next(both[name in columns.categories]) for name in columns.names]
    assert merged == list(columns.names)


def test_numbers_and_codes_are_counted_as_a_net_sees_them():
    """One number per numeric column and one per column with gaps; code 0 beside the categories."""
    columns = Columns(
        names=("job", "age", "town", "height"),
        means={"height": 1.7, "age": 40.0},
        shifted=(),
        gaps=("age",),
        categories={"town": (), "job": ("cook", "nurse")},
        left_out={"job": 1_500},
    )
    assert columns.numeric == ("age", "height")
    assert columns.categorical == ("job", "town")
    assert columns.n_numbers == 3
    assert columns.codes == (3, 1)
    assert repr(columns) == (
        "Columns(2 numeric: age (with gaps), height; 2 categorical: job (2 of 1,502), town (0))"
    )


FIELDS: dict[str, Any] = {
    "names": ["age", "job"],
    "means": {"age": 40.0},
    "shifted": [],
    "gaps": [],
    "categories": {"job": ["cook"]},
    "left_out": {},
    "dates": {},
    "percent": [],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"means": {}}, "^of 2 saved columns, 0 are numeric and 1 categorical"),
        ({"names": ["age"]}, "^of 1 saved columns, 1 are numeric and 1 categorical"),
        ({"categories": {"town": []}}, "every column is one of the two"),
        ({"means": {"age": "old"}}, "not saved columns: ValueError"),
        ({"means": [40.0]}, "not saved columns: AttributeError"),
        ({"gaps": None}, "not saved columns: TypeError"),
        ({"dates": {"job": ""}}, "column 'job' of dates"),
        ({"percent": ["job"]}, "column 'job' of percentages is not numeric"),
        ({"dates": {"age": "year first"}}, "column 'age' of dates is 'year first'"),
    ],
)
def test_fields_that_are_no_columns_are_refused(change, message):
    assert Columns.from_dict(FIELDS).names == ("age", "job")
    with pytest.raises(DataError, match=message):
        Columns.from_dict({**FIELDS, **change})


@pytest.mark.parametrize("name", FIELDS)
def test_no_field_may_be_left_out(name):
    with pytest.raises(DataError, match=f"KeyError '{name}'"):
        Columns.from_dict({key: value for key, value in FIELDS.items() if key != name})


def test_columns_without_some_are_those_of_the_other_columns():
    columns = Columns(
        ("a", "b", "c", "d"),
        {"a": 1.0, "b": 2.0},
        ("b",),
        ("a", "b"),
        {"c": ("x",), "d": ("y", "z")},
        {"d": 3},
    )
    assert columns.without(["b", "d"]) == Columns(
        ("a", "c"), {"a": 1.0}, (), ("a",), {"c": ("x",)}, {}
    )
    assert columns.without([]) == columns
