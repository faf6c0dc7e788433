"""Training: what is selected, what is recorded, what stops it, and that the truth plays no part."""

import copy
import itertools
import json
import logging
import math
import re
import tomllib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.errors import BagError, ConfigError, RunError
from apportion.methods.base import Supervision
from apportion.methods.pseudo_labels import FPL
from apportion.nets.build import build_net, from_recipe
from apportion.runs.header import read_header
from apportion.runs.run import Run
from apportion.training.fit import fit
from apportion.training.history import History

METHODS = ("fpl", "proportion-loss")
CONFIG = TrainConfig(epochs=6, batch_size=32, learning_rate=0.02, device="cpu", threads=1)
PHASES = {"train", "confidence", "labels", "evaluation"}
ACCURACIES = {"label_accuracy", "valid_accuracy", "test_accuracy"}


def points(n, seed, spread=1.0):
    """Points around three corners, and which corner it is."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    x = (2 * np.eye(4)[truth] + spread * rng.normal(size=(n, 4))).astype(np.float32)
    return x, truth


def some_bags(seed, n=90, size=9, spread=1.0):
    """Bags of a few points, with truth; as many of each class as chance has it."""
    x, truth = points(n, seed, spread)
    return Bags.from_rows(x, np.arange(n) // size, classes=range(3), truth=truth)


def survey(seed, n=50):
    """Overlapping bags of unequal size whose proportions were not counted from their rows."""
    x, truth = points(n, seed)
    rng = np.random.default_rng([seed, 1])
    sizes = [3, 11, 7, 20, 5]
    members = {f"ward {i}": rng.permutation(n)[:size] for i, size in enumerate(sizes)}
    shares = {bag: rng.dirichlet([2, 2, 2]) for bag in members}
    return Bags.from_members(x, members, shares, classes=range(3), truth=truth)


TRAIN, VALID, TEST = some_bags(0), survey(1), survey(2)


def network(dropout=0.2):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        return nn.Sequential(
            nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 3)
        )


def linear():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        return nn.Linear(4, 3)


def weights_of(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def identical(ours, theirs):
    return ours.keys() == theirs.keys() and all(ours[name].equal(theirs[name]) for name in ours)


def without_times(records):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in records]


class Album:
    """Keeps the weights and the record of every epoch, as `on_epoch` sees them."""

    def __init__(self):
        self.weights, self.records = [], []

    def __call__(self, record, model):
        self.weights.append(weights_of(model))
        self.records.append(copy.deepcopy(record))


def confidences(weights, bags):
    """Softmax of a copy of the model, instance by instance, in float64."""
    model = network()
    model.load_state_dict(weights)
    model.double().eval()
    with torch.no_grad():
        logits = model(torch.from_numpy(bags.x[bags.index]).double()).numpy()
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def error_of(weights, bags):
    """The mean over bags of the total variation of given and mean soft proportions."""
    soft = confidences(weights, bags)
    return np.mean(
        [
            0.5 * np.abs(bags.proportions[i] - soft[first:last].mean(axis=0)).sum()
            for i, (first, last) in enumerate(itertools.pairwise(bags.offsets))
        ]
    )


def accuracy_of(weights, bags):
    return np.mean(confidences(weights, bags).argmax(axis=1) == bags.truth)


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
    assert caplog.messages[0] == (
        "No validation bags: nothing is selected, and the last model is kept."
    )
    assert history.best_epoch is None
    assert identical(weights_of(model), album.weights[-1])
    assert all("valid_error" not in record for record in history.records)
    assert "no selection" in repr(history)


def test_with_validation_there_is_no_warning(caplog):
    with caplog.at_level(logging.WARNING, logger="apportion"):
        history = fit(network(), TRAIN, VALID, config=CONFIG)
    assert caplog.records == []
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


# ------------------------------------------------------------------------------------ the optimiser


class Rates:
    """Reads the learning rate in every step of any optimiser."""

    def __enter__(self):
        self.seen: list[float] = []
        self.hook = register_optimizer_step_pre_hook(
            lambda optimizer, *_: self.seen.append(optimizer.param_groups[0]["lr"])
        )
        return self

    def __exit__(self, *_):
        self.hook.remove()


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


def test_records_hold_what_happened():
    history = fit(network(), TRAIN, VALID, TEST, config=CONFIG)
    assert history.n_epochs == 6
    assert history["epoch"] == [1, 2, 3, 4, 5, 6]
    measured = {"loss", "changed", "regret", "valid_error", "test_error", *ACCURACIES}
    for record in history.records:
        assert record.keys() == {"epoch", "seconds", *measured}
        assert all(isinstance(record[name], float) for name in measured)
        assert all(math.isfinite(record[name]) for name in measured)
        assert record["seconds"].keys() == PHASES
        assert all(seconds >= 0 for seconds in record["seconds"].values())
        assert record["seconds"]["train"] > 0
        for name in measured - {"loss"}:
            assert 0 <= record[name] <= 1


def test_methods_that_decide_no_labels_record_none():
    history = fit(network(), TRAIN, VALID, method="proportion-loss", config=CONFIG)
    assert history.labels is None
    for record in history.records:
        assert record.keys() == {"epoch", "loss", "valid_error", "valid_accuracy", "seconds"}


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


def test_pseudo_labels_meet_the_counts_and_their_changes_and_accuracy_add_up(tmp_path):
    """Labels of each epoch are read from its checkpoint."""
    labels = []

    def look(record, model):
        labels.append(load_file(tmp_path / "checkpoint.safetensors")["method.labels"].numpy())

    history = fit(network(), TRAIN, VALID, config=CONFIG, run=tmp_path, on_epoch=look)
    for given in labels:
        found = [np.bincount(given[a:b], minlength=3) for a, b in itertools.pairwise(TRAIN.offsets)]
        assert np.array_equal(found, TRAIN.counts)
    for t, (before, after) in enumerate(itertools.pairwise(labels), start=1):
        assert history["changed"][t] == pytest.approx(np.mean(before != after))
    for t, given in enumerate(labels):
        assert history["label_accuracy"][t] == pytest.approx(np.mean(given == TRAIN.truth))
    assert history.labels is not None
    assert np.array_equal(history.labels, labels[-1])


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


# ---------------------------------------------------------------------------------------- on_epoch


def test_on_epoch_gets_every_record_and_the_model_once():
    album, models, model = Album(), [], network()

    def look(record, given):
        album(record, given)
        models.append(given)

    history = fit(model, TRAIN, VALID, config=CONFIG, on_epoch=look)
    assert album.records == history.records
    assert all(given is model for given in models)


def test_on_epoch_can_change_no_decision():
    """It may do as it likes with its record, with torch's random numbers and with the mode."""

    def meddle(record, model):
        torch.manual_seed(record["epoch"])
        torch.rand(5)
        model.eval()
        record["valid_error"] = -1.0
        record.pop("loss")

    model, undisturbed, config = network(), network(), replace(CONFIG, patience=5)
    history = fit(model, TRAIN, VALID, config=config, on_epoch=meddle)
    calm = fit(undisturbed, TRAIN, VALID, config=config)
    assert without_times(history.records) == without_times(calm.records)
    assert history.best_epoch == calm.best_epoch
    assert identical(weights_of(model), weights_of(undisturbed))


