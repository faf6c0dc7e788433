"""Within a training: which epoch is selected, how each step is taken, and what stops it."""

import itertools
import logging
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from apportion.config import TrainConfig
from apportion.errors import BagError, RunError
from apportion.methods.pseudo_labels import FPL
from apportion.runs.run import Run
from apportion.training.fit import fit
from apportion.training.job import Job
from apportion.training.session import Session
from tests.training.small_training import (
    CONFIG,
    METHODS,
    TEST,
    TRAIN,
    VALID,
    Album,
    Rates,
    accuracy_of,
    error_of,
    identical,
    linear,
    network,
    refusal,
    some_bags,
    weights_of,
    without_times,
)

# -------------------------------------------------------------------------------------- selection


@pytest.mark.parametrize("method", METHODS)
def test_the_model_ends_with_the_weights_of_least_validation_error(method):
    """The errors are computed anew, in float64, from copies of each epoch's weights."""
    album, model = Album(), network()
    config = replace(CONFIG, epochs=15, learning_rate=0.1)
    history = fit(model, TRAIN, VALID, method=method, config=config, on_epoch=album)
    errors = [error_of(weights, VALID) for weights in album.weights]
    np.testing.assert_allclose(history["valid_error"], errors, atol=1e-6)

    best = int(np.argmin(errors))
    assert best < 14  # a training whose last epoch is the best would tell nothing
    assert history.best_epoch == best + 1
    assert history.best_error == history["valid_error"][best]
    assert identical(weights_of(model), album.weights[best])
    assert not identical(album.weights[best], album.weights[-1])
    assert not model.training


def test_selection_is_by_the_proportions_as_given():
    """Not by whole counts: 1 in 3 instances is 0.33, whatever the survey said."""
    exact = replace(VALID, proportions=VALID.counts / VALID.sizes[:, None])
    album = Album()
    history = fit(network(), TRAIN, VALID, config=CONFIG, on_epoch=album)
    ours, theirs = ([error_of(w, bags) for w in album.weights] for bags in (VALID, exact))
    np.testing.assert_allclose(history["valid_error"], ours, atol=1e-6)
    assert not np.allclose(ours, theirs, atol=1e-3)


def test_of_equal_errors_the_first_is_selected():
    """A network whose output never changes is as good after each epoch as after the first."""

    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return 0 * self.weight + torch.zeros(len(x), 3)

    history = fit(Constant(), TRAIN, VALID, config=CONFIG)
    assert len(set(history["valid_error"])) == 1
    assert history.best_epoch == 1


def test_without_validation_the_last_model_is_kept_and_the_log_says_so(caplog):
    album, model = Album(), network()
    with caplog.at_level(logging.INFO, logger="apportion"):
        history = fit(model, TRAIN, config=CONFIG, on_epoch=album)
    said = "No validation bags: nothing is selected, and the last model is kept."
    assert caplog.messages.count(said) == 1
    assert history.best_epoch is None
    assert identical(weights_of(model), album.weights[-1])
    assert all("valid_error" not in record for record in history.records)
    assert "no selection" in repr(history)


def test_with_validation_the_log_says_nothing_of_it(caplog):
    with caplog.at_level(logging.INFO, logger="apportion"):
        history = fit(network(), TRAIN, VALID, config=CONFIG)
    assert not any("validation bags" in message for message in caplog.messages)
    assert repr(history) == f"History(6 epochs, epoch {history.best_epoch} selected)"


@pytest.mark.parametrize("patience", [1, 3])
def test_training_stops_when_the_error_has_not_improved_for_so_long(patience):
    config = replace(CONFIG, epochs=60, learning_rate=0.3)
    whole = fit(network(), TRAIN, VALID, config=config)["valid_error"]
    best, stop = 0, None  # the rule, written out
    for t, error in enumerate(whole):
        if error < whole[best]:
            best = t
        if t - best >= patience:
            stop = t + 1
            break
    assert stop is not None
    assert stop < 60

    album, model = Album(), network()
    patient = replace(config, patience=patience)
    history = fit(model, TRAIN, VALID, config=patient, on_epoch=album)
    assert history.n_epochs == stop
    assert history["valid_error"] == whole[:stop]  # until then nothing is different
    assert history.best_epoch == stop - patience == best + 1
    assert identical(weights_of(model), album.weights[best])


