"""Training on a Dataset: random crops that differ in every epoch, and end as they must.

This file is also the script of trainings that are killed: ``python test_fit_datasets.py FOLDER
WORKERS STEP`` dies at a step, or never if that is 0.
"""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine.step import Stepper
from apportion.errors import BagError, ConfigError, DataError, RunError
from apportion.estimator.classifier import LLPClassifier
from apportion.model.model import Model
from apportion.nets.build import build_net
from apportion.training.fit import fit
from apportion.training.job import Job
from apportion.training.many import fit_many
from tests.faults.killing import ENVIRONMENT
from tests.training.interrupted_runs import Interrupted, outcome, same_outcome, stop_after

N, SIDE, CROP = 96, 7, 5
CONFIG = TrainConfig(epochs=4, batch_size=16, learning_rate=0.01, device="cpu", threads=1)
TRUTH = np.random.default_rng(0).integers(2, size=N)
IMAGES = torch.from_numpy(
    np.random.default_rng(1).normal(size=(N, 1, SIDE, SIDE)) + TRUTH[:, None, None, None]
).float()


class Crops(Dataset):
    """Random crops by all generators that people use; it notes what it was asked for."""

    def __init__(self, images=IMAGES):
        self.images, self.read = images, []

    def __len__(self):
        return len(self.images)

    def __getitem__(self, row):
        top, left = random.randrange(3), int(torch.randint(3, ()))
        noise = np.random.normal(size=(1, CROP, CROP)).astype("float32")  # noqa: NPY002
        crop = self.images[row][:, top : top + CROP, left : left + CROP] + 0.1 * torch.from_numpy(
            noise
        )
        self.read.append((row, float(crop.sum())))
        return crop, int(TRUTH[row])


CENTRE = TensorDataset(IMAGES[:, :, 1:6, 1:6])


def bags_of(dataset, **options):
    return Bags.from_dataset(dataset, np.arange(N) // 6, truth=TRUTH, **options)


def network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        layers = nn.Linear(CROP**2, 8), nn.ReLU(), nn.Dropout(0.25), nn.Linear(8, 2)
        return nn.Sequential(nn.Flatten(), *layers)


def train(folder=None, *, workers=0, net=None, dataset=None, method="fpl", changes=None, **options):
    bags = bags_of(Crops() if dataset is None else dataset, evaluate=CENTRE)
    train, valid, _ = bags.split(0.25, seed=0)
    config = replace(CONFIG, **{"workers": workers, **(changes or {})})
    net = net or network()
    history = fit(net, train, valid, method=method, config=config, run=folder, **options)
    return net, history


# ------------------------------------------------------------------------------------- augmentation


def crops_by_epoch(seed):
    """What was read of each row in each epoch."""
    dataset, seen = Crops(), []

    def on_epoch(record, net):
        seen.append(dict(dataset.read))
        assert len(seen[-1]) == len(dataset.read)  # once each
        dataset.read.clear()

    bags = bags_of(dataset, evaluate=CENTRE)
    fit(network(), bags, config=replace(CONFIG, seed=seed), on_epoch=on_epoch)
    return seen


def test_crops_differ_in_every_epoch_and_are_the_same_under_the_same_seed():
    first, again, other = crops_by_epoch(0), crops_by_epoch(0), crops_by_epoch(1)
    assert first == again
    for one, two in ((first[0], first[1]), (first[1], first[2]), (first[0], other[0])):
        assert one.keys() == two.keys() == set(range(N))
        assert all(one[row] != two[row] for row in one)


def test_confidences_without_a_dataset_to_evaluate_are_of_the_same_crops_every_time():
    dataset = Crops()
    bags = bags_of(dataset)
    model = Model(network().eval(), bags.classes, [{"shape": [1, 5, 5], "dtype": "float32"}])
    once = model.predict_proba(dataset)
    np.testing.assert_array_equal(once, model.predict_proba(bags))
    np.testing.assert_array_equal(once, model.confidence(bags))
    read = dict(dataset.read)
    assert dict(dataset.read[-N:]) == read


def test_pieces_of_a_step_are_read_alike_in_both_passes():
    dataset = Crops()

    def on_epoch(record, net):
        for row in range(N):
            first, second = (crop for own, crop in dataset.read if own == row)
            assert first == second
        dataset.read.clear()

    bags, config = bags_of(dataset, evaluate=CENTRE), replace(CONFIG, instances_per_pass=5)
    alone, together = network(), network()
    fit(alone, bags, method="proportion-loss", config=config, on_epoch=on_epoch)
    fit(together, bags, method="proportion-loss", config=replace(config, workers=2))
    assert same_weights(alone, together)


# ----------------------------------------------------------------------------- workers and resuming


def same_weights(ours, theirs):
    return all(
        torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True)
    )


