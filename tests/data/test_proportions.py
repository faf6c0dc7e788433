"""Tables of proportions: wide and long, their columns told apart, and refusals."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data.dialect import TableFormat
from apportion.data.pieces import open_pieces
from apportion.data.proportions import read_proportions
from apportion.data.tables import read_table
from apportion.errors import ConfigError, DataError

VALUES = {("a", "yes"): 0.25, ("a", "no"): 0.75, ("b", "yes"): 1.0, ("c", "no"): 1.0}


def long(cells, class_name="class", value_name="value"):
    rows = [(bag, name, value) for (bag, name), value in cells.items()]
    return pd.DataFrame(rows, columns=["bag", class_name, value_name])


def read(table, classes=None):
    return read_proportions(table, "bag", classes)


def by_bag(found):
    return {
        bag: dict(zip(found.classes, row, strict=True))
        for bag, row in zip(found.ids, found.values.tolist(), strict=True)
    }


def test_a_class_that_a_long_table_does_not_name_is_0():
    found = read(long(VALUES))
    assert by_bag(found) == {
        "a": {"no": 0.25 * 3, "yes": 0.25},
        "b": {"no": 0.0, "yes": 1.0},
        "c": {"no": 1.0, "yes": 0.0},
    }
    assert list(found.classes) == ["no", "yes"]


@given(st.randoms(use_true_random=False), st.permutations(["bag", "class", "value"]))
def test_the_order_of_a_long_table_does_not_matter(random, order):
    cells = list(VALUES.items())
    random.shuffle(cells)
    found = by_bag(read(long(dict(cells))[list(order)]))
    assert found == by_bag(read(long(VALUES)))
    assert list(found) == list(dict.fromkeys(bag for (bag, _), _ in cells))


@pytest.mark.parametrize(
    ("names", "swapped"),
    [
        (("class", "value"), False),
        (("what", "count"), False),
        (("Label", "x"), False),
        (("Proportion", "x"), True),
        (("x", "category"), True),
    ],
)
def test_numeric_classes_are_told_from_values_by_names(names, swapped):
    rows = pd.DataFrame({"bag": ["a", "a", "b"], names[0]: [3, 1, 1], names[1]: [1, 2, 2]})
    expected = (
        {"a": {1: 3.0, 2: 1.0}, "b": {1: 0.0, 2: 1.0}}
        if swapped
        else {"a": {1: 2.0, 3: 1.0}, "b": {1: 2.0, 3: 0.0}}
    )
    assert by_bag(read(rows)) == expected


@pytest.mark.parametrize("swap", [False, True])
def test_the_numeric_one_of_two_columns_has_the_values(tmp_path, swap):
    rows = long(VALUES, "x", "y")
    if swap:
        rows = rows[["y", "bag", "x"]]
    assert by_bag(read(rows)) == by_bag(read(long(VALUES)))
    rows.to_csv(tmp_path / "long.csv", index=False)
    assert by_bag(read(tmp_path / "long.csv")) == by_bag(read(long(VALUES)))


def test_a_class_may_be_called_NA_in_a_csv_file(tmp_path):  # noqa: N802
    (tmp_path / "long.csv").write_text("bag,class,value\nNA,None,0.5\nNA,NA,0.5\nb,NA,1\n")
    assert by_bag(read(tmp_path / "long.csv")) == {
        "NA": {"NA": 0.5, "None": 0.5},
        "b": {"NA": 1.0, "None": 0.0},
    }


def test_numbers_in_a_long_csv_file_name_classes_in_their_order(tmp_path):
    (tmp_path / "long.csv").write_text("bag,class,value\n1,10,0.5\n1,9,0.5\n2,10,1\n")
    found = read(tmp_path / "long.csv")
    assert list(found.classes) == [9, 10]
    assert found.ids == [1, 2]


def test_the_index_names_bags_where_no_column_does():
    wide = pd.DataFrame({"yes": [0.5, 1], "no": [0.5, 0]}, index=[("a", 1), ("b", 2)])
    assert read(wide).ids == [("a", 1), ("b", 2)]
    assert by_bag(read(long(VALUES).set_index("bag"))) == by_bag(read(long(VALUES)))
    assert list(wide.columns) == ["yes", "no"]  # which is as it was


def test_the_split_is_no_class_in_either_form():
    wide = pd.DataFrame(
        {"bag": ["a", "b", "c"], "split": ["train", "valid", "train"], "yes": 1.0, "no": 0.0}
    )
    assert list(read(wide).classes) == ["yes", "no"]
    assert read(wide).split == ("train", "valid", "train")
    assert read(wide.drop(columns="split")).split is None
    rows = long(VALUES).assign(split=["valid", "valid", "train", "valid"])
    assert read(rows).split == ("valid", "train", "valid")
    assert by_bag(read(rows)) == by_bag(read(long(VALUES)))


@pytest.mark.parametrize(
    ("table", "options", "named"),
    [
        (long(VALUES).assign(more=1), {}, "2 rows of bag 'a', and 3 columns beside the bags"),
        (long(VALUES)[["bag", "value"]], {}, "2 rows of bag 'a', and 1 column b"),
        (long(VALUES | {("b", "no"): "x"}), {}, "column 'value' of bag 'b' is 'x'"),
        (pd.concat([long(VALUES)] * 2), {}, "row 4 .* bag 'a' and class 'yes', as row 0 has"),
        (long({**VALUES, ("b", None): 1.0}), {}, "row 4 .*, of bag 'b', has no class"),
        (long({**VALUES, (None, "yes"): 1.0}), {}, "row 4 .* has no bag"),
        (pd.DataFrame({"bag": ["a", "b", "a"], "yes": 0.5, "no": 0.5}), {}, "bag 'a' occurs mor"),
        (pd.DataFrame({"bag": ["a"], "yes": ["half"]}), {}, "'yes' of bag 'a' is 'half'"),
        (pd.DataFrame({"bag": ["a", "b"], "yes": ["0.5", "1,5"]}), {}, "of bag '.' is '.[.,]5'"),
        (pd.DataFrame({"bag": ["a"], "yes": [[1]]}), {}, r"'yes' of bag 'a' is \[1\]"),
        (pd.DataFrame({"bag": ["a"]}), {}, "0 classes beside the bags"),
        (pd.DataFrame({"bag": [], "yes": []}), {}, "0 bags"),
        (pd.DataFrame([[1, 2, 3]], columns=["bag", "x", "x"]), {}, "'x' occurs more than once"),
        (
            pd.DataFrame({"bag": ["a"], "yes": 1.0, "split": "trian"}),
            {},
            "bag 'a' has split 'trian'",
        ),
        (pd.DataFrame({"bag": ["a"], "yes": 1.0, "split": "test"}), {}, "no bag of split 'train'"),
        (
            long(VALUES).assign(split=["train", "valid", "train", "train"]),
            {},
            "bag 'a' is in split 'train' and in 'valid'",
        ),
    ],
)
def test_tables_that_contradict_themselves_are_refused(table, options, named):
    with pytest.raises(DataError, match=named) as error:
        read(table, **options)
    assert "proportions" in str(error.value)
    assert len(str(error.value).splitlines()) > 1


@pytest.mark.parametrize("form", ["csv", "parquet", "frame"])
@pytest.mark.parametrize("shape", ["wide", "long"])
def test_a_bag_without_a_split_is_named(tmp_path, form, shape):
    wide = pd.DataFrame({"bag": ["a", "b", "c"], "yes": 1.0, "no": 0.0})
    table = wide if shape == "wide" else wide.melt("bag", var_name="class")
    table["split"] = table["bag"].map({"a": "train", "b": None, "c": None})
    path = tmp_path / f"wards.{form}"
    if form != "frame":
        getattr(table, f"to_{form}")(path, index=False)
    with pytest.raises(DataError, match="bag 'b' has no split: its cell is empty") as error:
        read(table if form == "frame" else path)
    assert "Known: train, valid, test.\n  Write one of them into column 'split'" in str(error.value)


@pytest.mark.parametrize("names", [("yes", "no"), ("x", "y")])
@pytest.mark.parametrize("values", [[1, 2, 2, 1], [3, 1, 1, 2], [0.5, 1, 1, 0.5]])
@pytest.mark.parametrize("form", [".csv", ".parquet", "frame"])
def test_a_wide_table_with_bags_named_twice_is_never_read_as_a_long_one(
    tmp_path, names, values, form
):
    table = pd.DataFrame({"bag": list("aabb"), names[0]: values, names[1]: values[::-1]})
    given = table if form == "frame" else tmp_path / f"wards{form}"
    if form != "frame":
        getattr(table, f"to_{form[1:]}")(given, index=False)
    said = rf"bag 'a' .*neither '{names[0]}' nor '{names[1]}'.*\n.*class and value"
    with pytest.raises(DataError, match=said):
        read(given)


@pytest.mark.parametrize(
    "lines",
    [
        "ward;no;yes\n0;0.2;0.8\n",
        "ward;no;yes\n0;0,2;0,8\n",
        "ward\tno\tyes\n0\t,2\t,8\n",
        "ward|no|yes\n0|.2|.8\n",
        'ward,no,yes\n0,"0,2","0,8"\n',
        "sep=;\nward;no;yes\n0;0,2;0,8\n",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_the_format_of_a_table_is_recognised_as_that_of_rows(tmp_path, lines, encoding):
    path = tmp_path / "wards.csv"
    path.write_text(lines.replace("yes", "größer"), encoding=encoding)
    table = read_proportions(path, "ward")
    assert (table.ids, list(table.classes)) == ([0], ["no", "größer"])
    assert table.values.tolist() == [[0.2, 0.8]]
    assert table.digits == 1
    ((_, frame),) = open_pieces(path).read(["ward", "no", "größer"])
    assert frame.to_numpy().tolist() == [[0, 0.2, 0.8]]


def test_percent_signs_and_thousands_are_read(tmp_path):
    path = tmp_path / "wards.csv"
    path.write_text("bag;yes;no\na;45,2 %;54,8%\nb;0%;100 %\n")
    table = read(path)
    assert table.values.tolist() == [[45.2, 54.8], [0, 100]]
    assert table.digits == 1
    path.write_text("bag;yes;no\na;1.234;2.000,0\nb;1.234.567;12\n")
    assert read(path).values.tolist() == [[1234, 2000], [1234567, 12]]


def test_a_number_that_may_be_either_is_asked_for(tmp_path):
    path = tmp_path / "wards.csv"
    path.write_text("bag;yes;no\na;1.234;2.000\nb;1.500;12\n")
    with pytest.raises(DataError, match=r"'1\.234', which may be 1234 or 1\.234") as error:
        read(path)
    assert error.value.names("decimal")
    for decimal, first in ((",", 1234), (".", 1.234)):
        found = read_proportions(path, "bag", form=TableFormat(decimal=decimal))
        assert found.values[0, 0] == first


def test_a_cell_with_the_other_decimal_sign_names_the_option(tmp_path):
    path = tmp_path / "wards.csv"
    path.write_text("bag;yes;no\na;0,25;0,75\nb;0.5;0,5\n")
    with pytest.raises(DataError, match=r"column 'yes' of bag 'b' is '0\.5'") as error:
        read(path)
    assert error.value.names("decimal")


@pytest.mark.parametrize("make", [pl.from_pandas, pa.Table.from_pandas])
def test_tables_of_other_libraries_have_a_column_of_bags(make):
    wide = pd.DataFrame({"bag": ["a", "b"], "no": [0.2, 0.5], "yes": [0.8, 0.5]})
    found = read(make(wide))
    assert (found.ids, list(found.classes)) == (["a", "b"], ["no", "yes"])
    with pytest.raises(DataError, match="proportions has no column 'bag'"):
        read(make(wide.drop(columns="bag")))


def test_single_shares_are_those_of_the_second_class():
    shares = {"a": 0.25, "b": 1}
    for table in (shares, pd.Series(shares)):
        found = read(table, classes=["no", "yes"])
        assert (list(found.ids), list(found.classes)) == (["a", "b"], ["no", "yes"])
        assert found.values.tolist() == [[0.75, 0.25], [0, 1]]


def test_commas_at_the_ends_of_lines_are_no_column(tmp_path):
    path = tmp_path / "wards.csv"
    for lines in ("bag,no,yes\n0,0.5,0.5,\n1,0.2,0.8,\n", "bag,no,yes,\n0,0.5,0.5,\n1,0.2,0.8,\n"):
        path.write_text(lines)
        table = read(path)
        assert (table.ids, list(table.classes)) == ([0, 1], ["no", "yes"])
        assert table.values.tolist() == [[0.5, 0.5], [0.2, 0.8]]
    path.write_text("bag,no,yes\n0,0.5,0.5,7\n")
    with pytest.raises(DataError, match=r"wards\.csv .* more cells than it has columns"):
        read(path)


def test_a_column_of_text_is_answered_with_the_option_that_leaves_it_out():
    table = pd.DataFrame({"bag": ["a"], "yes": 1.0, "region": "north"})
    with pytest.raises(DataError, match="column 'region' of bag 'a' is 'north'") as error:
        read(table)
    assert error.value.names("classes")


def test_a_file_is_named_in_refusals(tmp_path):
    path = tmp_path / "wards.csv"
    path.write_text("ward,yes,no\na,0.5,x\n")
    with pytest.raises(DataError, match=r"wards\.csv has no column 'bag'"):
        read(path)
    with pytest.raises(DataError, match=r"wards\.csv: column 'no' of bag 'a' is 'x'"):
        read_proportions(path, "ward")


def test_missing_values_are_left_to_bags(tmp_path):
    path = tmp_path / "wards.csv"
    path.write_text("bag,yes,no\na,0.5,\nb,nan,1\n")
    assert np.isnan(read(path).values).tolist() == [[False, True], [True, False]]


def test_a_table_with_one_class_a_bag_is_long_if_it_says_so():
    frame = pd.DataFrame({"ward": ["a", "b"], "class": [3, 5], "count": [10, 20]})
    table = read_proportions(frame, "ward")
    assert list(table.classes) == [3, 5]
    assert table.values.tolist() == [[10, 0], [0, 20]]


def test_a_wide_table_is_read_for_the_classes_that_are_named():
    wide = pd.DataFrame({"bag": ["a", "b"], "no": 0.5, "total": 1.0, "yes": 0.5, "note": "x"})
    found = read(wide, ["yes", "no"])
    assert list(found.classes) == ["yes", "no"]
    assert found.values.tolist() == [[0.5, 0.5]] * 2
    with pytest.raises(DataError, match=r"no column 'yess'.\n.*Did you mean 'yes'"):
        read(wide, ["yess", "no"])


def test_what_was_read_is_read():
    table = read(long(VALUES))
    assert read_proportions(table, "bag") is table


def test_classes_are_found_however_their_numbers_are_written(tmp_path):
    wide, long = tmp_path / "wide.csv", tmp_path / "long.csv"
    wide.write_text("bag,1,0\na,3,1\nb,2,2\n")
    long.write_text("bag,class,value\na,1,3\na,0,1\nb,1,2\nb,0,2\n")
    for path in (wide, long):
        for classes in ([0, 1], ["0", "1"], [0.0, 1.0]):
            table = read_proportions(path, "bag", classes)
            assert list(table.classes) == classes
            assert table.values.tolist() == [[1, 3], [2, 2]]
    with pytest.raises(DataError, match=r"no column 2.*\n.*Known: 1, 0"):
        read_proportions(wide, "bag", [0, 1, 2])
    with pytest.raises(DataError, match="has class 1, which is not one of the given classes"):
        read_proportions(long, "bag", [0])
    assert read_proportions(long, "bag", [0, 1, 2]).values.tolist() == [[1, 3, 0], [2, 2, 0]]


def test_options_that_are_named_are_those_of_the_table():
    form = TableFormat(of="proportions_")
    table = pd.DataFrame({"bag": ["a", "b"], "yes": ["1.234", "2.345"], "no": ["3.456", "1.111"]})
    with pytest.raises(DataError, match="proportions_decimal=','"):
        read_proportions(table, "bag", form=form)
    right = TableFormat(decimal=",", of="proportions_")
    assert read_proportions(table, "bag", form=right).values.tolist() == [
        [1234, 3456],
        [2345, 1111],
    ]
    with pytest.raises(ConfigError, match="proportions_decimal must be"):
        TableFormat(decimal=";", of="proportions_")


def test_digits_that_a_computer_added_are_not_counted(tmp_path):
    rows = pd.DataFrame({"bag": np.repeat(list("abcd"), 9), "x": np.arange(36.0)})
    percent = np.array([[39.4, 60.5], [51.2, 48.9], [12.3, 87.7], [70.1, 29.9]])
    table = pd.DataFrame(percent / 100, columns=["yes", "no"]).assign(bag=list("abcd"))
    table.to_csv(tmp_path / "shares.csv", index=False)
    assert "0.39399999999999996" in (tmp_path / "shares.csv").read_text()
    assert read(tmp_path / "shares.csv").digits == 3
    from_file = read_table(rows, bag="bag", proportions=tmp_path / "shares.csv")
    from_frame = read_table(rows, bag="bag", proportions=table)
    np.testing.assert_array_equal(from_file.proportions, from_frame.proportions)
    table.assign(yes=1 / 3, no=2 / 3).to_csv(tmp_path / "shares.csv", index=False)
    assert read(tmp_path / "shares.csv").digits == 6
