import json
import time

import pytest

from benchmarks import threads


@pytest.mark.parametrize(
    ("cores", "tried"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (16, [1, 2, 4, 8, 16])]
)
def test_numbers_are_powers_of_two_and_the_number_of_cores(cores, tried):
    assert threads.numbers(cores) == [None, *tried]


@pytest.fixture
def times(monkeypatch):
    """The seconds that trainings claim to have taken, and a table of three cores."""
    claimed = {None: 2.0, 1: 1.0, 2: 4.0, 3: 20.0}

    class Training:
        def __init__(self, *_):
            pass

        def seconds(self, number, epochs=3):
            return claimed[number]

    monkeypatch.setattr(threads, "Training", Training)
    monkeypatch.setattr(threads, "cores", lambda: 3)
    return claimed


def test_settings_are_compared_with_the_best_number(times):
    later = time.monotonic() + 1000
    lines = threads.measure("1,800 × 64", "alone", 3, later)
    assert {line["threads"]: line["to_best"] for line in lines} == {
        "default": 2.0,
        1: 1.0,
        2: 4.0,
        3: 20.0,
    }
    assert {line["threads"]: len(line["all"]) for line in lines}[3] == 1  # too long to repeat
    assert {line["threads"]: len(line["all"]) for line in lines}[1] == 3


def test_what_there_was_no_time_for_is_none_and_json_all_the_same(times):
    lines = threads.measure("1,800 × 64", "alone", 3, time.monotonic() - 1)
    assert all(line["seconds"] is None and line["to_best"] is None for line in lines)
    json.dumps(lines)


def test_training_takes_any_number_of_threads():
    training = threads.Training(100, 3, 2, 32)
    for number in (None, 1):
        assert training.seconds(number, epochs=1) > 0


def test_the_company_is_gone_afterwards(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    with threads.company("alone") as nobody:
        assert nobody == []
    with threads.company("beside another job") as others:
        assert [other.poll() for other in others] == [None, None]
    assert all(other.poll() is not None for other in others)
