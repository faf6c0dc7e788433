"""Pre-training: what it changes and what it leaves alone, its run folder, and its file."""

import json
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine import batches
from apportion.errors import ConfigError, DataError, RunError
from apportion.nets.build import build_net
from apportion.runs.header import metadata, read_header, seal
from apportion.training import pretrain as module
from apportion.training.fit import fit
from apportion.training.pretrain import load_pretrained, pretrain, pretraining_config
from tests.training.interrupted_runs import Interrupted, contents, identical, stop_after

AUGMENT = ("crop:1", "noise:0.3")
CONFIG = pretraining_config(60, epochs=3, batch_size=20, augment=AUGMENT, device="cpu", threads=1,
                            checkpoint_every=1)  # fmt: skip


def image_bags(n_bags=12, size=5, seed=0):
    """Images that are bright on the left, or on the right."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=n_bags * size)
    x = rng.normal(size=(len(truth), 1, 6, 6)).astype(np.float32)
    x[truth == 0, :, :, :3] += 2
    x[truth == 1, :, :, 3:] += 2
    return Bags.from_rows(x, np.arange(len(truth)) // size, truth=truth, classes=range(2))


BAGS = image_bags()


class Net(nn.Module):
    """Its last layer is inside a Sequential, by number."""

    def __init__(self, width=16):
        super().__init__()
        body = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]
        self.body = nn.Sequential(*body, nn.Linear(64, width), nn.ReLU())
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(width, 2))

    def forward(self, x):
        return self.head(self.body(x))


def new(seed=3, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Net(**options)


def frozen():
    net = new()
    net.body.requires_grad_(False)
    return net


def weights_of(net):
    return {name: value.detach().clone() for name, value in net.state_dict().items()}


def features(net):
    with torch.no_grad():
        return net.eval().body(torch.from_numpy(BAGS.x))


# --------------------------------------------------------------------------------- what is changed


def test_all_but_the_last_layer_is_trained_and_that_comes_back_as_it_was():
    net, state = new(), torch.get_rng_state()
    before, layer, parameters = weights_of(net), net.head[1], [*net.parameters()]
    history = pretrain(net, BAGS, config=replace(CONFIG, epochs=8))
    assert net.head[1] is layer
    assert all(a is b for a, b in zip(parameters, net.parameters(), strict=True))
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]) == name.startswith("head."), name
    assert history["loss"][-1] < 0.9 * history["loss"][0]
    assert history.records[0].keys() == {"epoch", "loss", "seconds"}
    assert torch.equal(state, torch.get_rng_state())
    assert all(p.requires_grad and p.grad is None for p in net.parameters())


@pytest.mark.parametrize("name", ["resnet18", "mlp"])
def test_nets_of_this_library_are_trained_and_then_classify(name):
    """Also those that normalise by themselves: images of uint8 are taken."""
    x = np.clip(40 * BAGS.x + 100, 0, 255).astype(np.uint8)
    bags = BAGS.with_rows(x)
    net = build_net(name, bags, seed=0, **({"stem": "cifar"} if name == "resnet18" else {}))
    before = weights_of(net)
    pretrain(net, bags, config=replace(CONFIG, epochs=1))
    same = {key for key, value in net.state_dict().items() if torch.equal(value, before[key])}
    trained = {key for key, _ in net.named_parameters()} - same
    assert len(trained) == len([*net.parameters()]) - 2
    fit(net, bags, config=TrainConfig(epochs=1, device="cpu", threads=1))


def test_classes_and_proportions_play_no_part():
    nets, other = (new(), new()), np.random.default_rng(5)
    order = other.permutation(60)
    index = Bags.from_members(BAGS.x, [order[:7], order[7:], order[5:9]], [[0.1, 0.9]] * 3)
    for net, bags in zip(nets, (BAGS, index), strict=True):
        pretrain(net, bags, config=CONFIG)
    assert identical(weights_of(nets[0]), weights_of(nets[1]))


def test_the_result_follows_from_the_seed():
    nets = [new() for _ in range(3)]
    for net, seed in zip(nets, (1, 1, 2), strict=True):
        torch.manual_seed(int(torch.randint(100, ())))  # which plays no part
        pretrain(net, BAGS, config=replace(CONFIG, seed=seed))
    assert identical(weights_of(nets[0]), weights_of(nets[1]))
    assert not identical(weights_of(nets[0]), weights_of(nets[2]))


def test_with_averaged_weights_the_average_is_left_in_the_net(monkeypatch):
    monkeypatch.setattr("apportion.engine.averaged.WARM_UP", 0)
    net, before = new(), weights_of(new())
    pretrain(net, BAGS, config=replace(CONFIG, average=0.9999))
    for name, _ in net.named_parameters():
        assert (net.state_dict()[name] - before[name]).abs().max() < 1e-4


# ------------------------------------------------------------------------------ which rows are used


def poisoned(used):
    x = BAGS.x.copy()
    x[np.setdiff1d(np.arange(60), used)] = np.nan
    return BAGS.with_rows(x)


def test_only_rows_that_stand_in_bags_are_read(tmp_path):
    used = BAGS.index[: BAGS.offsets[6]]
    few, net = poisoned(used)[:6], new()
    history = pretrain(net, few, config=CONFIG, run=tmp_path)
    assert np.isfinite(history["loss"]).all()
    assert all(value.isfinite().all() for value in net.state_dict().values())
    assert load_pretrained(new(), tmp_path) == 30


def test_rows_of_others_are_used_only_if_they_are_passed(tmp_path):
    """Those of the first half of the bags are passed, and not those of the second."""
    few, rest = BAGS[:6], BAGS[6:]
    nets = [new() for _ in range(3)]
    pretrain(nets[0], few, config=CONFIG)
    pretrain(nets[1], few, others=[rest[:2], rest[1:]], config=CONFIG, run=tmp_path)
    pretrain(nets[2], BAGS, config=CONFIG)
    assert not identical(weights_of(nets[0]), weights_of(nets[1]))
    assert identical(weights_of(nets[1]), weights_of(nets[2]))
    assert load_pretrained(new(), tmp_path) == 60
    both = poisoned(BAGS.index[: BAGS.offsets[9]])
    history = pretrain(new(), both[:6], others=[both[6:9]], config=CONFIG)
    assert np.isfinite(history["loss"]).all()
    with pytest.raises(RunError, match="the loss is nan"):
        pretrain(new(), both[:6], others=[both[6:]], config=CONFIG)


def test_others_of_another_array_are_refused():
    with pytest.raises(DataError, match="others are bags of another x"):
        pretrain(new(), BAGS, others=[image_bags(seed=1)], config=CONFIG)


def test_every_row_is_used_once_in_an_epoch_with_two_views_of_each():
    net, seen = new(), []
    x = np.broadcast_to(10 * np.arange(60.0)[:, None, None, None], (60, 1, 6, 6)).astype(np.float32)
    members = [np.arange(0, 40), np.arange(20, 60)]  # of which 20 stand in both
    bags = Bags.from_members(x, members, [[0.5, 0.5]] * 2)

    def look(module, given):
        if module.training:
            seen.append((given[0].mean(dim=(1, 2, 3)) / 10).round().int().tolist())

    net.register_forward_pre_hook(look)
    pretrain(net, bags, config=replace(CONFIG, epochs=2, augment=("noise:0.001",)))
    assert [len(views) for views in seen] == [40] * 6
    assert all(views[:20] == views[20:] for views in seen)
    for epoch in (seen[:3], seen[3:]):
        assert sorted(row for views in epoch for row in views[:20]) == list(range(60))


# -------------------------------------------------------------------------------------- run folders


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run, and its net."""
    folder, net = tmp_path_factory.mktemp("whole"), new()
    pretrain(net, BAGS, config=CONFIG, run=folder)
    return folder, net


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_run_that_was_interrupted_goes_on_bit_by_bit(tmp_path, whole, epoch):
    with pytest.raises(Interrupted):
        pretrain(new(), BAGS, config=CONFIG, run=tmp_path, on_epoch=stop_after(epoch))
    assert not (tmp_path / "pretrained.safetensors").exists()
    net = new()
    history = pretrain(net, BAGS, config=CONFIG, run=tmp_path)
    assert history.n_epochs == 3
    assert identical(weights_of(net), weights_of(whole[1]))
    for name in ("pretrained.safetensors", "checkpoint.safetensors"):
        assert (tmp_path / name).read_bytes() == (whole[0] / name).read_bytes()