def test_workers_change_nothing_and_end_with_the_training():
    (alone, history), (together, other) = train(), train(workers=2)
    assert same_weights(alone, together)
    assert history["loss"] == other["loss"]
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(("first", "then"), [(0, 0), (2, 2), (2, 0)])
def test_a_run_goes_on_to_the_same_bits_with_any_number_of_workers(first, then, tmp_path):
    wanted = outcome(tmp_path / "whole", train(tmp_path / "whole")[1])
    with pytest.raises(Interrupted):
        train(tmp_path / "run", workers=first, on_epoch=stop_after(2))
    assert not multiprocessing.active_children()
    got = outcome(tmp_path / "run", train(tmp_path / "run", workers=then)[1])
    assert same_outcome(got, wanted)


class Stumbling(Crops):
    def __getitem__(self, row):
        if len(self.read) > 60:
            raise Interrupted
        return super().__getitem__(row)


def test_a_dataset_that_raises_leaves_no_process_and_no_hook(tmp_path):
    for workers in (0, 2):
        net = network()
        with pytest.raises(Interrupted):
            train(net=net, workers=workers, dataset=Stumbling(), method="proportion-loss")
        assert not multiprocessing.active_children()
        assert not net._forward_pre_hooks


@pytest.mark.slow
@pytest.mark.parametrize(("first", "then"), [(0, 2), (2, 0), (2, 2)])
def test_a_killed_process_is_taken_up_to_the_same_bits(first, then, tmp_path):
    wanted = outcome(tmp_path / "whole", train(tmp_path / "whole")[1])
    for step in (3, 9):  # of the first epoch, of a later one
        command = [sys.executable, __file__, str(tmp_path / "run"), str(first), str(step)]
        done = subprocess.run(command, env=ENVIRONMENT, check=False, timeout=120)
        assert done.returncode == -signal.SIGKILL
    got = outcome(tmp_path / "run", train(tmp_path / "run", workers=then)[1])
    assert same_outcome(got, wanted)


def test_a_run_of_another_dataset_is_not_taken_up(tmp_path):
    with pytest.raises(Interrupted):
        train(tmp_path, on_epoch=stop_after(1))
    bags = bags_of(Crops(), evaluate=TensorDataset(CENTRE.tensors[0] + 1))
    part, valid, _ = bags.split(0.25, seed=0)
    with pytest.raises(RunError, match="holds a run of another training set"):
        fit(network(), part, valid, config=CONFIG, run=tmp_path)


class OwnGenerator(Dataset):
    """Keeps a generator to itself, which nobody can seed."""

    def __init__(self):
        self.generator = np.random.default_rng(0)

    def __len__(self):
        return N

    def __getitem__(self, row):
        noise = self.generator.normal(size=(1, CROP, CROP)).astype("float32")
        return IMAGES[row][:, 1:6, 1:6] + 0.1 * torch.from_numpy(noise)


def test_a_dataset_of_its_own_randomness_can_be_taken_up(tmp_path):
    with pytest.raises(Interrupted):
        fit(network(), bags_of(OwnGenerator()), config=CONFIG, run=tmp_path, on_epoch=stop_after(1))
    further = OwnGenerator()
    further[0]  # so that all that follows is another
    history = fit(network(), bags_of(further), config=CONFIG, run=tmp_path)
    assert history.n_epochs == 4


# ------------------------------------------------------------------------------- kinds of instances