@given(
    st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.4]), min_size=1, max_size=12),
    st.none() | st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_any_course_of_errors_is_stopped_and_selected_by_the_rule(errors, patience):
    config = replace(CONFIG, epochs=10, patience=patience)
    net = linear()
    session = Session(Job(net, TRAIN, VALID, config=config), torch.device("cpu"))
    n_epochs = len(errors)
    for epoch, error in enumerate(errors, start=1):
        if session.is_finished():
            n_epochs = epoch - 1
            break
        nn.init.constant_(net.bias, epoch)
        session.keep({"epoch": epoch, "valid_error": error})
    done = errors[:n_epochs]
    best = done.index(min(done)) + 1  # the first of the least
    assert (session.history.best_epoch, session.history.best_error) == (best, min(done))
    assert session.selected["bias"].tolist() == [best] * 3
    idle = [t - done[:t].index(min(done[:t])) - 1 for t in range(1, n_epochs + 1)]
    assert session.is_finished() == (n_epochs >= 10 or (patience or 99) <= idle[-1])
    assert all(since < (patience or 99) for since in idle[:-1])


# ------------------------------------------------------------------------------------ the optimiser


@pytest.mark.parametrize(
    ("schedule", "warmup"), [("constant", 0), ("constant", 0.5), ("cosine", 0.25)]
)
def test_schedule_and_warmup_reach_every_step(schedule, warmup):
    config = replace(CONFIG, epochs=4, batch_size=30, schedule=schedule, warmup=warmup)
    with Rates() as rates:
        fit(linear(), TRAIN, config=config)
    assert len(rates.seen) == 4 * 3  # 90 instances, 30 a step
    for s, rate in enumerate(rates.seen):
        progress = s / 12
        if progress < warmup:
            wanted = 0.02 * progress / warmup
        elif schedule == "constant":
            wanted = 0.02
        else:
            wanted = 0.01 * (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup)))
        assert rate == pytest.approx(wanted, rel=1e-12)


def test_a_rate_of_almost_nothing_moves_almost_nothing():
    before = weights_of(linear())
    model = linear()
    fit(model, TRAIN, config=replace(CONFIG, learning_rate=1e-12))
    for name, value in weights_of(model).items():
        assert (value - before[name]).abs().max() < 1e-6


def test_weight_decay_shrinks_weights_beside_the_gradient_step():
    """One step of AdamW: w - lr * decay * w, then Adam's step, which does not know of the decay."""
    config = replace(CONFIG, epochs=1, batch_size=1000, learning_rate=0.01)
    start, plain, decayed = (linear() for _ in range(3))
    fit(plain, TRAIN, config=config)
    fit(decayed, TRAIN, config=replace(config, weight_decay=0.5))
    wanted = plain.weight - 0.01 * 0.5 * start.weight
    torch.testing.assert_close(decayed.weight, wanted, rtol=0, atol=1e-7)
    assert (decayed.weight - plain.weight).abs().max() > 1e-4


def test_without_decay_the_optimiser_is_adam():
    """The first step of Adam, with bias correction, moves each weight by the rate, up or down."""
    start, model = linear(), linear()
    fit(model, TRAIN, config=replace(CONFIG, epochs=1, batch_size=1000, learning_rate=0.01))
    moved = (model.weight - start.weight).abs()
    torch.testing.assert_close(moved, torch.full_like(moved, 0.01), rtol=1e-3, atol=0)


@pytest.mark.parametrize(("method", "steps"), [("fpl", 2), ("proportion-loss", 3)])
def test_the_papers_preset_takes_512_instances_or_4_bags_a_step(method, steps):
    bags = some_bags(3, n=700, size=70)
    config = TrainConfig.preset("paper", epochs=2, device="cpu", threads=1)
    with Rates() as rates:
        fit(linear(), bags, method=method, config=config)
    assert rates.seen == [3e-4] * (2 * steps)


def test_frozen_parameters_stay():
    model = network()
    model[0].requires_grad_(False)
    before = weights_of(model)
    fit(model, TRAIN, config=replace(CONFIG, weight_decay=0.1))
    after = weights_of(model)
    assert identical({"w": before["0.weight"]}, {"w": after["0.weight"]})
    assert not before["4.weight"].equal(after["4.weight"])


