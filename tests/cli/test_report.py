"""The verb `report`: it tells where the file is, replaces none unasked, and teaches by example."""

from tests.cli.wards_on_disk import run
from tests.report.made_runs import made_evaluation, made_run


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
    told = run("report", "--help").output
    assert "apportion report runs/a runs/b --out" in " ".join(told.split())
