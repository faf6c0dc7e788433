"""What a person sees: a line an epoch that reads well, and a bar where one is wanted."""

import io
import re

import pytest
import torch

from apportion.training.progress import Stopwatch, progress_bars, readable

FULL = {
    "epoch": 9,
    "loss": 0.123456,
    "changed": 0.25,
    "regret": 0.01234,
    "label_accuracy": 0.5,
    "valid_error": 0.0625,
    "valid_accuracy": 0.75,
    "test_error": 0.2,
    "test_accuracy": 1.0,
    "seconds": {"train": 1.25, "confidence": 0.5, "labels": 0.125, "evaluation": 0.125},
}


class Screen(io.StringIO):
    """A terminal that remembers what was written to it."""

    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    """Variables by which a person makes rich take anything for a terminal, or nothing."""
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")


# ------------------------------------------------------------------------------------- the line


def test_line_holds_every_number_with_its_name_and_unit():
    line = readable(FULL, 100)
    assert "\n" not in line
    assert line.split(" · ") == [
        "epoch   9/100",
        "loss 0.1235",
        "validation error 0.0625",
        "labels changed 25.0%",
        "regret 0.0123",
        "label accuracy 50.0%",
        "validation accuracy 75.0%",
        "test accuracy 100.0%",
        "2.00 s",
    ]


def test_line_leaves_out_what_was_not_measured():
    line = readable({"epoch": 1, "loss": 2.0, "seconds": {"train": 0.5}}, 3)
    assert line == "epoch 1/3 · loss 2.0000 · 0.50 s"


def test_lines_of_one_run_begin_alike():
    lines = [readable({**FULL, "epoch": epoch}, 400) for epoch in (1, 20, 400)]
    assert len({line.index(" · ") for line in lines}) == 1


# --------------------------------------------------------------------------------------- the bar


def drawn(screen, wanted, monkeypatch):
    monkeypatch.setattr("sys.stderr", screen)
    with progress_bars([3], wanted) as (show,):
        for epoch in (1, 2, 3):
            show(epoch, f"loss {epoch / 8}")
    return screen.getvalue()


def test_no_bar_where_errors_do_not_go_to_a_terminal(monkeypatch):
    assert drawn(io.StringIO(), None, monkeypatch) == ""


def test_no_bar_where_none_is_wanted(monkeypatch):
    assert drawn(Screen(), False, monkeypatch) == ""


@pytest.mark.parametrize("wanted", [None, True])
def test_bar_shows_the_epoch_and_the_line_on_a_terminal(wanted, monkeypatch):
    text = drawn(Screen(), wanted, monkeypatch)
    assert re.search(r"3/3\b.*loss 0\.375", text)


def test_bar_that_is_wanted_shows_without_a_terminal(monkeypatch):
    assert re.search(r"3/3\b.*loss 0\.375", drawn(io.StringIO(), True, monkeypatch))


def test_every_training_has_a_bar_of_its_own(monkeypatch):
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    with progress_bars([3, 50, 7], True) as shows:
        assert len(shows) == 3
        shows[1](20, "second")
        shows[2](7, "third")
        shows[0](2, "first")
    lines = screen.getvalue().splitlines()
    for done, text in (("2/3", "first"), ("20/50", "second"), ("7/7", "third")):
        (line,) = [line for line in lines if text in line]
        assert re.search(rf"{done}\b.*{text}", line)


def test_no_trainings_have_no_bars(monkeypatch):
    monkeypatch.setattr("sys.stderr", Screen())
    with progress_bars([], True) as shows:
        assert shows == []


def test_bar_is_gone_after_an_error(monkeypatch):
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    with pytest.raises(ZeroDivisionError), progress_bars([3], None):
        _ = 1 / 0
    assert screen.getvalue().count("\x1b[?25l") == screen.getvalue().count(
        "\x1b[?25h"
    )  # the cursor
    assert drawn(Screen(), True, monkeypatch)  # and the next one can start


# --------------------------------------------------------------------------------- the stopwatch


def test_stopwatch_measures_each_phase_by_itself(monkeypatch):
    ticks = iter([10.0, 10.5, 20.0, 20.125])
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    clock = Stopwatch(torch.device("cpu"))
    with clock("train"):
        pass
    with clock("labels"):
        pass
    assert clock.seconds == {"train": 0.5, "labels": 0.125}