def test_a_finished_run_is_read_and_stays_as_it_is(whole):
    before, net = contents(whole[0]), new()
    history = pretrain(net, BAGS, config=CONFIG, run=whole[0])
    assert history.n_epochs == 3
    assert contents(whole[0]) == before
    assert identical(weights_of(net), weights_of(whole[1]))
    assert {*before} == {
        "config.toml",
        "log.jsonl",
        "checkpoint.safetensors",
        "pretrained.safetensors",
    }


def test_a_run_without_a_folder_gives_the_same(whole):
    net = new()
    pretrain(net, BAGS, config=CONFIG)
    assert identical(weights_of(net), weights_of(whole[1]))


def test_the_file_holds_all_but_the_last_layer_and_says_what_it_is_of(whole):
    path = whole[0] / "pretrained.safetensors"
    net = {k: v for k, v in weights_of(whole[1]).items() if not k.startswith("head.")}
    assert identical(load_file(path), net)
    header = read_header(path, "pretrained")
    assert (header["head"], header["rows"]) == ("head.1", 60)


def test_other_rows_are_refused_in_the_same_folder(tmp_path, whole):
    shutil.copytree(whole[0], tmp_path / "run")
    with pytest.raises(RunError, match="holds a run of another training set"):
        pretrain(new(), BAGS[:6], config=CONFIG, run=tmp_path / "run")


