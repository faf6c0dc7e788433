"""Training: what is recorded, what is left as it was found, and that the truth plays no part."""

import copy
import itertools
import logging
import math
import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from apportion.bags.bags import Bags
from apportion.errors import BagError, ConfigError
from apportion.methods import registry
from apportion.methods.base import Supervision
from apportion.methods.pseudo_labels import FPL
from apportion.training.fit import fit
from tests.training.small_training import (
    CONFIG,
    METHODS,
    TEST,
    TRAIN,
    VALID,
    Album,
    identical,
    linear,
    network,
    refusal,
    some_bags,
    weights_of,
    without_times,
)

PHASES = {"train", "confidence", "labels", "evaluation"}
ACCURACIES = {"label_accuracy", "valid_accuracy", "test_accuracy"}


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


@pytest.mark.parametrize("valid", [VALID, None])
@pytest.mark.parametrize("every", [1, 4])
def test_on_epoch_may_end_the_training(valid, every, tmp_path):
    config, calls = replace(CONFIG, checkpoint_every=every), []

    def until(record, model):
        calls.append(record["epoch"])
        return np.bool_(record["epoch"] == 3)  # as a comparison of arrays would

    def never(record, model):
        pytest.fail("it goes on")

    net, again = network(), network()
    first = fit(net, TRAIN, valid, config=config, run=tmp_path, on_epoch=until)
    assert calls == [1, 2, 3]
    assert (first.n_epochs, first.ended) == (3, "on_epoch")
    assert {p.name for p in tmp_path.iterdir()} >= {
        "model.safetensors", "last.safetensors", "evaluation.safetensors"}  # fmt: skip
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    found = fit(again, TRAIN, valid, config=config, run=tmp_path, on_epoch=never)
    assert (found.records, found.ended) == (first.records, "on_epoch")
    assert identical(weights_of(again), weights_of(net))
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_more_epochs_go_on_where_on_epoch_had_ended_it(tmp_path, caplog):
    """As if it had not been ended: that is what more epochs ask for."""
    config = replace(CONFIG, epochs=8)
    fit(network(), TRAIN, VALID, method=FPL(eta=1), config=CONFIG, run=tmp_path / "a",
        on_epoch=lambda record, net: record["epoch"] == 3)  # fmt: skip
    ours, theirs = network(), network()
    options: Any = {"method": FPL(eta=1), "config": config}
    with caplog.at_level("INFO", logger="apportion"):
        found = fit(ours, TRAIN, VALID, run=tmp_path / "a", **options)
    assert "Going on after epoch 3" in caplog.text
    assert "where on_epoch had ended it" in caplog.text
    wanted = fit(theirs, TRAIN, VALID, run=tmp_path / "whole", **options)
    assert without_times(found.records) == without_times(wanted.records)
    assert identical(weights_of(ours), weights_of(theirs))
    assert found.ended == wanted.ended == "epochs"
    assert fit(network(), TRAIN, VALID, run=tmp_path / "a", **options).n_epochs == 8


def test_the_history_tells_what_ended_a_training():
    assert fit(linear(), TRAIN, config=CONFIG).ended == "epochs"
    patient = replace(CONFIG, epochs=60, patience=1)
    history = fit(linear(), TRAIN, VALID, config=patient, on_epoch=lambda *_: None)
    assert history.n_epochs < 60
    assert history.ended == "patience"
    assert fit(linear(), TRAIN, config=CONFIG, on_epoch=lambda r, _: r["epoch"] == 6).ended == (
        "epochs"  # which are over anyway
    )


@pytest.mark.parametrize("answer", [1, "stop", {"stop": True}, [], torch.tensor([True, True])])
def test_an_answer_that_may_mean_anything_is_refused(answer):
    problem, _ = refusal(ConfigError, linear(), TRAIN, on_epoch=lambda *_: answer)
    assert "on_epoch must return True to end the training, False or None" in problem


# ------------------------------------------------------------------------------- lines and the bar


def test_every_epoch_is_a_readable_line_in_the_log(caplog):
    with caplog.at_level(logging.INFO, logger="apportion"):
        history = fit(network(), TRAIN, VALID, TEST, config=CONFIG)
    lines = [record.getMessage() for record in caplog.records if record.levelname == "INFO"]
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


@pytest.mark.parametrize("method", ["fpl", "proportion-loss", "pi-model", "llp-vat"])
def test_a_function_augments_the_batches_of_every_method_and_nothing_else(method):
    """Rows are nudged by a number that the net can see in its inputs."""

    class Watching(nn.Linear):
        def __init__(self):
            super().__init__(4, 3)
            self.trained, self.judged = [], []

        def forward(self, x):
            (self.trained if self.training else self.judged).append(x.detach().mean().item())
            return super().forward(x)

    net, config = Watching(), replace(CONFIG, epochs=2)
    fit(net, TRAIN, VALID, method=method, config=config, augment=lambda x: x + 1000)
    assert min(net.trained) > 900
    first, *judged = net.judged  # the first is the check that the net takes what comes
    assert first > 900
    assert max(judged) < 100


def test_a_function_draws_from_generators_that_are_seeded_per_epoch():
    def trained(seed):
        net, drawn = linear(), []

        def augment(x):
            drawn.append(torch.rand(3).tolist())
            return x + 0.1 * torch.randn_like(x)

        torch.rand(seed + 1)  # whatever the caller draws
        fit(net, TRAIN, config=replace(CONFIG, seed=seed), augment=augment)
        return weights_of(net), drawn

    (one, drawn), (same, again), (other, _) = trained(0), trained(0), trained(1)
    assert identical(one, same)
    assert drawn == again
    assert not identical(one, other)
    assert len({*map(tuple, drawn)}) == len(drawn)  # no two batches alike


def test_an_error_of_the_function_says_what_it_was_called_with():
    with pytest.raises(IndexError) as error:
        fit(linear(), TRAIN, config=CONFIG, augment=lambda x: x[:, 7])
    assert error.value.__notes__ == [
        "augment was called with a batch of training instances: (2, 4) float32."
    ]


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


# --------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("method", "hint"),
    [
        ("fpll", "Did you mean 'fpl'?"),
        ("proportion_loss", "Did you mean 'proportion-loss'?"),
        ("zzz", f"Known: {', '.join(registry.METHODS)}."),
    ],
)
def test_an_unknown_method_is_refused_with_a_suggestion(method, hint):
    problem, remedy = refusal(ConfigError, network(), TRAIN, method=method)
    assert problem == f"there is no method {method!r}."
    assert remedy.startswith(hint)


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


# ------------------------------------------------------------------------------------- run folders


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
    units = "'instances', 'rows' or 'bags'"
    with pytest.raises(ConfigError, match=f"NothingMethod must be {units}; got 'bag'"):
        fit(network(), TRAIN, method=NothingMethod(unit="bag"), config=CONFIG)
