"""The terminal: how much of the log is shown, and what the first and the second Ctrl-C do."""

import io
import logging
import signal
import sys

import pytest

from apportion.bags.notes import notes
from apportion.cli.terminal import interruptible, log_kept, log_shown
from apportion.errors import Option

LOG = logging.getLogger("apportion")


class Screen(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, *, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.mark.parametrize(
    ("terminal", "shown"), [(False, "epoch 1\ncareful\n"), (True, "careful\n")]
)
def test_the_log_is_shown_where_no_bar_shows_the_same(monkeypatch, terminal, shown):
    screen = Screen(terminal=terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    with log_shown():
        LOG.info("epoch 1")
        LOG.warning("careful")
    LOG.warning("too late")
    assert screen.getvalue() == shown


def test_the_logger_is_left_as_it_was_found():
    before = LOG.level, list(LOG.handlers)

    def fail():
        with log_shown():
            assert (LOG.level, LOG.handlers) != before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (LOG.level, LOG.handlers) == before


def test_the_first_ctrl_c_ends_the_epoch_and_the_second_ends_it_at_once(capsys):
    with interruptible() as interruption:
        interruption.after_epoch()  # nothing was asked for yet
        signal.raise_signal(signal.SIGINT)
        assert "after this epoch or net" in capsys.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            interruption.after_epoch()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_of_several_processes_one_says_that_it_stops(capsys):
    with interruptible(shown=False) as interruption:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interruption.after_epoch()
    assert capsys.readouterr().err == ""


def test_what_is_saved_at_the_end_is_not_cut_short(capsys):
    with interruptible() as interruption:
        interruption.over = True
        signal.raise_signal(signal.SIGINT)
    assert not interruption.asked
    assert capsys.readouterr().err == ""


def test_ctrl_c_means_afterwards_what_it_meant_before():
    before = signal.getsignal(signal.SIGINT)

    def fail():
        with interruptible() as interruption:
            assert signal.getsignal(signal.SIGINT) == interruption.ask
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert signal.getsignal(signal.SIGINT) is before


def test_options_in_the_log_are_flags_here_and_stay_options_elsewhere(monkeypatch, caplog):
    screen = Screen(terminal=True)
    monkeypatch.setattr(sys, "stderr", screen)
    keep, columns = Option("keep", "['a b']", "a b"), Option("columns", "[…]", "NAME")
    with log_shown(), log_kept() as kept:
        LOG.warning("Pass %s or %s; %d %%.", keep, columns, 5)
    assert screen.getvalue() == "Pass --keep 'a b' or --exclude NAME; 5 %.\n"
    assert kept == ([screen.getvalue().rstrip()], [])
    assert caplog.messages == ["Pass keep=['a b'] or columns=[…]; 5 %."]


@pytest.mark.parametrize("terminal", [True, False])
def test_notes_on_how_files_were_read_are_always_shown(monkeypatch, terminal):
    screen = Screen(terminal=terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    with log_shown(), log_kept() as kept:
        notes.info("encoded in cp1252")
        notes.warning("read as percentages")  # which is no cause for concern either
        LOG.info("reading")
    said = ["encoded in cp1252", "read as percentages"]
    assert screen.getvalue().splitlines() == [*said, *([] if terminal else ["reading"])]
    assert kept == ([], said)
    with log_shown(notes_alone=True):
        notes.info("again")
        LOG.info("reading")
    assert screen.getvalue().endswith("again\n")
    notes.info("not shown")
    assert "not shown" not in screen.getvalue()
