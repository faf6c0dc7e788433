"""Schedules: predictions on the safe side, and groups that end in time."""

import pytest

from apportion.study.reproduce.paper import Cell
from apportion.study.reproduce.schedule import SETTING_UP, next_group, predicted, time_together
from tests.study.reproduce.small import line_of

HERE = "a computer"


def cell(method: str = "fpl", size: int = 4, dataset: str = "cifar10", epochs: int = 400) -> Cell:
    return Cell(dataset, method, size, 0, epochs)


LINES = [
    line_of("fpl", 4, 0, share=5.0, epochs=10),
    line_of("fpl", 4, 1, share=10.0, epochs=10),
    line_of("fpl", 4, 2, share=90.0, epochs=10),
    line_of("fpl", 8, 0, share=30.0, epochs=10),
    line_of("fpl", 64, 0, share=1.0, epochs=10, hardware="another"),
]


@pytest.mark.parametrize(
    ("wanted", "seconds"),
    [
        (cell(epochs=20), 20.0),  # the median of its like, an epoch
        (cell(size=8, epochs=20), 60.0),
        (cell(size=64, epochs=20), 180.0),  # the most of its method, at other sizes
        (cell(dataset="svhn", epochs=20), 180.0),
        (cell("greedy", epochs=10), 6.0),  # a guess
        (cell("llp-vat", epochs=10), 24.0),  # of several passes
    ],
)
def test_a_prediction_is_what_the_like_took_and_else_on_the_safe_side(wanted, seconds):
    assert predicted(wanted, LINES, HERE, "cuda") == pytest.approx(seconds)


@pytest.mark.parametrize("together", [1, 2, 3, 4, 6])
def test_a_prediction_does_not_depend_on_how_many_ran_beside_it(together):
    """What ran alone takes as long when it is run alone again."""
    took = time_together([25.0] * together) - SETTING_UP
    line = line_of("fpl", 4, share=took / together, epochs=400, together=together)
    assert predicted(cell(), [line], HERE, "cuda") == pytest.approx(25.0)


def test_few_cells_take_more_than_their_shares():
    assert time_together([10.0] * 4) == SETTING_UP + 40
    assert time_together([10.0]) == SETTING_UP + 17
    assert [time_together([10.0] * n) for n in (1, 2, 3, 4)] == sorted(
        time_together([10.0] * n) for n in (1, 2, 3, 4)
    )


CELLS = [cell(size=size) for size in (4, 8, 16, 32, 64)]
KNOWN = {("fpl", "cifar10")}


def group(seconds: list[float], remaining: float | None, at_once: int = 4) -> list[int]:
    shares = dict(zip(CELLS, seconds, strict=True))
    return [c.bag_size for c in next_group(CELLS, shares, at_once, remaining, KNOWN)]


def test_a_group_is_the_first_that_end_in_time():
    assert group([100.0] * 5, None) == [4, 8, 16, 32]
    assert group([100.0] * 5, None, at_once=2) == [4, 8]
    assert group([100.0] * 5, SETTING_UP + 400) == [4, 8, 16, 32]
    assert group([100.0] * 5, SETTING_UP + 329) == [4, 8]
    assert group([100.0] * 5, SETTING_UP + 169) == []


def test_what_does_not_fit_is_passed_over():
    assert group([900.0, 100.0, 900.0, 100.0, 100.0], SETTING_UP + 400) == [8, 32, 64]


def test_where_time_is_limited_one_cell_of_what_is_not_known_is_run_alone():
    new = cell("llp-vat")
    shares = dict.fromkeys([*CELLS, new], 10.0)
    assert next_group([new, *CELLS], shares, 4, 1e6, KNOWN) == [new]
    assert next_group([CELLS[0], new, CELLS[1]], shares, 4, 1e6, KNOWN) == [CELLS[0]]
    assert next_group([CELLS[0], CELLS[1]], shares, 4, 1e6, ()) == [CELLS[0]]


def test_where_it_is_not_they_are_run_together():
    new = cell("llp-vat")
    shares = dict.fromkeys([*CELLS, new], 10.0)
    assert next_group([CELLS[0], new, CELLS[1]], shares, 4, None, KNOWN) == [
        CELLS[0],
        new,
        CELLS[1],
    ]