# ------------------------------------------------------------------------------------------ loading


@pytest.mark.parametrize("where", ["", "pretrained.safetensors"])
def test_another_net_of_the_same_kind_gets_the_features_and_keeps_its_last_layer(whole, where):
    net = new(seed=9)
    head = net.head[1].weight.clone()
    assert not torch.allclose(features(net), features(whole[1]))
    assert load_pretrained(net, whole[0] / where) == 60
    assert torch.equal(features(net), features(whole[1]))
    assert torch.equal(net.head[1].weight, head)
    other = new(seed=9)
    other.head[1] = nn.Linear(16, 7)  # of other classes
    load_pretrained(other, whole[0] / where)
    assert torch.equal(features(other), features(whole[1]))


@pytest.mark.parametrize(
    ("net", "found"),
    [
        (new(width=12), r"body.4.bias is float32 of shape \(16,\) there and .* \(12,\) here"),
        (nn.Sequential(new()), "is missing there|missing here"),
        (nn.Linear(3, 2), "missing"),
    ],
)
def test_another_net_is_refused_and_left_alone(whole, net, found):
    before = weights_of(net)
    with pytest.raises(RunError, match=f"(?s)was saved from another net: .*({found})"):
        load_pretrained(net, whole[0])
    assert identical(weights_of(net), before)


def resaved(whole, tmp_path, change, kind="pretrained"):
    path = tmp_path / "pretrained.safetensors"
    tensors = load_file(whole[0] / "pretrained.safetensors")
    header = read_header(whole[0] / "pretrained.safetensors", "pretrained")
    change(tensors, header)
    about = {k: v for k, v in header.items() if k not in ("format", "kind")}
    save_file(tensors, path, metadata(kind, about))
    seal(path)
    return path


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(whole, tmp_path, value):
    def change(tensors, header):
        tensors["body.4.bias"][2] = value

    with pytest.raises(RunError, match=r"body\.4\.bias has values that are not finite"):
        load_pretrained(new(), resaved(whole, tmp_path, change))


