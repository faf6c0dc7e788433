"""Every error of the library is of one family, and survives the way to another process."""

import pickle
from importlib import import_module
from pkgutil import walk_packages

import pytest

import apportion
from apportion.errors import (
    ApportionError,
    AssignmentError,
    BagError,
    ConfigError,
    DataError,
    Option,
    RunError,
    suggestion,
)

SIX = (ApportionError, AssignmentError, BagError, ConfigError, DataError, RunError)


def test_there_are_six_error_classes_and_no_others():
    mine = {
        value
        for module in walk_packages(apportion.__path__, "apportion.")
        if not module.name.endswith("__main__")
        for value in vars(import_module(module.name)).values()
        if isinstance(value, type)
        and issubclass(value, Exception)
        and value.__module__.startswith("apportion")
    }
    assert mine == set(SIX)
    assert all(issubclass(kind, ApportionError) for kind in SIX)
    assert all(getattr(apportion, kind.__name__) is kind for kind in SIX)


@pytest.mark.parametrize("kind", SIX, ids=lambda kind: kind.__name__)
def test_error_comes_back_from_another_process_as_it_was(kind):
    error = kind("bag 'a' has 0 instances.", "Add its rows.")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - what a process pool does
    assert type(again) is kind
    assert str(again) == str(error) == "bag 'a' has 0 instances.\n  Add its rows."


def test_suggestion_is_the_nearest_name_or_none():
    assert suggestion("fpll", ["greedy", "fpl"]) == "Did you mean 'fpl'? Known: greedy, fpl."
    assert suggestion("zzz", ["greedy", "fpl"]) == "Known: greedy, fpl."


def test_each_door_spells_options_in_its_own_way():
    """Also after the way to another process, and behind the name of a table."""
    size = Option("image_size", "(4, 5)", "4x5")
    error = DataError(("sizes differ; ", size), ("Pass ", Option("force"), "."))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    again.about("a.csv")
    assert str(again) == "a.csv: sizes differ; image_size=(4, 5)\n  Pass force=True."
    flags = again.worded(lambda option: option.flag)
    assert flags == "a.csv: sizes differ; --image-size 4x5\n  Pass --force."