def test_on_epoch_gets_times_that_are_its_own():
    def meddle(record, model):
        record["seconds"].clear()

    history = fit(network(), TRAIN, VALID, config=CONFIG, on_epoch=meddle)
    assert all(record["seconds"].keys() == PHASES for record in history.records)


def test_an_error_in_on_epoch_comes_out_as_it_is_and_the_epoch_is_saved(tmp_path):
    def fail(record, model):
        if record["epoch"] == 3:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit(network(), TRAIN, VALID, config=CONFIG, run=tmp_path, on_epoch=fail)
    seen = Album()
    history = fit(network(), TRAIN, VALID, config=CONFIG, run=tmp_path, on_epoch=seen)
    assert [record["epoch"] for record in seen.records] == [4, 5, 6]
    assert history.n_epochs == 6


# ------------------------------------------------------------------------------- lines and the bar


def test_every_epoch_is_a_readable_line_in_the_log(caplog):
    with caplog.at_level(logging.INFO, logger="apportion"):
        history = fit(network(), TRAIN, VALID, TEST, config=CONFIG)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 6
    for record, line in zip(history.records, lines, strict=True):
        parts = line.split(" · ")
        assert parts[0] == f"epoch {record['epoch']}/6"
        assert f"loss {record['loss']:.4f}" in parts
        assert f"validation error {record['valid_error']:.4f}" in parts
        assert f"labels changed {100 * record['changed']:.1f}%" in parts
        assert f"test accuracy {100 * record['test_accuracy']:.1f}%" in parts
        assert parts[-1] == f"{sum(record['seconds'].values()):.2f} s"