# ----------------------------------------------------------------------------------------- records


@pytest.mark.parametrize("known", [(True, True), (True, False), (False, True), (False, False)])
def test_accuracies_are_recorded_where_the_truth_is_known_and_only_there(known):
    train, valid = (
        bags if truth else bags.without_truth()
        for bags, truth in zip((TRAIN, VALID), known, strict=True)
    )
    record = fit(network(), train, valid, config=CONFIG).records[-1]
    wanted = {name for name, truth in zip(("label", "valid"), known, strict=True) if truth}
    assert {name for name in record if "accuracy" in name} == {f"{n}_accuracy" for n in wanted}
    assert "valid_error" in record


def test_accuracies_and_test_error_are_those_of_each_epochs_weights():
    album = Album()
    history = fit(network(), TRAIN, VALID, TEST, config=CONFIG, on_epoch=album)
    for t, weights in enumerate(album.weights):
        assert history["valid_accuracy"][t] == pytest.approx(accuracy_of(weights, VALID))
        assert history["test_accuracy"][t] == pytest.approx(accuracy_of(weights, TEST))
        assert history["test_error"][t] == pytest.approx(error_of(weights, TEST), abs=1e-6)
    assert len(set(history["test_accuracy"])) > 1


def test_loss_is_the_mean_over_instances():
    """At a rate of almost 0 it is the cross-entropy of the first weights and the labels."""
    model, first = linear(), np.concatenate([np.repeat(range(3), k) for k in TRAIN.counts])
    with torch.no_grad():
        logits = model(torch.from_numpy(TRAIN.x[TRAIN.index])).double().numpy()
    own = logits[np.arange(len(first)), first]
    wanted = np.mean(np.log(np.exp(logits).sum(axis=1)) - own)
    config = replace(CONFIG, epochs=1, batch_size=40, learning_rate=1e-12)  # 40 + 40 + 10
    history = fit(model, TRAIN, method=FPL(first=first), config=config)
    assert history["loss"] == [pytest.approx(wanted, rel=1e-5)]


def test_proportion_loss_is_the_mean_over_bags():
    model = linear()
    with torch.no_grad():
        logits = model(torch.from_numpy(VALID.x[VALID.index])).double().numpy()
    odds = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    means = [odds[a:b].mean(axis=0) for a, b in itertools.pairwise(VALID.offsets)]
    wanted = -(VALID.proportions * np.log(means)).sum(axis=1).mean()
    config = replace(CONFIG, epochs=1, bags_per_step=2, learning_rate=1e-12)  # 2 + 2 + 1
    history = fit(model, VALID, method="proportion-loss", config=config)
    assert history["loss"] == [pytest.approx(wanted, rel=1e-5)]


# -------------------------------------------------------------------------------- the truth is out


def test_a_method_gets_the_bags_without_their_truth():
    seen = []

    class Spy(FPL):
        def start(self, bags, **options):
            seen.append(bags)
            return super().start(bags, **options)

    fit(network(), TRAIN, VALID, method=Spy(), config=CONFIG)
    assert [bags.truth for bags in seen] == [None]


# ------------------------------------------------------------------------------- data of all kinds


def test_bfloat16_runs_on_the_cpu_and_keeps_its_weights_in_float32():
    nets = network(), network()
    full, mixed = (
        fit(net, TRAIN, VALID, config=replace(CONFIG, precision=precision))  # type: ignore[arg-type]
        for net, precision in zip(nets, ("float32", "bfloat16"), strict=True)
    )
    floats = [value for value in weights_of(nets[1]).values() if value.is_floating_point()]
    assert all(value.dtype is torch.float32 for value in floats)
    assert mixed["loss"] != full["loss"]
    np.testing.assert_allclose(mixed["loss"], full["loss"], atol=0.1)


# ---------------------------------------------------------------------------------- bad arithmetic


def test_nan_in_x_stops_the_first_epoch_and_names_the_step():
    x = TRAIN.x.copy()
    x[40, 1] = math.nan
    with Rates() as rates:
        problem, remedy = refusal(RunError, linear(), replace(TRAIN, x=x))
    found = re.fullmatch(r"the loss is nan at epoch 1, step (\d) of 3\.", problem)
    assert found
    assert len(rates.seen) == 3
    assert "learning rate (it is 0.02)" in remedy
    assert "NaN" in remedy
    assert "x" in remedy


