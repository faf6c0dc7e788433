"""`torchrun -m apportion train`: one folder, one log, one message, and an end for all."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from apportion.runs.header import read_header
from apportion.runs.run import Run
from tests.faults.killing import left_behind

SOURCE = str(Path(__file__).parents[2] / "src")
ENVIRONMENT = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
TABLE = ["train", "rows.csv", "--bag", "ward", "--proportions", "wards.csv", "--method", "fpl"]


@pytest.fixture
def tables(tmp_path):
    rng = np.random.default_rng(0)
    ward, truth = rng.integers(7, size=300), rng.integers(2, size=300)
    rows = [f"w{w},{y + rng.normal():.3f}" for w, y in zip(ward, truth, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["ward,a", *rows]))
    shares = [(w, truth[ward == w].mean()) for w in range(7)]
    wards = [f"w{w},{1 - share:.9f},{share:.9f}" for w, share in shares]
    (tmp_path / "wards.csv").write_text("\n".join(["ward,no,yes", *wards]))
    return tmp_path


def started(folder, world, *arguments):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc_per_node={world}", "-m", "apportion", *arguments]
    return subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def ended(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def messages(err):
    return [line for line in err.splitlines() if line.startswith("apportion: ")]


def rank_of(process, rank):
    """Return the process of a rank: torchrun has started it with its number."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            known = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(parent) == process.pid and f"RANK={rank}".encode() in known:
            return int(folder.name)
    raise AssertionError(rank)


def alone(folder, *arguments):
    """Run apportion in a single process."""
    command = [sys.executable, "-m", "apportion", *arguments]
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def killed_after(process, records, run):
    """Kill the second process when a run has so many records; return what all have said."""
    until = time.monotonic() + 60
    while len(run.records()) < records and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(rank_of(process, 1), signal.SIGKILL)
    killed = time.monotonic()
    code, _, err = ended(process)
    assert code != 0
    assert time.monotonic() - killed < 60
    (message,) = messages(err)
    assert message == "apportion: another of the 2 processes that train together has ended."


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes in /proc")
def test_a_process_that_is_killed_ends_the_others_and_another_number_goes_on(tables):
    process = started(tables, 2, *TABLE, "--epochs", "25", "--out", "run")
    run = Run(tables / "run")
    killed_after(process, 3, run)
    done = read_header(run.checkpoint, "checkpoint")["epoch"]  # the log may be an epoch ahead
    assert len(run.records()) - 1 <= done >= 2
    code, out, err = ended(started(tables, 3, "train", "--resume", "run"))
    assert code == 0, err
    assert err.count("Going on after epoch") == 1
    assert f"Going on after epoch {done} of run." in err
    assert out.count("The model is in run.") == 1
    assert [record["epoch"] for record in run.records()] == [*range(1, 26)]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes in /proc")
def test_the_default_for_tables_is_shared_killed_and_gone_on_with(tables):
    """It leaves what one process does, to the bit."""
    run = Run(tables / "run")
    killed_after(started(tables, 2, *TABLE[:-2], "--out", "run"), 2, run)
    assert 2 <= len(run.records()) < 10
    code, out, err = ended(started(tables, 3, "train", "--resume", "run"))
    assert code == 0, err
    assert err.count("Going on after net") == 1
    assert err.count("net 10/10") == 1
    assert out.count("The model is in run.") == 1
    alone(tables, *TABLE[:-2], "--out", "alone")
    assert left_behind(tables / "run") == left_behind(tables / "alone")
    code, out, err = ended(started(tables, 2, "train", "--resume", "run"))
    assert (code, out) == (0, "run is finished: 10 nets. There is nothing to do.\n")
    alone(tables, "predict", "run", "rows.csv", "--out", "predictions.csv")
    alone(tables, "report", "run")
    assert len((tables / "predictions.csv").read_text().splitlines()) == 301
    assert run.report.exists()


@pytest.mark.slow
def test_a_run_is_finished_by_another_number_of_processes(tables):
    for world, options in (
        (2, [*TABLE, "--epochs", "2", "--validation", "0.3", "--out", "run"]),
        (3, ["train", "--resume", "run", "--epochs", "4"]),
    ):
        code, out, err = ended(started(tables, world, *options))
        assert code == 0, err
        assert out.count("The model is in run.") == 1
    alone(
        tables, *TABLE, "--epochs", "4", "--eta", "0.025", "--validation", "0.3", "--out", "alone"
    )
    losses = [[r["loss"] for r in Run(tables / name).records()] for name in ("run", "alone")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert not Run(tables / "run").foreign()
    code, out, err = ended(started(tables, 2, "train", "--resume", "run"))
    assert (code, out) == (0, "run is finished: 4 epochs. There is nothing to do.\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bag", "parish"], "rows.csv has no column 'parish'."),
        (["--epochs", "0"], "epochs must be an integer ≥ 1; got 0."),
        (["--out", "rows.csv"], "--out rows.csv is a file."),
        (["--method", "linear", "--epochs", "3"], "epochs is 3, which has no meaning for"),
    ],
)
def test_a_mistake_is_one_message_and_the_end_of_all(tables, options, message):
    code, out, err = ended(started(tables, 2, *TABLE, *options))
    assert code != 0
    (told,) = messages(err)
    assert told.startswith(f"apportion: {message}")
    assert not out
