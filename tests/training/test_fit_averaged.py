"""Training with averaged weights: what decides, is validated and kept is the average."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from apportion.errors import ConfigError
from apportion.labels.leader import Leader
from apportion.methods.pseudo_labels import FPL
from apportion.model.model import Model
from apportion.runs.evaluation import read_evaluations
from apportion.runs.run import Run
from apportion.training import checkpoint
from apportion.training.fit import fit
from tests.training.interrupted_runs import (
    CONFIG,
    TRAIN,
    VALID,
    Interrupted,
    contents,
    identical,
    network,
    outcome,
    refusal,
    same_outcome,
    stop_after,
    train,
)

SLOW = replace(CONFIG, average=0.8)


def weights_of(net):
    return {name: value.detach().clone() for name, value in net.state_dict().items()}


def confidence_of(weights, bags):
    net = network()
    net.load_state_dict(weights)
    with torch.no_grad():
        return net.eval()(torch.from_numpy(bags.x[bags.index])).softmax(dim=1).numpy()


def test_weights_that_hardly_move_are_kept_near_the_start(monkeypatch):
    """All of them: those that are kept, that callbacks see, and that are validated."""
    monkeypatch.setattr("apportion.engine.averaged.WARM_UP", 0)  # few steps count as much as many
    start, seen, net = weights_of(network()), [], network()
    fit(
        net,
        TRAIN,
        VALID,
        config=replace(CONFIG, average=0.9999),
        on_epoch=lambda record, model: seen.append(weights_of(model)),
    )
    moved, plain = network(), weights_of(network())
    fit(moved, TRAIN, VALID, config=CONFIG)
    for name, _ in moved.named_parameters():
        far = (moved.state_dict()[name] - plain[name]).abs().max()
        assert far > 5e-3
        for weights in (*seen, weights_of(net)):
            assert (weights[name] - start[name]).abs().max() < 0.01 * far
    assert not net.training
    assert all(p.requires_grad and p.grad is None for p in net.parameters())


def test_labels_are_decided_and_the_error_is_measured_by_the_averaged_net():
    seen = []
    leader = Leader(TRAIN, eta=5 * CONFIG.epochs / 400)
    decided = []

    def look(record, model):
        weights = weights_of(model)
        decided.append(leader.decide(confidence_of(weights, TRAIN)).labels.copy())
        confidence = confidence_of(weights, VALID)
        means = confidence.reshape(-1, 6, 3).mean(axis=1)
        error = 0.5 * np.abs(means - VALID.proportions).sum(axis=1).mean()
        assert record["valid_error"] == pytest.approx(error, abs=1e-6)
        assert record["label_accuracy"] == pytest.approx((leader.labels == TRAIN.truth).mean())
        seen.append(weights)

    net = network()
    history = fit(net, TRAIN, VALID, config=SLOW, on_epoch=look)
    assert history.labels is not None
    assert history.labels.tolist() == decided[-1].tolist()
    best = int(np.argmin(history["valid_error"]))
    assert identical(weights_of(net), seen[best])


def test_training_itself_is_that_of_the_net_alone():
    """Without labels that are decided, the average changes nothing but what is kept."""
    losses = [
        fit(network(), TRAIN, method="proportion-loss", config=config)["loss"]
        for config in (CONFIG, SLOW)
    ]
    assert losses[0] == losses[1]


def late_selection(folder):
    """A run in which the first epoch is the best: a rate so large that all later ones are worse."""
    config = replace(CONFIG, learning_rate=3.0, average=0.3, epochs=3)
    net = network()
    history = train(folder, model=net, config=config)
    assert history.best_epoch is not None
    assert history.best_epoch < 3
    return net


def test_the_evaluation_is_of_the_selected_average_and_not_of_the_last_one(tmp_path):
    net = late_selection(tmp_path)
    assert identical(load_file(tmp_path / "model.safetensors"), weights_of(net))
    found = read_evaluations(Run(tmp_path))[1]["valid"]
    confidence = confidence_of(weights_of(net), VALID)
    np.testing.assert_allclose(
        found.predicted, confidence.reshape(-1, 6, 3).mean(axis=1), atol=1e-5
    )


@pytest.mark.parametrize("method", ["fpl", "proportion-loss", FPL(mixup=True, rows=True)])
def test_a_run_goes_on_bit_by_bit(tmp_path, method):
    whole = train(tmp_path / "whole", config=SLOW, method=method)
    with pytest.raises(Interrupted):
        train(tmp_path / "parts", config=SLOW, method=method, on_epoch=stop_after(2))
    found = train(tmp_path / "parts", config=SLOW, method=method)
    if method == "proportion-loss":
        whole.labels = found.labels = np.zeros(1)
    assert same_outcome(outcome(tmp_path / "whole", whole), outcome(tmp_path / "parts", found))
    evaluations = [
        (tmp_path / run / "evaluation.safetensors").read_bytes() for run in ("whole", "parts")
    ]
    assert evaluations[0] == evaluations[1]


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """A folder that was left after epoch 2 of 4, and the weights that a callback saw then."""
    folder, seen = tmp_path_factory.mktemp("left"), []

    def on_epoch(record, model):
        seen.append(weights_of(model))
        if record["epoch"] == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        train(folder, config=SLOW, on_epoch=on_epoch)
    return folder, seen[-1]


def test_the_last_model_of_an_unfinished_run_is_the_averaged_one(left):
    folder, seen = left
    tensors, _ = checkpoint.load(Run(folder))
    assert identical(tensors["model"], seen)
    assert not tensors["model"]["0.weight"].equal(tensors["followed"]["0.weight"])
    given = Model.load(folder, last=True, device="cpu", net=network()).predict_proba(VALID.x)
    np.testing.assert_allclose(given, confidence_of(seen, VALID), atol=1e-5)


def resaved(folder, tmp_path, change):
    """A copy of a run whose checkpoint has other tensors, and its right checksum."""
    shutil.copytree(folder, tmp_path / "run")
    run = Run(tmp_path / "run")
    tensors, scalars = checkpoint.load(run)
    change(tensors)
    own = {k: v for k, v in scalars.items() if k not in ("format", "kind", "checksum")}
    checkpoint.save(run, tensors, own)
    return tmp_path / "run"


def without(tensors):
    del tensors["followed"]


def other(tensors):
    tensors["followed"] = {"0.weight": torch.zeros(3)}


def infinite(tensors):
    tensors["followed"]["0.weight"][0] = torch.inf


@pytest.mark.parametrize("change", [without, other, infinite])
def test_a_checkpoint_without_the_net_that_was_followed_is_refused(left, tmp_path, change):
    folder = resaved(left[0], tmp_path, change)
    problem = refusal(folder, config=SLOW)
    words = "has values that are not finite" if change is infinite else "was saved from another net"
    assert words in problem


def test_a_checkpoint_of_a_run_without_an_average_has_no_second_net(folder, tmp_path):
    tensors, _ = checkpoint.load(Run(folder))
    assert "followed" not in tensors

    def more(tensors):
        tensors["followed"] = {name: value.clone() for name, value in tensors["model"].items()}

    again = resaved(folder, tmp_path / "more", more)
    assert "was saved from another net" in refusal(again)


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_another_average_is_refused(left, tmp_path, average):
    shutil.copytree(left[0], tmp_path / "run")
    problem = refusal(tmp_path / "run", config=replace(SLOW, average=average))
    assert f"average 0.8, not {average}" in problem


@pytest.mark.parametrize("average", [1, 1.5, -0.1, np.nan, "0.9"])
def test_an_average_that_makes_no_sense_is_refused(average):
    with pytest.raises(ConfigError, match="average must be a number from 0 to below 1; got"):
        replace(CONFIG, average=average)


def test_averaging_leaves_no_trace_in_a_finished_run(tmp_path):
    """Called again, it trains no more, and its files stay as they are."""
    train(tmp_path, config=SLOW)
    before, net = contents(tmp_path), network()
    history = train(tmp_path, config=SLOW, model=net)
    assert contents(tmp_path) == before
    assert history.n_epochs == CONFIG.epochs
    assert identical(weights_of(net), load_file(tmp_path / "model.safetensors"))


def test_without_validation_the_last_average_is_kept():
    net, seen = network(), []
    fit(net, TRAIN, config=SLOW, on_epoch=lambda record, model: seen.append(weights_of(model)))
    assert identical(weights_of(net), seen[-1])