class Breaking(nn.Module):
    """A network that breaks in a step of an epoch, counted in passes in training mode."""

    def __init__(self, at, how):
        super().__init__()
        self.inner, self.at, self.how, self.passes = network(), at, how, 0

    def forward(self, x):
        y = self.inner(x)
        if not self.training:
            return y
        self.passes += 1
        if self.passes != self.at:
            return y
        if self.how == "loss":
            return y * math.inf
        y.register_hook(lambda gradient: gradient * math.nan)  # the loss is still as it should be
        return y


STEPS = 3  # an epoch: 90 instances, 32 a step


def test_a_loss_that_is_not_finite_names_epoch_and_step_and_leaves_the_epoch_before(tmp_path):
    album, model = Album(), Breaking(at=2 * STEPS + 2, how="loss")
    problem, remedy = refusal(RunError, model, TRAIN, VALID, run=tmp_path, on_epoch=album)
    assert re.fullmatch(rf"the loss is (nan|inf) at epoch 3, step 2 of {STEPS}\.", problem)
    assert "Lower the learning rate (it is 0.02)" in remedy
    assert len(album.records) == 2

    saved = load_file(tmp_path / "checkpoint.safetensors")
    assert identical(
        {name: saved[f"model.{name}"] for name in album.weights[-1]}, album.weights[-1]
    )
    assert all(t.isfinite().all() for t in saved.values())
    assert [record["epoch"] for record in Run(tmp_path).records()] == [1, 2]

    # And it is good to go on from, as if nothing had happened.
    healthy, wanted = (Breaking(at=-1, how="loss") for _ in range(2))
    fit(healthy, TRAIN, VALID, config=CONFIG, run=tmp_path)
    fit(wanted, TRAIN, VALID, config=CONFIG, on_epoch=(album := Album()))
    assert identical(weights_of(healthy), weights_of(wanted))
    assert identical(load_file(tmp_path / "last.safetensors"), album.weights[-1])


@pytest.mark.parametrize("epoch", [1, 3])
def test_weights_that_the_last_step_breaks_are_noticed(tmp_path, epoch):
    """The loss of that step is finite: nothing but the weights tells."""
    model = Breaking(at=epoch * STEPS, how="gradient")
    problem, remedy = refusal(RunError, model, TRAIN, VALID, run=tmp_path)
    assert problem == f"the weights are no longer finite after epoch {epoch}."
    assert "Lower the learning rate (it is 0.02)" in remedy
    assert len(Run(tmp_path).records()) == epoch - 1
    assert (tmp_path / "checkpoint.safetensors").exists() == (epoch > 1)


def test_a_huge_learning_rate_is_noticed_before_it_is_recorded():
    wild = replace(CONFIG, epochs=30, learning_rate=9e5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        deep = nn.Sequential(*[nn.Linear(4, 4) for _ in range(9)], nn.Linear(4, 3))
    seen = Album()
    problem, remedy = refusal(RunError, deep, TRAIN, VALID, config=wild, on_epoch=seen)
    assert re.search(r"at epoch \d+, step \d|after epoch \d+", problem)
    assert "Lower the learning rate (it is 900000)" in remedy
    for record in without_times(seen.records):
        assert all(math.isfinite(value) for value in record.values())


@pytest.mark.parametrize("which", ["validation", "test"])
def test_nan_in_data_to_evaluate_on_is_an_error_that_names_them(which):
    """No epoch could be selected by an error that is NaN, and nobody would be told."""
    x = VALID.x.copy()
    x[VALID.index[0], 1] = math.nan
    broken = replace(VALID, x=x)
    bags = (TRAIN, broken) if which == "validation" else (TRAIN, VALID, broken)
    with pytest.raises((RunError, BagError), match=which):
        fit(network(), *bags, config=CONFIG)


# --------------------------------------------------------------------------------------- bad input


def test_test_bags_without_truth_tell_their_proportion_error():
    history = fit(network(), TRAIN, VALID, TEST.without_truth(), config=CONFIG)
    labelled = fit(network(), TRAIN, VALID, TEST, config=CONFIG)
    assert history["test_error"] == labelled["test_error"]
    assert "test_accuracy" not in history.records[-1]