@pytest.mark.parametrize(
    "about",
    [
        *({"head": head} for head in (None, 3)),
        *({"rows": rows} for rows in (0, True, 2.5, 2**63, 10**400)),
    ],
)
def test_a_header_that_lacks_what_it_must_say_is_refused(whole, tmp_path, about):
    path = resaved(whole, tmp_path, lambda tensors, header: header.update(about))
    with pytest.raises(RunError, match="is damaged: its header lacks head or rows"):
        load_pretrained(new(), path)


@pytest.mark.parametrize("head", ["body", "head", "body.0", "body.1"])
def test_no_layer_but_a_linear_one_is_left_as_it_is(whole, tmp_path, head):
    """The file lacks what it says is the last layer, and has the last layer itself."""
    path = tmp_path / "pretrained.safetensors"
    tensors = {k: v for k, v in weights_of(whole[1]).items() if not k.startswith(f"{head}.")}
    save_file(tensors, path, metadata("pretrained", {"head": head, "rows": 60}))
    seal(path)
    net, before = new(seed=9), weights_of(new(seed=9))
    with pytest.raises(RunError, match=f"its last layer was '{head}', which is a"):
        load_pretrained(net, path)
    assert identical(weights_of(net), before)


@pytest.mark.parametrize("head", ["", "nowhere", "body.2"])
def test_a_header_of_a_layer_without_weights_leaves_none_out(whole, tmp_path, head):
    path = resaved(whole, tmp_path, lambda tensors, header: header.update(head=head))
    with pytest.raises(RunError, match=r"was saved from another net: head\.1\.bias is missing"):
        load_pretrained(new(), path)


def test_a_net_that_ends_with_its_features_gets_them(whole):
    net = new(seed=9)
    net.head = nn.Sequential(nn.Dropout(0.1), nn.Identity())
    load_pretrained(net, whole[0])
    assert torch.equal(net.eval()(torch.from_numpy(BAGS.x)), features(whole[1]))


def test_a_file_of_another_kind_is_refused(whole, tmp_path):
    path = resaved(whole, tmp_path, lambda tensors, header: None, kind="model")
    with pytest.raises(RunError, match="holds another kind: model, not pretrained"):
        load_pretrained(new(), path)
    with pytest.raises(RunError, match="holds another kind: checkpoint"):
        load_pretrained(new(), whole[0] / "checkpoint.safetensors")


@pytest.mark.parametrize("place", [40, -5])
def test_a_file_in_which_a_bit_is_another_is_refused(whole, tmp_path, place):
    data = bytearray((whole[0] / "pretrained.safetensors").read_bytes())
    data[place] ^= 1
    (tmp_path / "pretrained.safetensors").write_bytes(data)
    net, before = new(), weights_of(new())
    with pytest.raises(RunError, match="damaged"):
        load_pretrained(net, tmp_path)
    assert identical(weights_of(net), before)


@pytest.mark.parametrize("where", ["", "nowhere"])
def test_a_folder_without_such_a_file_is_refused_with_the_remedy(tmp_path, where):
    with pytest.raises(
        RunError, match=r"(?s)does not exist\..*Pass the folder of a run of pretrain"
    ):
        load_pretrained(new(), tmp_path / where)


# ------------------------------------------------------------------------------------ what is wrong


@pytest.mark.parametrize(
    ("x", "kind"),
    [(BAGS.x.reshape(60, -1), "table"), (BAGS.x[:, 0], "signals"), (np.arange(60), "table")],
)
def test_what_is_no_images_is_refused(x, kind):
    with pytest.raises(DataError, match=f"the instances are {kind}: views are known of images"):
        pretrain(nn.Linear(36, 2), BAGS.with_rows(x), config=CONFIG)


