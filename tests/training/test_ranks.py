"""Processes that torchrun starts train as one does, by every method."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from apportion.engine.distributed import Ranks
from apportion.errors import ConfigError
from apportion.methods.registry import METHODS
from apportion.training.ranks import check_still_alike
from tests.training.small_training import network

SCRIPT = Path(__file__).with_name("ranked_runs.py")
EXACT = ["known:all", "known:few", "known:decide", "known:joint"]
ALIKE = [*(f"method:{name}" for name in METHODS), "method:fpl/8", "method:count-likelihood/8",
         "augmented:strong", "augmented:proportion-loss", "bags:two", "bags:singles"]  # fmt: skip
OWN = ["net:batchnorm", "net:dropout", "shard:fpl", "shard:noise", "shard:mixup"]


def together(folder, world, cases, wide=False, script=SCRIPT, **further):
    """Run cases in so many processes of torchrun; return what each has got, by its number."""
    command = [sys.executable]
    if world > 1 or "ONE" in further:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={world}"]
    folder.mkdir()
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    environment |= further | ({"WIDE": "1"} if wide else {})
    done = subprocess.run(
        [*command, str(script), str(folder), *cases],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def check_alike(alone, several, tolerance):
    """Check that several processes have the same to the bit, and that of one nearly."""
    first, *others = several
    for case, known in alone.items():
        assert all(other[case] == first[case] for other in others), case
        for ours, theirs in zip(known["records"], first[case]["records"], strict=True):
            assert ours.keys() == theirs.keys()
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=tolerance), case
        weights = [np.concatenate([*own["weights"].values()]) for own in (known, first[case])]
        distance = np.linalg.norm(weights[0] - weights[1]) / np.linalg.norm(weights[0])
        assert distance < tolerance, case


def check_exact(alone, several):
    """Check that all that follows from confidences is the same to the bit."""
    for case in EXACT:
        for other in several:
            assert other[case]["labels"] == alone[case]["labels"]
            for ours, theirs in zip(alone[case]["records"], other[case]["records"], strict=True):
                for name in ours.keys() - {"loss", "regret"}:
                    assert ours[name] == theirs[name], (case, name)
                assert ours["regret"] == pytest.approx(theirs["regret"], rel=1e-12)


def test_two_processes_learn_what_one_learns(tmp_path):
    cases = [*ALIKE, *EXACT, *OWN]
    (alone,) = together(tmp_path / "alone", 1, cases, wide=True)
    several = together(tmp_path / "two", 2, cases, wide=True)
    assert len(several) == 2
    check_alike({case: alone[case] for case in ALIKE}, several, 1e-9)
    check_exact(alone, several)
    for case in OWN:  # nets that see shares are not those of one process, but the same everywhere
        assert several[0][case] == several[1][case]
        assert np.isfinite(several[0][case]["records"][-1]["loss"])
    assert alone["shard:fpl"] == alone["method:fpl"]
    assert several[0]["shard:fpl"]["records"][0]["loss"] != alone["shard:fpl"]["records"][0]["loss"]


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
def test_nccl_with_one_process_gives_what_a_gpu_alone_gives(tmp_path):
    """Two would need two GPUs: here one process says to itself what several say to each other.

    Without BatchNorm: the gradient of a bias before it is rounding alone, and Adam steps by it.
    """
    cases = ["method:fpl", "method:strong", "method:count-likelihood", "method:llp-vat", *EXACT,
             "method:fpl/8", "augmented:strong", "bags:singles"]  # fmt: skip
    given = {"PRECISE": "1", "NVIDIA_TF32_OVERRIDE": "0"}
    (alone,) = together(tmp_path / "alone", 1, cases, **given)
    (nccl,) = together(tmp_path / "nccl", 1, [*cases, "door:backend"], ONE="1", **given)
    assert nccl.pop("door:backend") == "nccl"
    check_alike({case: alone[case] for case in cases if case not in EXACT}, [nccl], 1e-4)
    check_exact(alone, [nccl])


@pytest.mark.slow
@pytest.mark.parametrize(("world", "wide"), [(2, False), (3, False), (3, True)])
def test_processes_learn_what_one_learns(tmp_path, world, wide):
    cases = [*ALIKE, *EXACT, *OWN]
    (alone,) = together(tmp_path / "alone", 1, cases, wide=wide)
    several = together(tmp_path / "several", world, cases, wide=wide)
    assert len(several) == world
    check_alike({case: alone[case] for case in ALIKE}, several, 1e-9 if wide else 1e-4)
    check_exact(alone, several)
    assert all(other["net:batchnorm"] == several[0]["net:batchnorm"] for other in several)


@pytest.mark.slow
def test_layers_of_any_type_are_shared_but_for_sparse_gradients(tmp_path):
    cases = ["layers:lazy", "layers:types", "layers:sparse"]
    (alone,) = together(tmp_path / "alone", 1, cases[:2])
    several = together(tmp_path / "two", 2, cases)
    told = [own.pop("layers:sparse") for own in several]
    check_alike(alone, several, 1e-4)
    message = "ConfigError: the gradients of 2 are sparse, which 2 processes cannot sum."
    assert [own.partition("\n")[0] for own in told] == [message] * 2


@pytest.mark.slow
def test_a_table_is_read_by_one_process_unless_its_bags_cannot_be_written(tmp_path):
    cases = ["door:shared", "door:dates"]
    (alone,) = together(tmp_path / "alone", 1, cases)
    first, second = together(tmp_path / "two", 2, cases)
    for case in cases:
        assert first[case]["loss"] == second[case]["loss"]
        assert first[case]["loss"] == pytest.approx(alone[case]["loss"], rel=1e-4)
    calls = [[own[case]["calls"] for own in (alone, first, second)] for case in cases]
    assert calls == [[1, 1, 0], [1, 2, 1]]


@pytest.mark.slow
def test_what_one_process_alone_is_given_is_an_error_and_no_wait(tmp_path):
    names = ["functions", "known truths", "run folder", "net", "weights"]
    first, second = together(tmp_path / "two", 2, [f"apart:{name}" for name in names])
    for name in names:
        are = "are not those" if name.endswith("s") else "is not that"
        message = f"ConfigError: the {name} of process 1 of 2 {are} of process 0"
        assert second[f"apart:{name}"].startswith(message)
        assert first[f"apart:{name}"].startswith("RunError: another of the 2 processes")
    assert not (tmp_path / "two" / "run").exists()


@pytest.mark.slow
def test_when_a_checkpoint_is_due_is_said_by_the_first_process(tmp_path):
    """Each clock that is looked at goes on by 200 seconds, and a checkpoint is due after 300."""
    for own in together(tmp_path / "two", 2, ["slow:0", "slow:1"]):
        assert own == {"slow:0": [2, 4, 5], "slow:1": [5]}


@pytest.mark.slow
def test_every_door_trains_together_and_other_bags_are_refused(tmp_path):
    cases = ["door:classifier", "door:many", "door:ended", "door:within", "shard:bags",
             "door:others"]  # fmt: skip
    (alone,) = together(tmp_path / "alone", 1, cases)
    first, second = together(tmp_path / "two", 2, cases)
    for name in cases[:3]:
        assert first[name] == second[name]
    np.testing.assert_allclose(first["door:classifier"], alone["door:classifier"], atol=1e-4)
    for ours, theirs in zip(alone["door:many"], first["door:many"], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)
    assert first["door:ended"] == [2, "on_epoch"]
    assert first["door:within"][1] == alone["door:within"][1]  # what on_epoch trains by itself
    assert second["door:within"] == [first["door:within"][0], []]
    assert len(second["door:within"][0]) == 2
    message = "shuffle is 'shard', but the method learns from whole bags, "
    assert all(own["shard:bags"].startswith(f"ConfigError: {message}") for own in (first, second))
    message = "the training bags of process 1 of 2 are not those of process 0."
    assert second["door:others"].startswith(f"ConfigError: {message}")
    assert first["door:others"].startswith("RunError: another of the 2 processes")


# ------------------------------------------------------------------ checks, in a single process


def told_by(net):
    """Return the second of two ranks, of which the first has a net."""
    told = []

    class First(Ranks):
        def told(self, value, rank=0):
            told.append(value)
            return value

        def wait(self):
            return

    check_still_alike(First(0, 2), net, 1)

    class Second(First):
        def told(self, value, rank=0):
            return told[0]

    return Second(1, 2)


@pytest.mark.parametrize("change", ["weight", "frozen"])
def test_weights_that_one_process_alone_has_changed_are_an_error(change):
    net = network()
    ranks = told_by(net)
    check_still_alike(ranks, net, 3)
    weight = next(net.parameters())
    with torch.no_grad():
        weight *= 1 + 1e-7  # as machines may round otherwise
        check_still_alike(ranks, net, 3)
        weight *= 1.01 if change == "weight" else 1
    weight.requires_grad_(change == "weight")
    what = "weights" if change == "weight" else "weights to train"
    message = f"the {what} of process 1 of 2 are not those of process 0 after epoch 3"
    with pytest.raises(ConfigError, match=message) as raised:
        check_still_alike(ranks, net, 3)
    assert "scheduler=" in str(raised.value)


def test_weights_that_are_not_finite_are_no_difference_of_processes():
    net = network()
    with torch.no_grad():
        next(net.parameters()).fill_(torch.nan)
    check_still_alike(told_by(net), net, 1)
