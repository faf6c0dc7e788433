"""A German Excel export through every verb, with one option: `--skip-unplaced`."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from apportion.data.tables import read_table
from apportion.runs.evaluation import read_evaluations
from apportion.runs.run import Run
from tests.cli.german_export import proportions, voters, write_csv, write_excel
from tests.cli.wards_on_disk import config_of, run

SKIP = "--skip-unplaced"


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize("write", [write_csv, write_excel])
def test_check_train_predict_and_report_take_it_as_it_is(write, tmp_path, steps):
    steps(20)
    frame = voters()
    rows, table = write(tmp_path, frame)
    given = [rows, "--bag", "Wahlbezirk", "--proportions", table]
    refused = run("check", *given)
    assert refused.exit_code == 1
    assert f"or pass {SKIP} to leave such rows out" in refused.stderr

    told = done("check", *given, SKIP).stdout
    for said in (
        "Column 'Befragt am' holds dates",
        "Column 'Bemerkung' has no values, and is left out",
        "Column 'Land' has one value in all rows, and is left out",
        "5 rows in no known bag: left out",
        "3 bags of the table without rows: left out ('Briefwahl', 'Bezirk 99 – Süd', 'Summe')",
        "Column 'Gesamt' is the total",
        "24 bags, 595 instances, 600 rows",
    ):
        assert told.count(said) == 1, said
    if write is write_csv:
        form = "encoded in cp1252, cells separated by semicolons, numbers with decimal commas"
        assert told.count(form) == 2
        assert "read as percentages" in told

    trained = done("train", *given, SKIP, "--threads", "1", "--out", tmp_path / "a")
    assert "5 rows in no known bag" in trained.stderr
    data = config_of(tmp_path / "a")["data"]
    assert data["skip_unplaced"] is True
    assert not {"sep", "decimal", "encoding", "sheet"} & data.keys()
    done("train", tmp_path / "a" / "config.toml", "--method", "linear", "--out", tmp_path / "b")

    done("predict", tmp_path / "a", rows, "--out", tmp_path / "p.csv")
    found = pd.read_csv(tmp_path / "p.csv")
    assert len(found) == 600
    assert np.mean(found["label"] == frame["Stimme"]) > 0.7
    known = [*given[1:], SKIP]
    done("predict", tmp_path / "a", rows, *known, "--out", tmp_path / "counted.csv")
    counted = pd.read_csv(tmp_path / "counted.csv")
    placed = frame.index.difference([3, 50, 120, 300, 511])
    shares = proportions(frame, extra=False).set_index("Wahlbezirk")
    own = pd.crosstab(frame["Wahlbezirk"][placed], counted["label"][placed], normalize="index")
    assert np.abs(own[shares.columns] - shares).to_numpy().max() < 1.1 / 24
    assert counted["label"].notna().all()
    done("report", tmp_path / "a", "--out", tmp_path / "report.html")


def test_both_forms_are_the_same_numbers(tmp_path):
    frame = voters()
    options: dict[str, Any] = {"bag": "Wahlbezirk", "skip_unplaced": True}
    text: Any
    excel: Any
    text, excel = (
        read_table(rows, proportions=table, **options)
        for rows, table in (write_csv(tmp_path, frame), write_excel(tmp_path, frame))
    )
    assert text.columns.names == excel.columns.names
    assert text.columns.names == ("Alter", "Einkommen", "Größe in %", "Befragt am")
    np.testing.assert_allclose(text.x, excel.x, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(text.counts, excel.counts)
    np.testing.assert_allclose(text.proportions, excel.proportions, atol=1e-3)
    np.testing.assert_array_equal(text.index, excel.index)
    # Row 0, worked out by hand from the frame.
    days = (frame["Befragt am"][0] - pd.Timestamp("1970-01-01")).days
    first = frame.loc[0, ["Alter", "Einkommen", "Größe in %"]].to_numpy(float)
    np.testing.assert_allclose(text.x[0, :3], first, rtol=1e-6)
    assert text.x[0, 3] + text.columns.means["Befragt am"] == pytest.approx(days, abs=0.01)


def test_what_is_said_of_the_format_is_kept_in_the_run(tmp_path):
    """Numbers that may be either: the option is asked for, kept, and named for predictions."""
    frame = voters()
    shares = proportions(frame, extra=False).round(3)
    rows = frame[["Wahlbezirk"]].assign(
        x=[f"{3 if v == 'Ja' else 1}.{k % 1000:03}" for k, v in enumerate(frame["Stimme"])]
    )
    rows.to_csv(tmp_path / "rows.csv", sep=";", index=False, encoding="cp1252")
    shares.to_csv(tmp_path / "wards.csv", sep=";", decimal=",", index=False)
    given = [tmp_path / "rows.csv", "--bag", "Wahlbezirk", "--proportions", tmp_path / "wards.csv"]
    refused = run("check", *given)
    assert refused.exit_code == 1
    assert "Pass --decimal ',' or --decimal '.'." in refused.stderr
    options = ["--decimal", ",", "--encoding", "cp1252", "--sep", ";"]
    wards = tmp_path / "wards.csv"
    wards.write_text(wards.read_text(), encoding="cp1252")
    trained = done("train", *given, *options, "--method", "linear", "--out", tmp_path / "a")
    assert "--sep ';' --decimal , --encoding cp1252 --out predictions.csv" in trained.stdout
    data = config_of(tmp_path / "a")["data"]
    assert (data["sep"], data["decimal"], data["encoding"]) == (";", ",", "cp1252")
    done("train", tmp_path / "a" / "config.toml", "--method", "ridge", "--out", tmp_path / "b")
    predict = ["predict", tmp_path / "b", tmp_path / "rows.csv", "--out", tmp_path / "p.csv"]
    assert "Pass --decimal ','" in run(*predict).stderr
    done(*predict, "--decimal", ",")
    found = pd.read_csv(tmp_path / "p.csv")
    assert found["probability_Ja"][frame["Stimme"] == "Ja"].mean() > 0.7


def test_the_truth_of_some_rows_is_measured_everywhere(tmp_path):
    frame = voters()
    some = frame.index % 4 == 0
    frame.assign(Stimme=frame["Stimme"].where(some)).to_csv(tmp_path / "rows.csv", index=False)
    proportions(frame, extra=False).to_csv(tmp_path / "wards.csv", index=False)
    given = [tmp_path / "rows.csv", "--bag", "Wahlbezirk", "--proportions", tmp_path / "wards.csv"]
    given += ["--label", "Stimme"]
    assert "truth     known for 150 of 600" in done("check", *given).stdout
    options = ["--method", "linear", "--validation", "0.2", "--out", tmp_path / "a"]
    told = done("train", *given, *options)
    assert "The truth is known for 150 of 600 instances" in told.stderr
    evaluations = read_evaluations(Run(tmp_path / "a"))[1]
    confusions = [own.confusion for own in evaluations.values()]
    assert sum(int(c.sum()) for c in confusions if c is not None) == 150
    accuracy = np.mean([np.trace(c) / c.sum() for c in confusions if c is not None])
    assert accuracy > 0.7
    predict = ["predict", tmp_path / "a", tmp_path / "rows.csv", "--label", "Stimme"]
    told = done(*predict, "--out", tmp_path / "p.csv").stdout
    found = pd.read_csv(tmp_path / "p.csv")["label"]
    right = np.mean((found == frame["Stimme"])[some])
    assert f"Accuracy: {right:.2%} of the 150 rows with a label." in told
    done("report", tmp_path / "a", "--out", tmp_path / "report.html")


# ------------------------------------------------------------------- two files, two formats


def write_in_two_formats(folder):
    """Rows with decimal commas, whose thousands alone have a sign, and shares with points."""
    frame = voters()
    table = proportions(frame, extra=False)
    pay = [f"{v / 1000:.3f}" for v in frame["Einkommen"].clip(1000, 9000)]
    rows = frame[["Wahlbezirk", "Alter"]].assign(Alter=frame["Alter"].round().astype(int))
    rows = rows.assign(Einkommen=pay)
    rows.to_csv(folder / "rows.csv", sep=";", index=False, encoding="cp1252")
    table.round(6).to_csv(folder / "shares.csv", index=False)  # with commas, in UTF-8
    given = ["--bag", "Wahlbezirk", "--proportions", folder / "shares.csv"]
    return [folder / "rows.csv", *given]


def test_an_option_is_of_one_file_and_each_file_has_its_own(tmp_path):
    given = write_in_two_formats(tmp_path)
    asked = run("check", *given)
    assert asked.exit_code == 1
    assert "rows.csv has '2." in asked.stderr
    assert "Pass --decimal ','" in asked.stderr
    german = ["--decimal", ",", "--sep", ";", "--encoding", "cp1252"]
    told = run("check", *given, *german)
    assert told.exit_code == 0, told.output
    assert "read as numbers with separated thousands" in told.stdout
    wrong = run("check", *given, *german, "--proportions-decimal", ",")
    assert wrong.exit_code == 1
    assert "shares.csv: column 'Ja'" in wrong.stderr
    assert "Pass --proportions-decimal '.'" in wrong.stderr
    wrong = run("check", *given, *german, "--proportions-encoding", "ascii")
    assert "Pass --proportions-encoding cp1252" in wrong.stderr


def test_the_format_of_the_proportions_is_kept_in_the_run(tmp_path):
    given = [*write_in_two_formats(tmp_path), "--decimal", ","]
    own = ["--proportions-sep", ",", "--proportions-decimal", ".", "--proportions-encoding", "utf8"]
    quick = ["--method", "ridge", "--threads", "1", "--device", "cpu", "--out", tmp_path / "a"]
    result = run("train", *given, *own, *quick)
    assert result.exit_code == 0, result.output
    data = config_of(tmp_path / "a")["data"]
    assert {name: data[name] for name in data if name.startswith("proportions_")} == {
        "proportions_sep": ",",
        "proportions_decimal": ".",
        "proportions_encoding": "utf8",
    }
