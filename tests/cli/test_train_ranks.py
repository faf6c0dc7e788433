"""`torchrun -m apportion train`: one folder, one log, one message, and an end for all."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

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
    (folder / "tmp").mkdir(exist_ok=True)
    own = {**ENVIRONMENT, "TMPDIR": str(folder / "tmp")}
    return subprocess.Popen(command, cwd=folder, env=own, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def stores(folder):
    """Return the folders that processes share: one, from when reading begins until all have it."""
    return sorted((folder / "tmp").glob("apportion-*"))


def ended(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def messages(err):
    return [line for line in err.splitlines() if line.startswith("apportion: ")]


def anonymous(pid):
    """Return how much memory a process has that is no file's, in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


def ranks_of(process, world):
    """Return the processes of all ranks, which torchrun has started with their numbers, or none."""
    found: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            known = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(parent) == process.pid:
            found |= {r: int(folder.name) for r in range(world) if f"RANK={r}".encode() in known}
    return [found[rank] for rank in range(world)] if len(found) == world else []


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
    os.kill(ranks_of(process, 2)[1], signal.SIGKILL)
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


def until(holds, seconds=60):
    """Wait until something holds, and return it."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end
        time.sleep(0.001)
    return found


@pytest.fixture
def parquet(tables):
    """The same rows as a folder of three Parquet files, and another column, of words."""
    rows = pd.read_csv(tables / "rows.csv")
    rows["b"] = np.random.default_rng(1).choice(["x", "y"], len(rows))
    (tables / "rows").mkdir()
    for k in range(3):
        rows[k * 100 : (k + 1) * 100].to_parquet(tables / f"rows/{k}.parquet", index=False)
    return tables


OF_PARQUET = ["train", "rows", *TABLE[2:]]


def test_a_folder_of_parquet_is_read_once_and_learned_from_as_by_one_process(parquet):
    options = [*OF_PARQUET, "--epochs", "2", "--validation", "0.3"]
    code, _, err = ended(started(parquet, 2, *options, "--out", "two"))
    assert code == 0, err
    assert not stores(parquet)
    command = [sys.executable, "-m", "apportion", *options, "--out", "alone"]
    subprocess.run(command, cwd=parquet, env=ENVIRONMENT, check=True, capture_output=True)
    two, alone = (Run(parquet / name) for name in ("two", "alone"))
    states = [load_file(run.checkpoint) for run in (two, alone)]
    labels = [state["method.labels"].tolist() for state in states]
    assert labels[0] == labels[1]
    for name, known in states[1].items():
        if name.startswith("model."):
            np.testing.assert_allclose(states[0][name], known, rtol=1e-4, atol=1e-5)
    about = [read_header(run.checkpoint, "checkpoint") for run in (two, alone)]
    assert about[0]["identity"] == about[1]["identity"]
    assert about[0]["columns"] == about[1]["columns"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks into /proc")
def test_processes_map_the_same_files_which_have_no_name_any_more(parquet):
    process = started(parquet, 2, *OF_PARQUET, "--epochs", "1000", "--out", "run")
    until(lambda: len(Run(parquet / "run").records()) > 1)
    assert not stores(parquet)
    pids = ranks_of(process, 2)
    maps = [Path(f"/proc/{pid}/maps").read_text().splitlines() for pid in pids]
    for name in ("rows/numbers.npy", "rows/codes.npy", "train.index.npy"):
        lines = [[line.split() for line in own if f"{name} (deleted)" in line] for own in maps]
        ((first,), (second,)) = lines
        assert first[3:5] == second[3:5]  # device and inode
    process.terminate()
    ended(process)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes in /proc")
@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_nothing_is_left_if_a_process_is_killed_while_the_first_reads(parquet, rank):
    process = started(parquet, 2, *OF_PARQUET, "--epochs", "1000", "--out", "run")
    ranks = until(lambda: ranks_of(process, 2))
    until(lambda: stores(parquet))
    os.kill(ranks[0], signal.SIGSTOP)
    assert stores(parquet)
    os.kill(ranks[rank], signal.SIGKILL)
    if rank:
        os.kill(ranks[0], signal.SIGCONT)
    code, _, err = ended(process)
    assert code != 0
    (message,) = messages(err)
    assert message == "apportion: another of the 2 processes that train together has ended."
    assert not stores(parquet)


@pytest.mark.slow
def test_rows_that_cannot_be_read_are_one_message_and_leave_nothing(parquet):
    bad = pd.read_parquet(parquet / "rows/1.parquet")
    bad.loc[50, "a"] = np.inf
    bad.to_parquet(parquet / "rows/1.parquet", index=False)
    code, out, err = ended(started(parquet, 2, *OF_PARQUET, "--epochs", "1"))
    assert code != 0
    (message,) = messages(err)
    assert message.startswith("apportion: rows: column 'a' is inf in row 150 ")
    assert not out
    assert not stores(parquet)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="measures memory in /proc")
def test_a_process_has_in_memory_only_what_it_needs_of_many_rows(tmp_path):
    n, n_bags, rng = 6_000_000, 6000, np.random.default_rng(0)
    bag, truth = rng.integers(n_bags, size=n, dtype=np.int32), rng.integers(2, size=n)
    x = {name: truth + rng.standard_normal(n, dtype=np.float32) for name in "abcd"}
    (tmp_path / "rows").mkdir()
    rows = pd.DataFrame({"ward": bag, **x})
    rows.to_parquet(tmp_path / "rows/0.parquet", index=False, row_group_size=200_000)
    ones = np.bincount(bag, truth, n_bags).astype(int)
    wards = {"no": np.bincount(bag, minlength=n_bags) - ones, "yes": ones}
    pd.DataFrame({"ward": np.arange(n_bags), **wards}).to_csv(tmp_path / "wards.csv", index=False)
    options = ["--counts", "--epochs", "1", "--batch-size", "8192", "--device", "cpu"]
    process = started(tmp_path, 2, *OF_PARQUET, *options, "--out", "run")
    until(lambda: stores(tmp_path))  # both have started
    pids = ranks_of(process, 2)
    most = dict.fromkeys(pids, 0)
    while process.poll() is None:
        for pid in pids:
            most[pid] = max(most[pid], anonymous(pid))
        time.sleep(0.02)
    code, _, err = ended(process)
    assert code == 0, err
    assert max(most.values()) < 400 * 2**20 + 80 * n, most


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
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize("of", [(0, 1), (0, 1, 1), (0, 0)])
def test_ctrl_c_is_told_once_and_leaves_a_run_to_go_on_with(tables, of):
    """The second Ctrl-C ends a process at once; the first one has then lost it, and is stopped."""
    slow = ["--batch-size", "2", "--epochs", "9000"]
    process = started(tables, 2, *TABLE, *slow, "--out", "run")
    run = Run(tables / "run")
    until(lambda: len(run.records()) > 1)
    pids = ranks_of(process, 2)
    for rank in of:
        os.kill(pids[rank], signal.SIGINT)
        time.sleep(0.02)  # or two signals become one
    code, out, err = ended(process)
    assert code != 0
    assert not out
    assert err.count("Stopping after this epoch or net") == 1
    assert err.count("Stopped after") == 1
    assert err.count("apportion train --resume run") == 1
    assert not messages(err)


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*TABLE, "--epoch", "3"], "No such option: --epoch"),
        ([*TABLE, "--epochs", "many"], "Invalid value for '--epochs'"),
        (["trian"], "No such command 'trian'"),
        (["--debgu", *TABLE], "No such option: --debgu"),
    ],
)
def test_what_the_parser_refuses_is_told_once(tables, arguments, message):
    code, out, err = ended(started(tables, 2, *arguments))
    assert code != 0
    assert err.count(message) == 1
    assert not out