@pytest.fixture
def plain_environment(monkeypatch):
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "250")


@pytest.mark.parametrize("progress", [None, False])
def test_nothing_is_printed_where_there_is_no_terminal(capfd, plain_environment, progress):
    fit(network(), TRAIN, VALID, config=CONFIG, progress=progress)
    assert capfd.readouterr() == ("", "")


def test_a_bar_that_is_wanted_is_shown(capfd, plain_environment):
    fit(network(), TRAIN, VALID, config=CONFIG, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert re.search(r"6/6\b.*loss \d.* · validation error \d", err)


# -------------------------------------------------------------------- what is left as it was found


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_callers_random_state_and_threads_stay(method, threads):
    mine = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - threads)
        torch.manual_seed(5)
        legacy = np.random.get_state()  # noqa: NPY002 - to see that it stays
        wanted = torch.rand(4)
        torch.manual_seed(5)
        fit(network(), TRAIN, VALID, method=method, config=replace(CONFIG, threads=threads))
        assert torch.rand(4).equal(wanted)
        assert torch.get_num_threads() == 3 - threads
        now = np.random.get_state()  # noqa: NPY002
        assert all(np.array_equal(a, b) for a, b in zip(legacy, now, strict=True))
    finally:
        torch.set_num_threads(mine)


def test_the_callers_random_state_and_threads_stay_after_an_error():
    def fail(record, model):
        raise ZeroDivisionError

    mine = torch.get_num_threads()
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        fit(network(), TRAIN, config=replace(CONFIG, threads=mine + 1), on_epoch=fail)
    assert torch.get_rng_state().equal(before)
    assert torch.get_num_threads() == mine


def test_the_callers_data_stay():
    before = copy.deepcopy(TRAIN)
    fit(network(), TRAIN, VALID, config=replace(CONFIG, augment=("noise",)))
    for name in ("x", "index", "offsets", "proportions", "counts", "truth"):
        assert np.array_equal(getattr(TRAIN, name), getattr(before, name))


# ------------------------------------------------------------------------------------------- seeds


def trained(method="fpl", bags=(TRAIN, VALID, TEST), **options):
    model = network()
    config = replace(CONFIG, augment=("noise",), **options)
    return fit(model, *bags, method=method, config=config), weights_of(model)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_bits(method):
    torch.manual_seed(1)
    first, weights = trained(method)
    torch.manual_seed(2)
    torch.rand(3)
    again, others = trained(method)
    assert identical(weights, others)
    assert without_times(first.records) == without_times(again.records)


@pytest.mark.parametrize("method", METHODS)
def test_another_seed_gives_another_training(method):
    ours, theirs = (trained(method, seed=seed)[0] for seed in (0, 1))
    assert ours["loss"] != theirs["loss"]


def test_each_epoch_draws_anew():
    """The order of the instances, and what dropout leaves out, each on its own account."""
    orders, masks = [], []

    class Watched(nn.Linear):
        def forward(self, x):
            if self.training:
                orders.append(tuple(x[:, 0].tolist()))
                dropped = nn.functional.dropout(torch.ones(len(x)), 0.5)
                masks.append(tuple(dropped.tolist()))
            return super().forward(x)

    fit(Watched(4, 3), TRAIN, config=replace(CONFIG, batch_size=1000))
    assert len(orders) == len(set(orders)) == 6
    assert len(masks) == len(set(masks)) == 6
    assert {tuple(sorted(order)) for order in orders} == {tuple(sorted(TRAIN.x[:, 0].tolist()))}


# -------------------------------------------------------------------------------- the truth is out


def with_noise_for_truth(bags):
    noise = np.random.default_rng(99).integers(3, size=bags.n_instances)
    assert (noise != bags.truth).mean() > 0.4
    return replace(bags, truth=noise)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("which", [(0,), (1,), (2,), (0, 1, 2)])
