"""Every error of the library is of one family, and survives the way to another process."""

import pickle
from importlib import import_module
from pkgutil import walk_packages

import pytest

import apportion
from apportion import ApportionError
from apportion.errors import suggestion


def families():
    for module in walk_packages(apportion.__path__, "apportion."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    found, waiting = [], [ApportionError]
    while waiting:
        found.append(waiting.pop())
        waiting += found[-1].__subclasses__()
    return found


def test_every_error_class_belongs_to_the_family():
    known = families()
    for name in ("BagError", "AssignmentError", "ConfigError", "RunError", "TrainingError"):
        assert getattr(apportion, name) in known
    mine = {
        value
        for module in walk_packages(apportion.__path__, "apportion.")
        if not module.name.endswith("__main__")
        for value in vars(import_module(module.name)).values()
        if isinstance(value, type)
        and issubclass(value, Exception)
        and value.__module__.startswith("apportion")
    }
    assert mine == set(known)


@pytest.mark.parametrize("kind", families(), ids=lambda kind: kind.__name__)
def test_error_comes_back_from_another_process_as_it_was(kind):
    error = kind("bag 'a' has 0 instances.", "Add its rows.")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - what a process pool does
    assert type(again) is kind
    assert str(again) == str(error) == "bag 'a' has 0 instances.\n  Add its rows."


def test_suggestion_is_the_nearest_name_or_none():
    assert suggestion("fpll", ["greedy", "fpl"]) == "Did you mean 'fpl'? There are greedy, fpl."
    assert suggestion("zzz", ["greedy", "fpl"]) == "There are greedy, fpl."
