"""How a report words methods and networks."""

import pytest

from apportion.methods.registry import METHODS, describe
from apportion.report.read import read_run
from apportion.report.words import method_in_words, network_in_words
from tests.report.made_runs import made_run


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fpl", "online pseudo labels (Follow the Perturbed Leader, η = 1.25)"),
        ("fpl-mean-map", "(Follow the Perturbed Leader, η = 1.25, first labels by a mean map)"),
        ("fpl-plain", "(Follow the Perturbed Leader, η = 1.25, plain unlikelihood)"),
        ("greedy", "greedy pseudo labels (no perturbation)"),
        ("naive", "naive pseudo labels (each epoch decides by its own confidences alone)"),
        ("proportion-loss", "proportion loss (cross-entropy)"),
        ("pi-model", "Π-model with proportion loss"),
        ("llp-vat", "LLP-VAT"),
        ("count-likelihood", "likelihood of the counts"),
    ],
)
def test_every_method_is_named_from_what_a_run_records(name, words):
    settings = describe(METHODS[name])
    eta = {"eta": 1.25 if settings.get("eta") is None else settings["eta"]}
    assert words in method_in_words({"method": settings, "resolved": eta})


def test_methods_are_known_by_their_names_and_others_by_whatever_they_are_called():
    assert method_in_words({"method": {"name": "fpl"}}, brief=True) == "online pseudo labels"
    assert method_in_words({"method": {"name": "llp-vat"}}) == "LLP-VAT"
    assert method_in_words({"method": {"name": "MyMethod"}}) == "MyMethod"


def test_a_network_is_named_with_what_its_model_says(tmp_path):
    known = made_run(tmp_path / "a", model={"recipe": {"net": "mlp", "hidden": [64, 32]}})
    assert network_in_words(read_run(known, "a")) == "mlp (64 → 32)"
    one = {"net": "mlp", "hidden": [8]}
    average = {"recipe": {"net": "average", "groups": [[one, one], [one]]}}
    assert network_in_words(read_run(made_run(tmp_path / "c", model=average), "c")) == (
        "average of 3 nets"
    )
    own = made_run(tmp_path / "b", model={"recipe": None})
    assert network_in_words(read_run(own, "b")) is None