def test_truth_changes_nothing_but_the_accuracies(method, which):
    """Nor is there any chance in it, with dropout and augmentation on: the bits are the same."""
    honest = [TRAIN, VALID, TEST]
    lied_to = [with_noise_for_truth(b) if i in which else b for i, b in enumerate(honest)]
    (ours, weights), (theirs, others) = (
        trained(method, bags, patience=4, weight_decay=0.01) for bags in (honest, lied_to)
    )
    assert identical(weights, others)
    if method == "fpl":
        assert np.array_equal(ours.labels, theirs.labels)
    assert ours.best_epoch == theirs.best_epoch
    decided = [
        [{k: v for k, v in record.items() if k not in ACCURACIES} for record in records]
        for records in map(without_times, (ours.records, theirs.records))
    ]
    assert decided[0] == decided[1]
    if which != (0,) or method == "fpl":  # otherwise the truth is not even used for an accuracy
        assert without_times(ours.records) != without_times(theirs.records)


@pytest.mark.parametrize("method", METHODS)
def test_truth_that_is_unknown_changes_nothing_either(method):
    (ours, weights), (_, others) = (
        trained(method, bags)
        for bags in ((TRAIN, VALID), (TRAIN.without_truth(), VALID.without_truth()))
    )
    assert identical(weights, others)
    assert ACCURACIES & ours.records[0].keys()


def test_a_method_gets_the_bags_without_their_truth():
    seen = []

    class Spy(FPL):
        def start(self, bags, **options):
            seen.append(bags)
            return super().start(bags, **options)

    fit(network(), TRAIN, VALID, method=Spy(), config=CONFIG)
    assert [bags.truth for bags in seen] == [None]


# ------------------------------------------------------------------------------- data of all kinds


def test_bags_of_one_are_supervised_learning():
    """The nearest corner is the best that anyone can do."""
    bags, test = (some_bags(seed, n=300, size=1, spread=0.5) for seed in (4, 5))
    bayes = np.mean(test.x[:, :3].argmax(axis=1) == test.truth)
    for method in METHODS:
        config = replace(CONFIG, epochs=30)
        history = fit(network(), bags, test=test, method=method, config=config)
        assert history["test_accuracy"][-1] > min(bayes, 0.97) - 0.03
    assert bayes > 0.9


def test_whole_bags_teach_about_instances():
    bags, test = some_bags(6, n=600, size=6, spread=0.4), some_bags(7, n=300, spread=0.4)
    history = fit(network(), bags, test=test, config=replace(CONFIG, epochs=40))
    assert history["test_accuracy"][-1] > 0.9
    assert history["label_accuracy"][-1] > 0.9
    assert history["changed"][-1] < history["changed"][0]


