"""What is said of columns while they are learned."""

from typing import Any

import pandas as pd
import pytest

from apportion.data import tables
from apportion.data.encoding import learn_columns
from apportion.errors import DataError

read_table: Any = tables.read_table  # whose result is looked into without asking first


@pytest.mark.parametrize("cells", [["41,1", "7"], ["45 %", "7 %"], ["1.5", "2"]])
def test_numbers_that_are_texts_of_a_frame_are_warned_of(cells, caplog):
    columns = learn_columns(pd.DataFrame({"x": cells}))
    assert columns.categorical == ("x",)
    assert (
        f"Column 'x' is read as categories, since its values are texts, though they are "
        f"numbers, such as {cells[0]!r}. Convert it to numbers" in caplog.text
    )
    caplog.clear()
    learn_columns(pd.DataFrame({"x": pd.Categorical(cells), "code": ["007", "12"]}))
    assert caplog.text == ""


def test_a_column_with_the_other_decimal_sign_can_be_left_out(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("bag;x;z;version\na;1,5;2,5;2.1\na;2,5;1,5;3.2\n")
    with pytest.raises(DataError, match=r"column 'version' has '2\.1'") as error:
        read_table(path, bag="bag", proportions={"a": 0.5})
    assert error.value.names("decimal")
    assert error.value.names("columns")
    columns = read_table(path, bag="bag", proportions={"a": 0.5}, columns=["x", "z"]).columns
    assert columns.numeric == ("x", "z")


@pytest.mark.parametrize("constant", [1, "x", None])
def test_a_column_that_is_to_be_kept_is_kept(constant):
    rows = pd.DataFrame({"bag": ["a", "a"], "k": constant, "x": [1, 2]})
    options: dict[str, Any] = {"bag": "bag", "proportions": {"a": 0.5}}
    assert read_table(rows, **options).columns.names == ("x",)
    assert read_table(rows, **options, keep=["k"]).columns.names == ("k", "x")
    assert read_table(rows, **options, columns=["k"], keep=["k"]).columns.names == ("k",)
