"""The verb `report`: it tells where the file is, replaces none unasked, and shows rows if asked."""

import pandas as pd
import pytest

from apportion import Bags, TrainConfig, build_net, fit
from tests.cli.wards_on_disk import run, train_in, voters, write
from tests.report.made_runs import made_evaluation, made_run
from tests.report.reading_pages import read_page, section


def test_the_verb_tells_where_the_file_is(tmp_path):
    runs = [made_run(tmp_path / name, {"train": made_evaluation(3, 2)}) for name in ("a", "b")]
    told = run("report", runs[0])
    assert told.exit_code == 0, told.output
    assert told.stdout == f"Wrote {runs[0] / 'report.html'}\n"
    assert (runs[0] / "report.html").exists()
    again = run("report", runs[0])
    assert again.exit_code == 1
    assert "--force" in again.stderr
    assert run("report", runs[0], "--force").exit_code == 0
    assert run("report", *runs, "--out", tmp_path / "both.html").exit_code == 0
    assert (tmp_path / "both.html").exists()


def test_the_help_teaches_by_example():
    told = " ".join(run("report", "--help").output.split())
    assert "apportion report runs/a runs/b --out" in told
    assert "apportion report runs/a --with-instances" in told


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Runs of a single net with validation bags, and of a linear model of all bags."""
    folder = train_in(tmp_path_factory.mktemp("runs"), "--validation", "0.2")
    given = [*write(folder), "--exclude", "id", "--method", "linear", "--device", "cpu"]
    assert run("train", *given, "--out", folder / "linear").exit_code == 0
    return folder


def page_of(folder, *options):
    result = run("report", folder, "--force", *options)
    assert result.exit_code == 0, result.output
    return read_page(folder / "report.html")


def test_no_row_is_shown_unless_it_is_asked_for(trained):
    page = page_of(trained / "a")
    rows = voters()
    assert len(section(page, "unsure").one("table").rows()[0]) == 4
    cells = {cell for table in page.all("table") for row in table.rows() for cell in row}
    assert not cells & {"cook", "nurse", "clerk"}
    assert not any(name in page.text for name in rows["id"])
    for file in (trained / "a").glob("*.*"):  # nor does the run keep any
        if file.name not in ("report.html",):
            assert b"voter 7" not in file.read_bytes()


@pytest.mark.parametrize("name", ["a", "linear"])
def test_rows_are_read_again_if_asked_for(trained, name):
    page = page_of(trained / name, "--with-instances")
    header, *rows = section(page, "unsure").one("table").rows()
    assert header == ["row", "bag", "likeliest", "second", "age", "job"]
    assert len(rows) == 24
    known = voters()
    for row in rows:
        at = int(row[0])
        assert row[1] == str(known["ward"][at])
        age = known["age"][at]
        assert row[4:] == ["missing" if pd.isna(age) else f"{age:.0f}", known["job"][at]]
    assert "the instances that were passed" in page.one("footer").text


def test_data_that_are_gone_or_others_are_named_with_a_remedy(tmp_path):
    train_in(tmp_path)
    rows = tmp_path / "rows.csv"
    whole = rows.read_text()
    rows.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    other = run("report", tmp_path / "a", "--with-instances")
    assert other.exit_code == 1
    assert "19 instances in bag" in other.stderr or "instances of" in other.stderr
    rows.unlink()
    gone = run("report", tmp_path / "a", "--with-instances")
    assert gone.exit_code == 1
    assert "rows.csv" in gone.stderr
    assert "cannot be read again" in gone.stderr
    assert "leave out --with-instances" in gone.stderr
    assert not (tmp_path / "a" / "report.html").exists()
    assert run("report", tmp_path / "a").exit_code == 0


def test_a_run_of_python_says_how_python_shows_rows(tmp_path):
    frame = voters(80)
    bags = Bags.from_rows(frame[["age"]].fillna(40).to_numpy("float32"), frame["ward"],
                          truth=frame["vote"])  # fmt: skip
    config = TrainConfig(epochs=1, device="cpu", threads=1)
    fit(build_net("mlp", bags), bags, config=config, run=tmp_path / "a")
    told = run("report", tmp_path / "a", "--with-instances")
    assert told.exit_code == 1
    assert "started in Python" in told.stderr
    assert 'write_report(runs, instances={"train": bags' in told.stderr
