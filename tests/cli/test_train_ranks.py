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


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes in /proc")
def test_a_process_that_is_killed_ends_the_others_and_another_number_goes_on(tables):
    process = started(tables, 2, *TABLE, "--epochs", "25", "--out", "run")
    run, until = Run(tables / "run"), time.monotonic() + 60
    while len(run.records()) < 3 and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(rank_of(process, 1), signal.SIGKILL)
    killed = time.monotonic()
    code, out, err = ended(process)
    assert code != 0
    assert time.monotonic() - killed < 60
    (message,) = messages(err)
    assert message == "apportion: another of the 2 processes that train together has ended."
    done = read_header(run.checkpoint, "checkpoint")["epoch"]  # the log may be an epoch ahead
    assert len(run.records()) - 1 <= done >= 2
    code, out, err = ended(started(tables, 3, "train", "--resume", "run"))
    assert code == 0, err
    assert err.count("Going on after epoch") == 1
    assert f"Going on after epoch {done} of run." in err
    assert out.count("The model is in run.") == 1
    assert [record["epoch"] for record in run.records()] == [*range(1, 26)]


@pytest.mark.slow
def test_a_run_is_finished_by_another_number_of_processes(tables):
    for world, options in (
        (2, [*TABLE, "--epochs", "2", "--validation", "0.3", "--out", "run"]),
        (3, ["train", "--resume", "run", "--epochs", "4"]),
    ):
        code, out, err = ended(started(tables, world, *options))
        assert code == 0, err
        assert out.count("The model is in run.") == 1
    command = [sys.executable, "-m", "apportion", *TABLE, "--epochs", "4", "--eta", "0.025"]
    alone = [*command, "--validation", "0.3", "--out", "alone"]
    subprocess.run(alone, cwd=tables, env=ENVIRONMENT, check=True, capture_output=True)
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
    ],
)
def test_a_mistake_is_one_message_and_the_end_of_all(tables, options, message):
    code, out, err = ended(started(tables, 2, *TABLE, *options))
    assert code != 0
    (told,) = messages(err)
    assert told.startswith(f"apportion: {message}")
    assert not out
