"""Names of bags and classes: one rule by which they are found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.bags.names import Register, as_written, sorted_names

NUMBERS = {"1": 1, "1.0": 1}  # that texts stand for
NAMES = st.one_of(st.integers(-3, 12), st.sampled_from(["1", "01", "a", "1.0"]), st.just(1.5))


@given(st.lists(NAMES, unique_by=lambda name: (type(name), name)), NAMES)
def test_a_name_is_found_if_it_is_equal_or_written_alike(known, name):
    place = Register(known).place(name)
    equal = [i for i, other in enumerate(known) if other == name]
    alike = [i for i, other in enumerate(known) if str(other) == str(name)]
    number = NUMBERS.get(str(name), name)
    same = [i for i, other in enumerate(known) if NUMBERS.get(str(other), other) == number]
    assert place == next(iter([*equal, *alike[-1:], *same[-1:]]), None)


@given(st.lists(NAMES, unique=True), st.lists(NAMES, unique=True))
def test_several_names_never_share_a_place(known, names):
    places = Register(known).places(names).tolist()
    found = [place for place in places if place >= 0]
    assert len(set(found)) == len(found)
    for name, place in zip(names, places, strict=True):
        if name in known:
            assert known[place] == name
        elif place >= 0:
            assert str(known[place]) == str(name) or float(known[place]) == float(name)
            assert {"01", "a"}.isdisjoint([known[place], name])


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_what_python_writes_is_a_number(number):
    (found,) = as_written([str(number)])
    assert found == number
    assert type(found) is type(number)


@pytest.mark.parametrize(
    "text", ["007", "+7", " 7", "7 ", "1_0", "1e3", "nan", "inf", "", "x", "٧"]
)
def test_anything_else_is_text(text):
    assert as_written([text]) == [text]
    assert as_written(["7", text]) == ["7", text]


def test_numbers_that_would_merge_are_text():
    assert as_written(["7", "8.5", "7"]) == [7, 8.5, 7]
    assert as_written(["7", "7.0"]) == ["7", "7.0"]


def test_names_are_sorted_where_they_can_be():
    assert sorted_names({"b": 1, "a": 2}) == ["a", "b"]
    assert sorted_names([2, "a", 1]) == [2, "a", 1]
