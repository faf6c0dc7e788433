"""What a report says in sentences: the method, the summary, and the notices."""

import json

import pytest

from apportion.methods.registry import METHODS, describe
from apportion.report.read import read_run
from apportion.report.words import commands, method_in_words, network_in_words, notices, summary
from tests.report.made_runs import made_evaluation, made_run


def noticed(run):
    return " ".join(" ".join(notice) for notice in notices(read_run(run, run.name)))


def summed_up(run):
    return " ".join(summary(read_run(run, run.name)))


def test_a_run_of_the_library_is_gone_on_with_by_the_library(tmp_path):
    found = noticed(made_run(tmp_path / "b", epochs=12, epochs_wanted=100))
    assert "12 of 100 epochs" in found
    assert "call fit again with this folder" in found
    assert "--resume" not in found


def test_an_early_stop_is_an_end(tmp_path):
    evaluations = {"train": made_evaluation(5, 2), "valid": made_evaluation(3, 2)}
    run = made_run(tmp_path / "a", evaluations, epochs=12, epochs_wanted=100, patience=3)
    assert "Not finished" not in noticed(run)
    assert "stopped early: the validation error had not improved for 3 epochs" in summed_up(run)
    ended = made_run(tmp_path / "b", evaluations, epochs=12, epochs_wanted=100)
    assert "It was ended early, by the program that trained it." in summed_up(ended)


def test_all_epochs_without_an_evaluation_are_told(tmp_path):
    found = noticed(made_run(tmp_path / "a", epochs=12))
    assert "evaluation.safetensors" in found
    assert "Not finished" not in found


def test_a_validation_error_that_still_falls_is_told(tmp_path):
    evaluations = {"train": made_evaluation(5, 2), "valid": made_evaluation(3, 2)}
    for last, expected in ((0.01, True), (0.5, False)):
        run = made_run(tmp_path / str(last), evaluations, epochs=4)
        records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        records[-1]["valid_error"] = last
        (run / "log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
        assert ("more epochs may lower it" in noticed(run)) == expected


def test_a_model_no_better_than_guessing_is_called_so(tmp_path):
    train, valid = made_evaluation(9, 3), made_evaluation(9, 3, seed=1, noise=1.0)
    for name, own, expected in (("a", valid, True), ("b", made_evaluation(9, 3, seed=1), False)):
        run = made_run(tmp_path / name, {"train": train, "valid": own})
        assert ("no better than the mean of the training bags" in noticed(run)) == expected


def test_without_validation_the_last_epoch_is_kept(tmp_path):
    run = made_run(tmp_path / "a", {"train": made_evaluation(5, 3)}, validated=False)
    assert "no validation bags. The last epoch was kept" in noticed(run)
    assert "on the training bags only" in noticed(run)
    assert "was selected" not in summed_up(run)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fpl", "online pseudo labels (Follow the Perturbed Leader, η = 1.25)"),
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


def test_commands_are_those_of_runs_of_the_command_line(tmp_path):
    about = {"data": {"kind": "table"}}
    run = made_run(tmp_path / "a b", epochs=2, epochs_wanted=9, about=about)
    found = [command for _, command in commands(read_run(run, "a"))]
    assert found[0] == f"apportion train --resume '{run}'"
    assert found[1].startswith(f"apportion train '{run}/config.toml' --out ")
    assert commands(read_run(made_run(tmp_path / "c"), "c")) == []
