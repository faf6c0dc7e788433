"""The examples run, and show what they say they show."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from scipy.stats import spearmanr

from apportion.engine.device import own_threads
from apportion.labels.leader import Leader
from apportion.methods.pseudo_labels import FPL, PseudoLabels
from apportion.testing import Training, toy_bags, toy_net

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_every_example_is_tested_here():
    tested = {"choose_eta.py", "own_loop.py", "transformer.py"}
    assert {file.name for file in EXAMPLES.glob("*.py")} == tested


def test_a_good_eta_is_found_without_truth():
    example = runpy.run_path(str(EXAMPLES / "choose_eta.py"))
    with own_threads(1), sklearn.config_context(enable_metadata_routing=True):
        search, accuracies = example["search"]()
    settings = search.cv_results_["params"]
    chosen = accuracies[settings.index(search.best_params_)]
    assert chosen > 0.9
    assert chosen >= max(accuracies) - 0.02
    assert min(accuracies) < chosen - 0.1  # there was something to lose
    # What the search goes by and what it cannot see rank the settings alike.
    assert spearmanr(search.cv_results_["mean_test_score"], accuracies).statistic > 0.7


def test_a_loop_of_ones_own_learns_digits_from_counts(capsys):
    example = runpy.run_path(str(EXAMPLES / "own_loop.py"))
    with own_threads(1):
        accuracy = example["main"]()
    assert accuracy > 0.95
    assert f"{accuracy:.1%} of the digits are recognised" in capsys.readouterr().out


def test_a_transformer_learns_in_fewer_than_forty_lines(capsys):
    path = EXAMPLES / "transformer.py"
    assert len(path.read_text("utf-8").splitlines()) < 40
    with own_threads(1):
        runpy.run_path(str(path))["main"]()
    share, _, said = capsys.readouterr().out.partition("% ")
    assert said == "of the sentences of other bags are recognised\n"
    assert float(share) > 95  # the more frequent class has little more than half


@pytest.mark.parametrize("first", ["random", "decide"])
@pytest.mark.parametrize("eta", [0.0, 0.7])
def test_a_leader_that_is_told_what_fit_saw_decides_what_fit_decided(eta, first, monkeypatch):
    seen: list[Any] = []
    decide = PseudoLabels.epoch_end

    def spy(self, epoch, confidence):
        seen.append(confidence.numpy().copy())
        return decide(self, epoch, confidence)

    monkeypatch.setattr(PseudoLabels, "epoch_end", spy)
    bags = toy_bags()
    found = Training(toy_net(bags), bags, FPL(eta=eta, first=first), epochs=6, seed=11)
    leader = Leader(bags, eta=eta, first=first, seed=11)
    decided = [leader.decide(confidence).labels.copy() for confidence in seen]
    assert len(seen) == 6 + (first == "decide")
    labels = [labels.numpy() for labels in found.labels]
    assert np.array_equal(decided[-6:], labels)
    assert len({tuple(row) for row in labels}) > 2  # there was something to decide