def test_data_on_disk_give_the_same_as_in_memory(tmp_path):
    np.save(tmp_path / "x.npy", TRAIN.x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    ours, theirs = (trained(bags=(bags, VALID))[1] for bags in (TRAIN, replace(TRAIN, x=mapped)))
    assert identical(ours, theirs)


def test_tensors_and_float64_are_taken_as_float32():
    ours = trained(bags=(TRAIN, VALID))[1]
    for x in (torch.from_numpy(TRAIN.x), TRAIN.x.astype(np.float64), TRAIN.x[::-1][::-1]):
        assert identical(trained(bags=(replace(TRAIN, x=x), VALID))[1], ours)


class Halves(nn.Module):
    """A model of instances in two parts."""

    def __init__(self, whole):
        super().__init__()
        self.whole = whole

    def forward(self, left, right):
        assert right.dtype is torch.uint8
        return self.whole(torch.cat([left, right.float()], dim=1))


def test_instances_of_several_parts_are_passed_part_by_part():
    x = TRAIN.x.copy()
    x[:, 2:] = x[:, 2:].clip(0, 255).round()
    whole = replace(TRAIN, x=x)
    parted = replace(TRAIN, x=(x[:, :2].copy(), x[:, 2:].astype(np.uint8)))
    models = network(), Halves(network())
    for model, bags in zip(models, (whole, parted), strict=True):
        fit(model, bags, bags, config=CONFIG)
    assert identical(weights_of(models[0]), weights_of(models[1].whole))


def test_augmentation_changes_training_and_not_evaluation():
    nets = network(), network()
    plain, noisy = (
        fit(net, TRAIN, config=replace(CONFIG, augment=augment, learning_rate=1e-12))
        for net, augment in zip(nets, ((), ("noise",)), strict=True)
    )
    assert plain["loss"][0] != noisy["loss"][0]
    ours, theirs = ({k: v for k, v in weights_of(net).items() if "running" in k} for net in nets)
    assert not identical(ours, theirs)

    plain, noisy = (
        fit(linear(), TRAIN, VALID, config=replace(CONFIG, augment=augment, learning_rate=1e-12))
        for augment in ((), ("noise",))
    )
    np.testing.assert_allclose(plain["valid_error"], noisy["valid_error"], atol=1e-6)


def test_images_are_cropped_and_flipped_as_stored():
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(40, 1, 6, 6), dtype=np.uint8)
    bags = Bags.from_rows(images, np.arange(40) // 4, {i: [0.5, 0.5] for i in range(10)})

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(36, 2)

        def forward(self, x):
            assert x.dtype is torch.uint8
            return self.last(x.flatten(1) / 255)

    config = replace(CONFIG, augment=("crop", "flip", "noise"))
    assert fit(Net(), bags, bags, config=config).n_epochs == 6


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


# ------------------------------------------------------------------------------------ bad networks


def refusal(kind, *arguments, **options):
    with pytest.raises(kind) as refused:
        fit(*arguments, **{"config": CONFIG, **options})
    problem, remedy = str(refused.value).split("\n  ")
    assert remedy
    return problem, remedy


def test_a_network_of_the_wrong_width_is_refused_before_training():
    problem, remedy = refusal(ConfigError, nn.Linear(4, 5), TRAIN)
    assert "Linear returns shape (2, 5) for 2 instances of 3 classes" in problem
    assert "(2, 3)" in problem
    assert "3 logits" in remedy


def test_a_network_without_an_axis_of_classes_is_refused():
    problem, _ = refusal(ConfigError, nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), TRAIN)
    assert "returns shape (2,) for 2 instances" in problem


def test_a_network_that_gives_a_tuple_is_refused():
    class Two(nn.Linear):
        def forward(self, x):
            return super().forward(x), x

    problem, remedy = refusal(ConfigError, Two(4, 3), TRAIN)
    assert "Two returns" in problem
    assert "tuple" in problem
    assert "3 logits" in remedy


@pytest.mark.parametrize("model", [nn.Identity(), nn.Linear(4, 3).requires_grad_(False)])
def test_a_network_without_parameters_to_train_is_refused(model):
    problem, remedy = refusal(ConfigError, model, TRAIN)
    assert f"{type(model).__name__} has no parameters to train" in problem
    assert "requires_grad" in remedy