def test_images_that_are_all_the_same_are_refused_before_anything_is_written(tmp_path):
    net, before = new(), weights_of(new())
    x = BAGS.x.copy()
    x[:40] = x[0]
    few = BAGS.with_rows(x)[:8]
    with pytest.raises(DataError, match="all 40 images are the same: nothing can be learned"):
        pretrain(net, few, config=CONFIG, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert identical(weights_of(net), before)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"augment": ()}, "augment is empty"),
        ({"instances_per_pass": 19}, "batch_size is 20, but instances_per_pass 19"),
        ({"patience": 2}, "patience is 2, but there are no validation bags"),
    ],
)
def test_settings_that_make_no_sense_are_refused_and_the_net_is_as_it_was(options, words):
    net, before = new(), weights_of(new())
    with pytest.raises(ConfigError, match=words):
        pretrain(net, BAGS, config=replace(CONFIG, **options))
    assert identical(weights_of(net), before)


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (nn.Sequential(nn.Flatten(), nn.Unflatten(1, (2, 18))), "has no nn.Linear that returns"),
        (nn.Linear(6, 2), "Linear is a last layer: there is nothing before it"),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(36, 2)),
            "Sequential is a last layer: there is nothing before it",
        ),
        (frozen(), "Net is frozen before its last layer: there is nothing before it"),
    ],
)
def test_a_net_without_a_last_layer_of_its_own_is_refused(net, words):
    with pytest.raises(ConfigError, match=words):
        pretrain(net, BAGS, config=CONFIG)


class Broken(Exception):  # noqa: N818
    """What happens in the middle of a training."""


@pytest.mark.parametrize("kind", [Broken, KeyboardInterrupt])
def test_the_last_layer_comes_back_if_training_raises(tmp_path, kind):
    net = new()
    layer = net.head[1]

    def fail(record: Any, model: Any) -> None:
        assert net.head[1] is not layer
        raise kind

    with pytest.raises(kind):
        pretrain(net, BAGS, config=CONFIG, on_epoch=fail, run=tmp_path)
    assert net.head[1] is layer
    assert net.eval()(torch.from_numpy(BAGS.x)).shape == (60, 2)


def test_a_limit_of_memory_holds_for_pre_training_as_well(monkeypatch, whole):
    """Images are then streamed, and the result is the same."""
    monkeypatch.setattr(batches, "Resident", None)  # which would fail if it were called
    net = new()
    pretrain(net, BAGS, config=replace(CONFIG, device_memory_gib=0))
    assert identical(weights_of(net), weights_of(whole[1]))


class Items(torch.utils.data.Dataset):
    """Items by name, as a net of one's own may want them."""

    def __len__(self):
        return 60

    def __getitem__(self, i):
        return {"image": torch.from_numpy(BAGS.x[i])}


class ByName(Net):
    def forward(self, image):
        return super().forward(image)


def test_items_that_have_names_are_passed_by_name():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        net = ByName()
    pretrain(net, BAGS.with_rows(Items()), config=replace(CONFIG, augment=("noise:0.1",)))
    assert not net._forward_pre_hooks
    assert not any(m._forward_hooks for m in net.modules())


@pytest.mark.parametrize(
    ("n", "size"), [(1, 32), (255, 32), (512, 64), (8192, 1024), (10**6, 1024)]
)
def test_the_default_steps_are_of_an_eighth_of_the_rows_within_limits(n, size):
    config = pretraining_config(n)
    assert config.batch_size == size <= config.instances_per_pass
    assert config == replace(TrainConfig.preset("pretrain"), batch_size=size)
    assert pretraining_config(n, batch_size=7, epochs=2).batch_size == 7
    assert json.loads(json.dumps(config.augment))  # there are views


def test_what_it_learns_tells_the_classes_apart():
    """Features in which neighbours are of one class more often than those of the net as it was."""

    def share(net):
        found = features(net)
        unit = found / found.norm(dim=1, keepdim=True).clamp_min(1e-9)
        similar = unit @ unit.T - 2 * torch.eye(60)
        truth = torch.from_numpy(BAGS.truth)
        return (truth[similar.topk(3).indices] == truth[:, None]).float().mean().item()

    assert module.HIDDEN > module.PROJECTED
    net = new()
    before = share(net)
    pretrain(net, BAGS, config=replace(CONFIG, epochs=15, augment=("noise:1",)))
    assert share(net) > max(before, 0.8)
