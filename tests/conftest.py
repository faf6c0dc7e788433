"""Lets tests in any folder import `tests.conformance`, however pytest is called."""

import sys
from pathlib import Path

import pytest

ROOT = str(Path(__file__).parents[1])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

pytest.register_assert_rewrite("tests.conformance")