def test_a_refused_network_leaves_no_run_behind(tmp_path):
    refusal(ConfigError, nn.Linear(4, 5), TRAIN, run=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= {"lock"}
    fit(network(), TRAIN, VALID, config=CONFIG, run=tmp_path)


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


@pytest.mark.parametrize("place", ["validation", "test"])
def test_classes_that_differ_are_refused_by_name(place):
    other = replace(VALID, classes=("a", "b", "c"))
    arguments = (other,) if place == "validation" else (VALID, other)
    problem, remedy = refusal(BagError, network(), TRAIN, *arguments)
    assert f"the {place} bags have the classes ('a', 'b', 'c')" in problem
    assert "the training bags (0, 1, 2)" in problem
    assert "classes=" in remedy


def test_classes_in_another_order_are_refused():
    problem, remedy = refusal(BagError, network(), TRAIN, replace(VALID, classes=(0, 2, 1)))
    assert "(0, 2, 1)" in problem
    assert "order" in remedy


def test_test_bags_without_truth_tell_their_proportion_error():
    history = fit(network(), TRAIN, VALID, TEST.without_truth(), config=CONFIG)
    labelled = fit(network(), TRAIN, VALID, TEST, config=CONFIG)
    assert history["test_error"] == labelled["test_error"]
    assert "test_accuracy" not in history.records[-1]


def test_patience_without_validation_is_refused():
    problem, remedy = refusal(ConfigError, network(), TRAIN, config=replace(CONFIG, patience=4))
    assert "patience is 4" in problem
    assert "no validation bags" in problem
    assert "Hold out bags" in remedy


@pytest.mark.parametrize(
    ("method", "hint"),
    [
        ("fpll", "Did you mean 'fpl'?"),
        ("proportion_loss", "Did you mean 'proportion-loss'?"),
        ("zzz", "Known: fpl, fpl-plain, greedy, naive, proportion-loss, pi-model, llp-vat."),
    ],
)
def test_an_unknown_method_is_refused_with_a_suggestion(method, hint):
    problem, remedy = refusal(ConfigError, network(), TRAIN, method=method)
    assert problem == f"there is no method {method!r}."
    assert remedy.startswith(hint)


def test_an_unknown_augmentation_is_refused_with_a_suggestion():
    problem, remedy = refusal(
        ValueError, network(), TRAIN, config=replace(CONFIG, augment=("nois",))
    )
    assert problem == "there is no augmentation 'nois'."
    assert "Did you mean 'noise'?" in remedy


def test_an_unknown_augmentation_starts_no_run(tmp_path):
    config = replace(CONFIG, augment=("nois",))
    refusal(ValueError, network(), TRAIN, VALID, config=config, run=tmp_path)
    fit(network(), TRAIN, VALID, config=CONFIG, run=tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_gpu_that_is_not_there_is_refused(device):
    problem, remedy = refusal(ConfigError, network(), TRAIN, config=replace(CONFIG, device=device))
    assert "device is 'cuda" in problem
    assert "no GPU" in problem
    assert "'cpu' or 'auto'" in remedy


def test_an_unknown_device_is_refused():
    with pytest.raises(ConfigError, match=r"^device must be 'auto', 'cpu' or 'cuda'; got 'gpu'\.$"):
        fit(network(), TRAIN, config=replace(CONFIG, device="gpu"))


def test_instances_that_are_no_numbers_are_refused():
    words = np.array([["a"]] * TRAIN.n_rows)
    problem, remedy = refusal(BagError, network(), replace(TRAIN, x=words))
    assert "<U1" in problem
    assert "Encode" in remedy


def test_a_folder_in_use_is_refused(tmp_path):
    run = Run(tmp_path)
    with run.locked():
        problem, _ = refusal(RunError, network(), TRAIN, VALID, run=tmp_path)
    assert "is in use" in problem
    fit(network(), TRAIN, VALID, config=CONFIG, run=run)  # a Run will do as well as a path


# ------------------------------------------------------------------------------------- run folders


def test_a_run_folder_changes_nothing_and_tells_all(tmp_path):
    folder, album, nets = tmp_path / "new" / "run", Album(), (network(), network())
    history = fit(nets[0], TRAIN, VALID, TEST, config=CONFIG, run=folder)
    wanted = fit(nets[1], TRAIN, VALID, TEST, config=CONFIG, on_epoch=album)
    assert identical(weights_of(nets[0]), weights_of(nets[1]))
    assert identical(load_file(folder / "model.safetensors"), weights_of(nets[0]))
    assert identical(load_file(folder / "last.safetensors"), album.weights[-1])
    lines = (folder / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == history.records
    assert without_times(history.records) == without_times(wanted.records)
    assert {path.name for path in folder.iterdir()} - {"lock"} == {
        "config.toml",
        "log.jsonl",
        "checkpoint.safetensors",
        "model.safetensors",
        "last.safetensors",
        "evaluation.safetensors",
    }


def test_sections_of_the_callers_go_into_the_configuration(tmp_path):
    about: dict[str, Any] = {
        "data": {"rows": 'a "b".csv', "counts": True, "label": None},
        "model": {"hidden": [8]},
    }
    fit(network(), TRAIN, config=CONFIG, run=Run(tmp_path, about))
    read = tomllib.loads((tmp_path / "config.toml").read_text())
    assert read["data"] == {"rows": 'a "b".csv', "counts": True}
    assert read["model"] == {"hidden": [8]}
    assert TrainConfig.from_dict(read["train"]) == CONFIG


def test_interrupting_between_epochs_saves_first(tmp_path):
    config = replace(CONFIG, epochs=6, checkpoint_every=5)
    fit(network(), TRAIN, VALID, config=config, run=tmp_path / "whole")

    def interrupt(record, model):
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(network(), TRAIN, VALID, config=config, run=tmp_path / "cut", on_epoch=interrupt)
    seen = []
    fit(
        network(),
        TRAIN,
        VALID,
        config=config,
        run=tmp_path / "cut",
        on_epoch=lambda record, model: seen.append(record["epoch"]),
    )
    assert seen == [4, 5, 6]
    for name in ("model", "last"):
        ours, theirs = (tmp_path / run / f"{name}.safetensors" for run in ("cut", "whole"))
        assert identical(load_file(ours), load_file(theirs))


def test_a_saved_model_says_how_to_make_it_again(tmp_path):
    bags = Bags.from_rows(np.ones((6, 2), np.float32), [0, 0, 1, 1, 2, 2], truth=[5, 7] * 3)
    model = build_net("mlp", bags, hidden=[3])
    fit(model, bags, config=CONFIG, run=tmp_path)
    about = read_header(tmp_path / "model.safetensors", "model")
    assert about["classes"] == [5, 7]
    assert about["parts"] == [{"shape": [2], "dtype": "float32"}]
    again = from_recipe(about["recipe"])
    again.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert identical(again.state_dict(), model.state_dict())


def test_configuration_is_a_file_that_can_be_read_back(tmp_path):
    config = replace(CONFIG, augment=("noise",), schedule="cosine")
    fit(network(), TRAIN, VALID, method="greedy", config=config, run=tmp_path)
    read = tomllib.loads((tmp_path / "config.toml").read_text())
    assert TrainConfig.from_dict(read["train"]) == config
    assert read["method"]["name"] == "fpl"
    assert read["method"]["eta"] == 0
    assert isinstance(read["format"], int)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"config": "paper"},
            ["config must be a TrainConfig; got 'paper'", 'TrainConfig.preset("paper")'],
        ),
        ({"config": {"epochs": 2}}, ["got {'epochs': 2}", "TrainConfig("]),
        ({"valid": np.zeros((3, 4))}, ["valid is of type ndarray, not Bags", "Bags.from_rows"]),
        ({"method": FPL}, ["the method is <class", "FPL(eta=1)"]),
    ],
)
def test_what_is_of_another_type_is_refused(options, words):
    with pytest.raises((ConfigError, BagError)) as refused:
        fit(network(), TRAIN, **{"config": CONFIG, **options})
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize("place", ["validation", "test"])
def test_instances_of_another_shape_are_refused_before_training(place):
    narrow = replace(VALID, x=VALID.x[:, :2])
    arguments = (narrow,) if place == "validation" else (VALID, narrow)
    problem, _ = refusal(ConfigError, network(), TRAIN, *arguments, on_epoch=pytest.fail)
    assert f"cannot take {place} instances, a batch of (2, 2) float32" in problem


