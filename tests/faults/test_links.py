"""Links planted in a run folder: nothing outside of it is ever written through one."""

import shutil

import pytest

from apportion import Run
from apportion.errors import RunError
from tests.cli.wards_on_disk import QUICK, run, train_in, write
from tests.faults.damaged_runs import hasty, make_tables

TENSORS = [f"{name}.safetensors" for name in ("checkpoint", "model", "last", "evaluation")]
FILES = ["config.toml", "log.jsonl", *TENSORS, "report.html", "lock"]
SECRET = '{"epoch": 1}\n' * 50


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_in(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("averaged")
    with hasty():
        make_tables(folder)
    return folder


@pytest.mark.parametrize("hard", [False, True], ids=["soft", "hard"])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("method", ["auto", "linear"])
def test_a_run_of_a_table_writes_nothing_through_a_link(averaged, tmp_path, method, name, hard):
    outside, folder = tmp_path / "outside", tmp_path / "a"
    shutil.copytree(averaged / f"{method}-left", folder)
    outside.write_text(SECRET)
    (folder / name).unlink(missing_ok=True)
    if hard:
        (folder / name).hardlink_to(outside)
    else:
        (folder / name).symlink_to(outside)
    with hasty():
        result = run("train", "--resume", folder)
    assert result.exit_code in (0, 1), result.output
    assert outside.read_text() == SECRET


@pytest.fixture
def folder(trained, tmp_path):
    shutil.copytree(trained / "a", tmp_path / "a")
    return tmp_path / "a"


def commands(folder, trained):
    """Everything that writes into a run folder."""
    files = [trained / "rows.csv", "--bag", "ward", "--proportions", trained / "wards.csv"]
    return (
        ["train", "--resume", folder, "--tensorboard"],
        ["report", folder, "--force"],
        ["train", *files, *QUICK, "--out", folder, "--force"],
    )


@pytest.mark.parametrize("hard", [False, True], ids=["soft", "hard"])
@pytest.mark.parametrize("end", ["", ".77.new"])
@pytest.mark.parametrize("name", FILES)
def test_nothing_is_written_through_a_link_in_the_place_of_a_file(
    folder, trained, tmp_path, name, end, hard
):
    outside, link = tmp_path / "outside", folder / f"{name}{end}"
    (folder / "evaluation.safetensors").unlink()  # so that there is something to do
    outside.write_text(SECRET)
    for command in commands(folder, trained):
        link.unlink(missing_ok=True)
        if hard:
            link.hardlink_to(outside)
        else:
            link.symlink_to(outside)
        result = run(*command)
        assert result.exit_code in (0, 1), result.output
        assert outside.read_text() == SECRET


def test_nothing_is_written_into_a_folder_that_a_link_leads_to(folder, trained, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "evaluation.safetensors").unlink()
    (folder / "tensorboard").symlink_to(outside)
    for command in commands(folder, trained)[:2]:
        run(*command)
    result = run(*commands(folder, trained)[0])
    assert list(outside.iterdir()) == []
    assert result.exit_code == 1
    assert "tensorboard is a link" in result.stderr


def test_a_log_that_is_a_link_is_named(folder, tmp_path):
    outside, held = tmp_path / "outside", Run(folder)
    held.log.rename(outside)
    held.log.symlink_to(outside)
    before = outside.read_bytes()
    for change in (lambda: held.append({"epoch": 4}), lambda: held.rewind(1)):
        with pytest.raises(RunError, match=r"log\.jsonl is a link, and nothing is written through"):
            change()
    assert outside.read_bytes() == before


def test_the_folder_itself_may_be_a_link(trained, tmp_path):
    files = write(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    for force in ([], ["--force"]):
        result = run("train", *files, *QUICK, "--out", tmp_path / "a", *force)
        assert result.exit_code == 0, result.output
    assert (tmp_path / "a").is_symlink()
    assert (tmp_path / "elsewhere" / "model.safetensors").exists()
