"""The code in the documentation runs."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion import Bags, TrainConfig
from apportion.config import help_texts
from apportion.engine.device import own_threads
from apportion.nets.build import build_net
from benchmarks import _beyond_page, beyond, first_labels, tabular
from benchmarks._table_page import render

DOCS = Path(__file__).parent.parent / "docs"


def blocks() -> list[Any]:
    """The code of all pages; a block that says so goes on from the one before it."""
    found: list[Any] = []
    for page in sorted(DOCS.glob("*.md")):
        chains: list[str] = []
        for more, code in re.findall(
            r"```python( continued)?\n(.*?)```", page.read_text("utf-8"), re.DOTALL
        ):
            chains.append(chains.pop() + code if more else code)
        found += [pytest.param(code, id=f"{page.stem}-{i}") for i, code in enumerate(chains)]
    return found


BLOCKS = blocks()


def test_there_is_code_to_run():
    assert len(BLOCKS) > 3


@pytest.mark.parametrize("code", BLOCKS)
def test_code_block_runs(code):
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=60)
    x = rng.normal(size=(60, 4)) + labels[:, None]
    bags = Bags.from_rows(x, np.arange(60) // 10, truth=labels)
    train, valid, _ = bags.split(0.3, seed=0)
    names: dict[str, Any] = {"train": train, "valid": valid, "net": build_net("mlp", train)}
    with own_threads(1):  # steps this small are taken faster by one
        exec(code, names)
    if "history = " in code:
        assert len(names["history"].records) == 100


def options_table() -> str:
    """Every option of training, as its one declaration says it."""
    texts = help_texts(TrainConfig)
    rows = [
        f"| `{option.name}` | {option.default!r} | {option.metadata['rule'].words} | "
        f"{texts[option.name]} |"
        for option in fields(TrainConfig)
    ]
    return "\n".join(["| option | default | must be | meaning |", "|---|---|---|---|", *rows])


def test_the_options_are_what_the_configuration_declares():
    """To write the page again: print(options_table())."""
    assert options_table() in (DOCS / "options.md").read_text("utf-8")


def test_the_tables_are_what_the_recorded_lines_give():
    page = (DOCS / "tables.md").read_text("utf-8")
    assert f"<!-- tabular -->\n{render(tabular.recorded())}\n<!-- end" in page


def test_the_tables_beyond_the_paper_are_what_the_recorded_lines_give():
    page = (DOCS / "images.md").read_text("utf-8")
    assert f"<!-- beyond -->\n{_beyond_page.render(beyond.recorded())}\n<!-- end" in page


def test_the_table_of_first_labels_is_what_the_recorded_lines_give():
    page = (DOCS / "images.md").read_text("utf-8")
    table = first_labels.render(first_labels.recorded())
    assert f"<!-- first labels -->\n{table}\n<!-- end" in page
