"""What a net knows before it is trained: where that is found, and what is the same before it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from apportion import FPL, Bags, Job, Run, TrainConfig, build_net
from apportion.errors import BagError, ConfigError, DataError, RunError
from apportion.methods.registry import METHODS
from apportion.plan.choices import Choice
from apportion.plan.images import Pretraining
from apportion.plan.plan import make_plan
from apportion.training.pretrain import pretrain, pretraining_config
from apportion.training.pretrained import (
    file_of,
    load_as_planned,
    net_as_before,
    pretrain_as_planned,
)


def images(n=32):
    x = np.random.default_rng(0).integers(256, size=(n, 1, 8, 8), dtype=np.uint8)
    return Bags.from_rows(x, np.arange(n) // 8, truth=np.arange(n) % 2)


def as_planned(net, bags, run=None, functions=None, **options):
    config = TrainConfig.preset("strong", device="cpu", threads=1, **options)
    functions = functions or {}
    plan = Pretraining(2, bags.n_instances)
    job = Job(net, bags, method=METHODS["strong"], config=config, run=run, **functions)
    pretrain_as_planned(job, plan)


def test_how_a_machine_computes_is_the_same_before_training(quick, tmp_path):
    run = Run(tmp_path)
    bags = images()
    as_planned(build_net("resnet18", bags), bags, run, instances_per_pass=16, seed=3)
    found = Run(run.pretraining).settings()["train"]
    assert (found["batch_size"], found["instances_per_pass"], found["seed"]) == (16, 16, 3)
    assert (found["device"], found["threads"], found["epochs"]) == ("cpu", 1, 2)
    assert run.settings()["method"]["unlikelihood"] == "log"
    assert run.settings()["train"]["epochs"] == 150
    assert not run.model.exists()


@pytest.mark.parametrize(
    ("functions", "method", "words"),
    [
        ({"optimizer": lambda _: None}, "strong", "optimizer"),
        ({"augment": lambda x: x[:1]}, "strong", "augment"),
        ({}, FPL(first=np.ones(32, np.int64)), "first labels give bag 0"),
    ],
)
def test_what_training_would_refuse_is_told_before_pretraining(functions, method, words, tmp_path):
    net, bags = build_net("resnet18", images()), images()
    config = TrainConfig.preset("strong", device="cpu", threads=1)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    job = Job(net, bags, method=method, config=config, run=tmp_path, **functions)
    with pytest.raises((ConfigError, BagError), match=words):
        pretrain_as_planned(job, Pretraining(2, 32))
    assert not list(tmp_path.iterdir())
    assert all(value.equal(before[name]) for name, value in net.state_dict().items())


def test_nothing_is_done_where_a_checkpoint_has_the_weights(quick, tmp_path):
    run, bags = Run(tmp_path), images()
    run.checkpoint.touch()
    net = build_net("resnet18", bags)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    as_planned(net, bags, run)
    assert all(value.equal(before[name]) for name, value in net.state_dict().items())
    assert not run.pretraining.exists()


def test_a_plan_tells_of_what_was_read(quick, tmp_path):
    bags = images()
    net = build_net("resnet18", bags, stem="cifar")
    config = pretraining_config(32, epochs=1, device="cpu", threads=1)
    pretrain(net, bags, config=config, run=tmp_path)
    assert net_as_before(tmp_path, {"net": None}) == {"net": "resnet18", "stem": "cifar"}
    assert net_as_before(tmp_path, {"net": "resnet18", "stem": "imagenet"}) == {}
    with pytest.raises(ConfigError, match=r"the net is mlp, but .* was pre-trained with resnet18"):
        net_as_before(tmp_path, {"net": "mlp"})
    plan = make_plan(bags, validation=Choice(0.0, ""), pretrain=tmp_path, net="resnet18")
    found = load_as_planned(
        build_net("resnet18", bags, stem="cifar"), bags, tmp_path, plan, {"stem": "cifar"}
    )
    assert str(found.stem) == "cifar (as it was pre-trained)"
    assert str(found.pretraining) == f"loaded from {tmp_path.name}, of 32 rows"
    assert str(found.net) == "resnet18 (given)"


def test_what_was_pretrained_is_found_in_folders_and_as_a_file(tmp_path):
    run = Run(tmp_path / "a")
    inside = Run(run.pretraining)
    inside.folder.mkdir(parents=True)
    inside.config.write_text('format = 4\n[train]\nepochs = 9\n[method]\nname = "SimCLR"\n')
    with pytest.raises(RunError, match=r"0 of 9 epochs are done in .*pretraining"):
        file_of(run.folder)
    inside.pretrained.touch()
    for path in (run.folder, inside.folder, inside.pretrained, str(run.folder)):
        assert file_of(path) == inside.pretrained
    with pytest.raises(RunError, match="nowhere does not exist") as refused:
        file_of(tmp_path / "nowhere")
    assert "Pass the folder of a finished run of apportion pretrain" in str(refused.value)


def test_what_is_no_run_and_what_is_no_file_of_one_are_told_with_the_right_verb(tmp_path):
    (tmp_path / "x.npy").write_bytes(b"another file" * 9)
    for path in (tmp_path, tmp_path / "x.npy"):
        with pytest.raises(RunError, match=r"is not a run folder|is damaged") as refused:
            net_as_before(path, {})
        assert "retrain, or its file pretrained.safetensors." in str(refused.value)


def test_images_of_other_channels_are_told_as_such(quick, tmp_path):
    """Files that are all gray have one channel, and three as soon as one of them has colours."""
    bags = images()
    coloured = bags.with_rows(np.repeat(bags.x, 3, axis=1))
    net = build_net("resnet18", coloured)
    pretrain(net, coloured, config=pretraining_config(32, epochs=1, device="cpu"), run=tmp_path)
    plan = make_plan(bags, validation=Choice(0.0, ""), pretrain=tmp_path, net="resnet18")
    with pytest.raises(RunError, match="on images of 3 channels, but these have 1") as refused:
        load_as_planned(build_net("resnet18", bags), bags, tmp_path, plan, {})
    assert "all gray" in str(refused.value)


def test_several_processes_are_told_to_pretrain_in_one(quick, monkeypatch):
    for name, value in {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "x", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    bags = images()
    with pytest.raises(ConfigError, match=r"several processes would share.*\n.*--pretrained runs"):
        as_planned(build_net("resnet18", bags), bags)


def test_features_of_a_function_that_cannot_be_are_told_before_pretraining(tmp_path):
    net, config = build_net("resnet18", images()), TrainConfig.preset("strong", device="cpu")
    strong: Any = METHODS["strong"]
    method = replace(strong, first=lambda x: torch.zeros(3))
    with pytest.raises(DataError, match=r"the features of 32 rows are of shape \(3,\)"):
        pretrain_as_planned(Job(net, images(), method=method, config=config), Pretraining(2, 32))
