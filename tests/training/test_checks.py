"""What `fit` refuses before anything is trained or written."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from apportion.bags.bags import Bags
from apportion.engine.batches import place
from apportion.errors import BagError, ConfigError, DataError
from apportion.methods.pseudo_labels import FPL
from apportion.training import checks
from apportion.training.checks import check_batch, check_differ, check_input, check_types
from apportion.training.fit import fit
from tests.training.small_training import CONFIG, TRAIN, VALID, network, refusal

# ------------------------------------------------------------------------------------ bad networks


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


def test_patience_without_validation_is_refused():
    problem, remedy = refusal(ConfigError, network(), TRAIN, config=replace(CONFIG, patience=4))
    assert "patience is 4" in problem
    assert "no validation bags" in problem
    assert "Hold out bags" in remedy


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


# ------------------------------------------------------------------------------ the checks alone


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16])
def test_ids_of_a_type_that_no_embedding_takes_are_to_be_int64(dtype):
    net = nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(6, 3))
    x = np.ones((TRAIN.n_rows, 2), dtype)
    problem, remedy = refusal(ConfigError, net, TRAIN.with_rows(x))
    assert f"(2, 2) {np.dtype(dtype).name}" in problem
    assert "x.astype(numpy.int64)" in remedy
    _, remedy = refusal(ConfigError, net, TRAIN.with_rows(x.astype(np.int64) + 8))
    assert "below num_embeddings, which is 9; these are from 9 to 9" in remedy


def test_what_is_right_passes():
    check_types(network(), CONFIG, TRAIN, None, None)
    check_types(network(), CONFIG, TRAIN, VALID, VALID)
    check_input(network(), replace(CONFIG, patience=2), TRAIN, VALID, None)


@pytest.mark.parametrize("place", ["train", "valid", "test"])
def test_bags_of_another_type_are_named_by_their_argument(place):
    """No training bags are as wrong as arrays; the others may be left out."""
    bags = {"train": TRAIN, "valid": VALID, "test": None, place: TRAIN.x}
    with pytest.raises(BagError, match=f"^{place} is of type ndarray, not Bags"):
        check_types(network(), CONFIG, **bags)
    with pytest.raises(BagError, match=r"^train is of type NoneType"):
        check_types(network(), CONFIG, None, VALID, None)


@pytest.mark.parametrize("net", [nn.Linear, None, "mlp"])
def test_a_net_must_be_a_module(net):
    with pytest.raises(ConfigError, match=r"^net must be an nn.Module; got "):
        check_types(net, CONFIG, TRAIN, None, None)


def test_bags_without_rows_are_refused_before_training():
    empty = replace(TRAIN, x=None)
    with pytest.raises(BagError):
        check_types(network(), CONFIG, empty, None, None)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("width", [3, 5])
def test_a_batch_is_tried_in_evaluation_and_the_mode_stays(training, width):
    """A pass in training mode would move the statistics of the batch normalisation."""
    net = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, width)).train(training)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    instances = place((TRAIN, None, None), torch.device("cpu"))[0]
    with nullcontext() if width == 3 else pytest.raises(ConfigError, match=r"not \(2, 3\)"):
        check_batch("training", net, instances)
    assert net.training is training
    assert all(value.equal(before[name]) for name, value in net.state_dict().items())


# --------------------------------------------------------------------- what is trained all the same


def told(caplog, train, **options):
    """The warnings of a training of one epoch."""
    caplog.clear()
    net = nn.Linear(train.x.shape[1], train.n_classes)
    fit(net, train, config=replace(CONFIG, epochs=1), **options)
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def differing(n_bags=30, size=8):
    """Bags whose proportions differ, and whose rows are of one normal column."""
    share = np.linspace(0, 1, n_bags)
    x = np.random.default_rng(0).normal(size=(n_bags * size, 1)).astype(np.float32)
    return x, np.repeat(np.arange(n_bags), size), np.stack([1 - share, share], axis=1)


def test_bags_that_are_alike_are_warned_of_once_per_training(caplog, tmp_path):
    x, bag, shares = differing()
    assert told(caplog, Bags.from_rows(x, bag, shares)) == []
    alike = Bags.from_rows(x, bag, np.full_like(shares, 0.5))
    (said,) = told(caplog, alike, run=tmp_path / "a")
    assert said.startswith("The bags' proportions are nearly identical (spread 0)")
    assert "Make bags that differ more" in said
    caplog.clear()
    fit(nn.Linear(1, 2), alike, config=replace(CONFIG, epochs=2), run=tmp_path / "a")
    assert not any("identical" in message for message in caplog.messages)  # it goes on


def test_columns_of_an_array_that_stand_for_bags_are_warned_of(caplog):
    x, bag, shares = differing()
    constant = np.stack([np.sin(bag), shares[bag, 1]], axis=1).astype(np.float32)
    (said,) = told(caplog, Bags.from_rows(np.concatenate([x, constant], axis=1), bag, shares))
    assert "Columns '1', '2' are constant within every bag" in said
    assert "Leave such columns out of x." in said


# ----------------------------------------------------------------------- rows that are all the same


class Watched:
    """Rows that say which of them are read."""

    def __init__(self, x):
        self.x, self.shape, self.dtype, self.ndim = x, x.shape, x.dtype, x.ndim
        self.read = set()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, key):
        self.read |= {*np.arange(len(self.x))[key].ravel().tolist()}
        return self.x[key]


def in_pairs(x, rows=range(64)):
    """Bags of two rows each."""
    members = np.asarray(rows)
    return Bags.from_members(x, members.reshape(-1, 2), [[0.5, 0.5]] * (len(members) // 2))


def on_disk(x, folder):
    np.save(folder / "x.npy", x)
    return np.load(folder / "x.npy", mmap_mode="r")


@pytest.mark.parametrize("other", [None, 1, 30, 63])
@pytest.mark.parametrize(
    "kind", [np.asarray, torch.from_numpy, lambda x: torch.from_numpy(x).bfloat16(), on_disk]
)
def test_rows_that_are_all_the_same_are_found_whatever_holds_them(
    tmp_path, kind, other, monkeypatch
):
    monkeypatch.setattr(checks, "CELLS", 48)  # four rows at once
    x = np.full((64, 3, 2, 2), 7, np.float32)
    if other is not None:
        x[other, -1, -1, -1] = 8
    bags = in_pairs(kind(x, tmp_path) if kind is on_disk else kind(x))
    expected = pytest.raises(DataError, match="all 64 images are the same")
    with nullcontext() if other is not None else expected:
        check_differ(bags)


@pytest.mark.parametrize("shape", [(64, 3, 1), (64, 1, 1), (64, 3, 4, 1)])
def test_rows_with_axes_of_length_1_are_compared_however_they_lie_in_memory(shape):
    axes = (0, *range(len(shape) - 1, 0, -1))
    x = np.zeros([shape[axis] for axis in axes]).transpose(axes)
    assert x.shape == shape
    with pytest.raises(DataError, match=r"all 64 .* are the same"):
        check_differ(in_pairs(x))
    x[5, 0, 0] = 1
    check_differ(in_pairs(x))


def test_signals_with_their_lengths_are_compared():
    frames, lengths = np.zeros((64, 2, 5), np.float32), np.full(64, 4)
    with pytest.raises(DataError, match="all 64 signals are the same"):
        check_differ(in_pairs((frames, lengths)))
    lengths[40] = 5
    check_differ(in_pairs((frames, lengths)))


def test_rows_outside_of_bags_do_not_count_and_one_alone_is_told():
    x = np.zeros((8, 1, 2, 2))
    x[5:] = 1
    check_differ(in_pairs(x, range(8)))
    with pytest.raises(DataError, match="all 4 images are the same"):
        check_differ(in_pairs(x, [0, 4, 1, 2]))
    with pytest.raises(DataError, match="there is 1 image alone"):
        check_differ(Bags.from_rows(x[:1], ["a"], {"a": [0.5, 0.5]}))


def test_any_part_may_differ_and_no_more_is_read_than_that_takes():
    first, second = np.zeros((1000, 4), np.float32), np.zeros((1000, 1), np.int64)
    with pytest.raises(DataError, match="all 1,000 rows are the same"):
        check_differ(in_pairs((first, second), range(1000)))
    second[3] = 1
    bags = in_pairs((first, second), range(1000))
    watched = Watched(first)
    check_differ(replace(bags, x=(watched, second)))
    assert watched.read == {0, 1, 2, 3}
