"""The examples run, and show what they say they show."""

import runpy
from pathlib import Path

import sklearn
from scipy.stats import spearmanr

from apportion.engine.device import own_threads

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_every_example_is_tested_here():
    assert [file.name for file in EXAMPLES.glob("*.py")] == ["choose_eta.py"]


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
