"""The history: the record of every epoch, and one number per epoch of each kind."""

import math
from dataclasses import replace

import pytest

from apportion.training.fit import fit
from apportion.training.history import History
from tests.training.small_training import CONFIG, TRAIN, network


def test_a_number_that_no_epoch_has_is_refused_by_those_there_are():
    history = fit(network(), TRAIN, method="proportion-loss", config=replace(CONFIG, epochs=1))
    with pytest.raises(KeyError, match="'changed' is not in the records, which have epoch, loss"):
        history["changed"]


def test_one_number_per_epoch_and_none_where_it_was_not_measured():
    history = History([{"epoch": 1}, {"epoch": 2, "changed": 0.5}, {"epoch": 3, "changed": 0.0}])
    assert history["changed"] == [None, 0.5, 0.0]
    assert history["epoch"] == [1, 2, 3]
    assert history.n_epochs == 3


def test_an_empty_history_says_so():
    history = History()
    assert (history.n_epochs, history.best_epoch, history.best_error) == (0, None, math.inf)
    assert repr(history) == "History(0 epochs, no selection)"
    with pytest.raises(KeyError, match="which have nothing"):
        history["loss"]


def test_histories_share_no_records():
    one, other = History(), History()
    one.records.append({"epoch": 1})
    assert other.records == []
    assert repr(History([{"epoch": 1}], best_epoch=1)) == "History(1 epoch, epoch 1 selected)"


def test_the_selected_record_is_of_the_best_epoch_or_else_the_last():
    records = [{"epoch": 1, "loss": 3.0}, {"epoch": 2, "loss": 1.0}, {"epoch": 3, "loss": 2.0}]
    for best, wanted in ((1, 3.0), (2, 1.0), (3, 2.0), (None, 2.0)):
        assert History(records, best_epoch=best).selected["loss"] == wanted
