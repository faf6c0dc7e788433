"""Choices and their reasons, as text."""

from dataclasses import dataclass

import pytest

from apportion.plan.choices import Choice, Choices


@dataclass(frozen=True)
class Trip(Choices):
    by: Choice
    kilometres: Choice
    stop: Choice | None = None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12_345, "12,345 (measured)"),
        (True, "True (measured)"),
        (0.5, "0.5 (measured)"),
        (None, "measured"),
    ],
)
def test_a_choice_is_its_value_and_why(value, text):
    assert str(Choice(value, "measured")) == text


def test_choices_are_lines_of_one_width_and_leave_out_what_was_not_chosen():
    trip = Trip(Choice("train", "given"), Choice(1200, "on the map"))
    assert trip.reasons() == {"by": "train (given)", "kilometres": "1,200 (on the map)"}
    assert str(trip).splitlines() == ["by          train (given)", "kilometres  1,200 (on the map)"]
    assert "stop" in Trip(trip.by, trip.kilometres, Choice("none", "given")).reasons()