class Reader(nn.Module):
    """A small transformer's way to be called: by keywords, as a tokenizer returns them."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 4), nn.Linear(4, 2)

    def forward(self, *, input_ids, attention_mask):
        assert input_ids.dtype == torch.int64
        shown = self.embedding(input_ids) * attention_mask[..., None]
        return self.head(shown.sum(dim=1) / attention_mask.sum(dim=1, keepdim=True))


def tokens():
    ids = torch.from_numpy(np.random.default_rng(0).integers(1, 9, size=(N, 12)))
    ids[:, 0] = 1 + torch.from_numpy(TRUTH)
    mask = (torch.arange(12) < 6).long().expand(N, -1)
    return [{"attention_mask": mask[i], "input_ids": ids[i], "labels": 0} for i in range(N)]


def test_items_that_are_mappings_are_keyword_arguments_of_the_net(tmp_path):
    bags, net = bags_of(tokens()), Reader()
    train, valid, _ = bags.split(0.25, seed=0)
    fit(net, train, valid, config=CONFIG, run=tmp_path)
    assert not net._forward_pre_hooks
    model = Model.load(tmp_path, net=Reader)
    assert model.names == ("attention_mask", "input_ids")
    whole = {name: torch.stack([own[name] for own in tokens()]) for name in model.names}
    with torch.no_grad():
        wanted = net(**whole).softmax(dim=1)
    backwards = [dict(reversed(own.items())) for own in tokens()]
    for given in (bags, Listed(tokens()), Listed(backwards), bags_of(Listed(backwards))):
        np.testing.assert_allclose(model.predict_proba(given), wanted, atol=1e-6)


def test_an_augmentation_takes_and_returns_parts_by_name():
    seen = []

    def mirrored(*, input_ids, attention_mask):
        seen.append((input_ids.max().item(), attention_mask.max().item()))
        return {"input_ids": input_ids.flip(1), "attention_mask": attention_mask.flip(1)}

    train = bags_of(tokens())
    fit(Reader(), train, config=CONFIG, augment=mirrored)
    assert {most for _, most in seen} == {1}
    assert max(most for most, _ in seen) == 8
    with pytest.raises(ConfigError, match=r"augment returned a tuple for .*input_ids"):
        fit(Reader(), train, config=CONFIG, augment=lambda **x: tuple(x.values()))


class Listed(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, row):
        return self.items[row]


def test_sets_of_other_names_are_refused():
    other = [{"ids": own["input_ids"]} for own in tokens()]
    with pytest.raises(BagError, match="the validation instances have parts of the names"):
        fit(Reader(), bags_of(tokens()), bags_of(other), config=CONFIG)


def test_whole_numbers_reach_an_embedding_as_they_are():
    ids = np.random.default_rng(0).integers(9, size=(N, 12))

    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(9, 4), nn.Linear(4, 2)

        def forward(self, x):
            assert x.dtype == torch.int64
            return self.head(self.embedding(x).mean(dim=1))

    for bags in (
        bags_of(TensorDataset(torch.from_numpy(ids))),
        Bags.from_rows(ids, np.arange(N) // 6, truth=TRUTH),
    ):
        fit(Mean(), bags, config=replace(CONFIG, epochs=1))


def test_ready_nets_are_built_for_a_dataset_and_measured_on_it():
    bags = bags_of(Crops(), evaluate=CENTRE)
    net = build_net("resnet18", bags, stem="cifar")
    torch.testing.assert_close(net.mean.flatten(), CENTRE.tensors[0].mean().reshape(1))
    table = bags_of(TensorDataset(IMAGES.flatten(1)))
    fit_many([Job(build_net("mlp", table), table, config=CONFIG) for _ in range(2)])


def test_the_estimator_takes_bags_of_a_dataset_and_predicts_one():
    flat = TensorDataset(IMAGES.flatten(1), torch.from_numpy(TRUTH))
    clf = LLPClassifier(random_state=0).fit(bags_of(flat))
    assert clf.plan_.method.value == "count-likelihood"
    assert clf.model_.predict(flat).shape == (N,)
    assert (clf.model_.predict(flat) == TRUTH).mean() > 0.8


def test_items_that_a_net_cannot_take_are_refused_before_training():
    with pytest.raises(ConfigError, match="cannot take training instances"):
        fit(nn.Linear(3, 2), bags_of(CENTRE), config=CONFIG)
    with pytest.raises(DataError, match="of type str"):
        fit(network(), bags_of(["text"] * N), config=CONFIG)


if __name__ == "__main__":
    folder, workers, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    taken = Stepper.__call__

    def die_at_last(stepper, step):
        global last
        last -= 1
        if not last:
            os.kill(os.getpid(), signal.SIGKILL)
        return taken(stepper, step)

    Stepper.__call__ = die_at_last  # type: ignore[method-assign]
    train(folder, workers=workers)
