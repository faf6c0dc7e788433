"""Notes on how input was read: what changes it reaches everyone, all else those who ask."""

import logging

import pandas as pd
import pytest

from apportion import LLPClassifier
from apportion.bags.notes import notes
from apportion.data.tables import read_table


@pytest.fixture
def said(caplog):
    """What a user of Python sees who has not set up logging."""
    return lambda: [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_what_changes_the_data_is_seen_by_default(tmp_path, said, caplog):
    path = tmp_path / "rows.csv"
    lines = (f"{'ab'[k % 2]};{10 + k} %;{k + 1}.12.2024;1;{k},5\n" for k in range(8))
    path.write_text("bag;share;day;one;x\n" + "".join(lines))
    shares = {"no": [3, 2, 2], "yes": [1, 2, 2], "all": [4, 4, 4], "bag": ["a", "b", "c"]}
    caplog.set_level(logging.INFO, notes.name)
    read_table(path, bag="bag", proportions=pd.DataFrame(shares), normalize=True)
    assert [message.split("'")[1] for message in said()] == ["day", "one", "share", "all"]
    told = " ".join(record.getMessage() for record in caplog.records if record.name == notes.name)
    for other in ("cells separated by semicolons", "1 bag of the table without rows"):
        assert other in told
        assert other not in " ".join(said())


def test_the_estimator_says_it_too(said):
    days = pd.date_range("2024-01-01", periods=40)
    frame = pd.DataFrame({"day": days, "one": 1, "x": [0.0, 1.0] * 20})
    bags = pd.Series([k // 10 for k in range(40)])
    LLPClassifier(method="ridge").fit(frame, bags=bags, proportions=dict.fromkeys(range(4), 0.5))
    assert any("Column 'day' holds dates" in message for message in said())
    assert any("Column 'one' has one value in all rows" in message for message in said())