def test_a_method_that_gives_no_loss_is_told_so():
    class Nothing(Supervision):
        pass

    @dataclass(frozen=True)
    class NothingMethod:
        unit: Any = "instances"

        def start(self, bags, **run):
            return Nothing()

    problem, _ = refusal(ConfigError, network(), TRAIN, method=NothingMethod())
    assert "Nothing returns no loss" in problem
    with pytest.raises(ConfigError, match="NothingMethod must be 'instances' or 'bags'; got 'bag'"):
        fit(network(), TRAIN, method=NothingMethod(unit="bag"), config=CONFIG)


def test_a_number_that_no_epoch_has_is_refused_by_those_there_are():
    history = fit(network(), TRAIN, method="proportion-loss", config=replace(CONFIG, epochs=1))
    with pytest.raises(KeyError, match="'changed' is not in the records, which have epoch, loss"):
        history["changed"]


def test_the_selected_record_is_of_the_best_epoch_or_else_the_last():
    records = [{"epoch": 1, "loss": 3.0}, {"epoch": 2, "loss": 1.0}, {"epoch": 3, "loss": 2.0}]
    for best, wanted in ((1, 3.0), (2, 1.0), (3, 2.0), (None, 2.0)):
        assert History(records, best_epoch=best).selected["loss"] == wanted
