"""Makes tests in any folder import what other tests share, and properties take their time."""

import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = str(Path(__file__).parents[1])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

# Kernels are compiled in the first example of a test, and machines of two cores are busy.
settings.register_profile("apportion", deadline=None)
settings.load_profile("apportion")


@pytest.fixture
def steps(monkeypatch):
    """Return a function that makes the nets of an average train in few steps per stage."""
    from tests.auto.tables import few_steps

    return lambda n: few_steps(n, monkeypatch.setattr)


@pytest.fixture
def quick(monkeypatch):
    """Make resnet18 a net of a few weights, and pre-training one of two epochs."""
    from tests.nets.small_resnet import few_epochs, instead_of_resnet

    instead_of_resnet(monkeypatch.setitem)
    few_epochs(2, monkeypatch.setitem)
