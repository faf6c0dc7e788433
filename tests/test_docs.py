"""The code in the documentation runs."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion import Bags
from apportion.nets import build

DOCS = Path(__file__).parent.parent / "docs"
BLOCKS = [
    pytest.param(code, id=f"{page.stem}-{i}")
    for page in sorted(DOCS.glob("*.md"))
    for i, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


def test_there_is_code_to_run():
    assert BLOCKS


@pytest.mark.parametrize("code", BLOCKS)
def test_code_block_runs(code):
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=60)
    x = rng.normal(size=(60, 4)) + labels[:, None]
    bags = Bags.from_rows(x, np.arange(60) // 10, labels=labels)
    train, valid, _ = bags.split(0.3, seed=0)
    names: dict[str, Any] = {"train": train, "valid": valid, "model": build("mlp", train)}
    exec(code, names)
    assert len(names["history"].records) == 100
