"""The preset "strong" of the classifier: images alone, and features of them before any labels."""

import logging
import shutil

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from torch import nn

from apportion import Bags, LLPClassifier, Run
from apportion.engine.device import own_threads
from apportion.errors import ConfigError, DataError, RunError
from apportion.plan.images import Pretraining
from apportion.training import pretrained
from apportion.training.pretrain import pretrain
from tests.nets.small_resnet import few_epochs, small_resnet

PRETRAIN = "apportion.training.pretrained.pretrain"


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    with own_threads(1):
        yield


def images(n=64, side=8, seed=0):
    """Bright and dark images in bags of eight that differ in how many are bright."""
    rng = np.random.default_rng(seed)
    truth = (rng.random(n) < np.linspace(0.1, 0.9, n // 8).repeat(8)).astype(int)
    x = rng.integers(100, size=(n, 3, side, side)) + 120 * truth[:, None, None, None]
    return Bags.from_rows(x.astype(np.uint8), np.arange(n) // 8, truth=truth)


def strong(**options):
    given = {"preset": "strong", "epochs": 2, "random_state": 0, "device": "cpu", **options}
    return LLPClassifier(**given)


def weights(classifier):
    return {name: value.clone() for name, value in classifier.model_.net.state_dict().items()}


def same(ours, theirs):
    return ours.keys() == theirs.keys() and all(ours[n].equal(theirs[n]) for n in ours)


def test_a_resnet_learns_features_and_then_labels(monkeypatch):
    few_epochs(1, monkeypatch.setitem)
    bags = images(32)
    classifier = strong(epochs=1).fit(bags)
    plan = classifier.plan_
    assert (plan.method.value, plan.stem.value, plan.mirror.value) == ("strong", "cifar", False)
    assert str(plan.pretraining) == "1 epoch on 32 rows without labels (the preset 'strong')"
    assert classifier.predict(bags.x).shape == (32,)
    np.testing.assert_array_equal(
        np.add.reduceat(classifier.pseudo_labels_ == 1, bags.offsets[:-1]), bags.counts[:, 1]
    )


def test_only_rows_of_training_bags_are_pretrained_on(quick, monkeypatch):
    seen = []

    def watch(net, train, **options):
        seen.append((set(train.index), options["config"].augment))
        return pretrain(net, train, **options)

    monkeypatch.setattr(PRETRAIN, watch)
    bags = images()
    found = strong(validation_fraction=0.25, augment=("flip", "strong")).fit(bags)
    train, _, _ = bags.split(0.25, seed=0)
    assert seen == [(set(train.index), ("flip", "views"))]
    assert found.plan_.pretraining.value == Pretraining(2, 48)
    assert found.plan_.mirror.value is True
    assert "flip is among" in found.plan_.mirror.reason


def test_a_net_that_is_passed_is_taken_to_be_trained_already(quick, monkeypatch):
    monkeypatch.setattr(PRETRAIN, lambda *_, **__: pytest.fail("pre-trained"))
    for model in (small_resnet(2, 3), lambda bags: small_resnet(bags.n_classes, 3)):
        model = nn.Sequential(Scaled(), model) if isinstance(model, nn.Module) else Made(model)
        found = strong(model=model).fit(images()).plan_
        assert str(found.pretraining).startswith("none (the net that was passed")
        assert found.stem is None
    assert str(strong(pretrain=False).fit(images()).plan_.pretraining) == "none (given)"
    found = LLPClassifier(epochs=1, random_state=0).fit(images()).plan_
    assert str(found.pretraining) == "none (the preset 'strong' does that)"


class Scaled(nn.Module):
    def forward(self, x):
        return x.float() / 255


class Made:
    def __init__(self, make):
        self.make = make

    def __call__(self, bags):
        return nn.Sequential(Scaled(), self.make(bags))


def test_pretraining_can_be_asked_for_of_any_net_and_method(quick):
    found = LLPClassifier("fpl", epochs=1, pretrain=True, random_state=0).fit(images())
    assert str(found.plan_.pretraining) == "2 epochs on 64 rows without labels (given)"
    own = nn.Sequential(Scaled(), small_resnet(2, 3))
    assert isinstance(strong(model=own, pretrain=True).fit(images()).plan_.pretraining.value,
                      Pretraining)  # fmt: skip


def test_what_was_pretrained_is_read_again_with_its_net(quick, tmp_path, monkeypatch):
    bags = images()
    first = strong(run=tmp_path / "a", net_options={"stem": "imagenet"}).fit(bags)
    monkeypatch.setattr(PRETRAIN, lambda *_, **__: pytest.fail("pre-trained again"))
    for path in (tmp_path / "a", tmp_path / "a" / "pretraining",
                 tmp_path / "a" / "pretraining" / "pretrained.safetensors"):  # fmt: skip
        again = strong(pretrain=path).fit(bags)
        assert str(again.plan_.stem) == "imagenet (as it was pre-trained)"
        assert str(again.plan_.pretraining) == f"loaded from {path.name}, of 64 rows"
        assert same(weights(again), weights(first))
    kept = {"pretrain": tmp_path / "a", "run": tmp_path / "b"}
    again = strong(**kept).fit(bags)
    assert same(weights(strong(**kept).fit(bags)), weights(again))  # which has checkpoint and stem


@pytest.mark.parametrize("epoch", [1, 2])
def test_interrupted_pretraining_goes_on_to_the_same_bits(quick, tmp_path, monkeypatch, epoch):
    whole = strong(run=tmp_path / "whole", train_options={"checkpoint_every": 1}).fit(images())
    append = Run.append

    def stop(run, record):
        append(run, record)
        if run.folder.name == "pretraining" and record["epoch"] == epoch:
            raise KeyboardInterrupt

    cut = {"run": tmp_path / "cut", "train_options": {"checkpoint_every": 1}}
    with monkeypatch.context() as patch:
        patch.setattr(Run, "append", stop)
        with pytest.raises(KeyboardInterrupt):
            strong(**cut).fit(images())
    assert not (tmp_path / "cut" / "checkpoint.safetensors").exists()
    again = strong(**cut).fit(images())
    assert same(weights(again), weights(whole))
    for name in ("model.safetensors", "pretraining/pretrained.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_finished_pretraining_is_not_repeated(quick, tmp_path):
    first = strong(run=tmp_path).fit(images())
    log = (tmp_path / "pretraining" / "log.jsonl").read_bytes()
    for name in ("checkpoint", "model", "last", "evaluation"):
        (tmp_path / f"{name}.safetensors").unlink()
    (tmp_path / "log.jsonl").unlink()
    again = strong(run=tmp_path).fit(images())
    assert (tmp_path / "pretraining" / "log.jsonl").read_bytes() == log
    assert same(weights(again), weights(first))
    shutil.rmtree(tmp_path / "pretraining")  # a run with a checkpoint needs it no more
    assert same(weights(strong(run=tmp_path).fit(images())), weights(first))
    assert not (tmp_path / "pretraining").exists()


@pytest.mark.parametrize(
    ("options", "problem", "remedy"),
    [
        ({"preset": "strong"}, "preset is 'strong', but the instances are rows of a", "'auto'"),
        ({"preset": "strong", "method": "fpl"}, "preset is 'strong', but", "'auto'"),
        ({"pretrain": True, "epochs": 1}, "pretrain is True, but", "Leave it out"),
        ({"pretrain": "runs/pre", "epochs": 1}, "pretrain is 'runs/pre', but", "Leave it out"),
        ({"preset": "pretrain"}, "the preset 'pretrain' is for pre-training", "preset='strong'"),
        ({"preset": "srtong"}, "there is no preset 'srtong'", "Known: default, paper, strong."),
        ({"pretrain": 3}, "pretrain is 3", "Pass True, False, or the folder"),
    ],
)
def test_tables_and_wrong_options_are_refused_by_name(options, problem, remedy):
    X = np.random.default_rng(0).normal(size=(64, 3))
    with pytest.raises(ConfigError) as refused:
        LLPClassifier(**options).fit(X, bags=np.arange(64) // 8, y=np.arange(64) % 2)
    assert problem in str(refused.value)
    assert remedy in str(refused.value)


@pytest.mark.parametrize("method", ["linear", None])
def test_methods_without_such_options_ignore_them_and_say_so(method, caplog):
    X = np.random.default_rng(0).normal(size=(64, 3))
    model = None if method else LogisticRegression()
    classifier = LLPClassifier(method, model=model, preset="strong", pretrain=True, epochs=None)
    classifier.fit(X, bags=np.arange(64) // 8, y=np.arange(64) % 2)
    assert "preset, pretrain are ignored" in caplog.text
    assert "preset, pretrain are ignored" in str(classifier.plan_)


def test_a_run_of_pretraining_alone_is_no_model(quick, tmp_path):
    strong(run=tmp_path / "a").fit(images())
    with pytest.raises(RunError, match="no classifier yet") as refused:
        LLPClassifier.load(tmp_path / "a" / "pretraining")
    assert "--pretrained" in str(refused.value)
    with pytest.raises(RunError, match="keeps no pre-training of its own"):
        strong(pretrain=tmp_path / "b", **begun(tmp_path / "b")).fit(images())


def begun(folder):
    """The folder of a run without pre-training; no further options."""
    LLPClassifier(epochs=1, random_state=0, run=folder).fit(images())
    return {}


def test_long_pretraining_on_the_cpu_is_warned_of(quick, monkeypatch, caplog):
    strong().fit(images())
    assert "takes long" not in caplog.text
    monkeypatch.setattr(pretrained, "LONG", 100)
    with caplog.at_level(logging.WARNING, "apportion"):
        strong().fit(images())
    assert "Pre-training of 2 epochs on 64 rows without labels takes long on the CPU" in caplog.text


def test_a_file_keeps_the_preset_but_no_path(quick, tmp_path):
    first = strong(run=tmp_path / "a").fit(images())
    again = strong(pretrain=str(tmp_path / "a")).fit(images())
    for classifier in (first, again):
        classifier.save(tmp_path / "file")
        loaded = LLPClassifier.load(tmp_path / "file", device="cpu")
        assert (loaded.preset, loaded.pretrain) == ("strong", None)
        np.testing.assert_array_equal(loaded.predict(images().x), classifier.predict(images().x))


def test_few_steps_move_the_averaged_net_too(quick):
    """It is the average that predicts: 16 steps must not leave it where it began."""
    bags = images()
    found = strong(epochs=8, batch_size=32, pretrain=False).fit(bags)
    assert np.mean(found.predict(bags.x) == bags.truth) > 0.9


def test_what_was_pretrained_on_another_scale_is_refused(quick, tmp_path):
    bags = images()
    strong(run=tmp_path / "a").fit(bags)
    bright = Bags.from_rows((bags.x / 255).astype(np.float32), np.arange(64) // 8, truth=bags.truth)
    with pytest.raises(RunError, match=r"of mean 115 .* but these have 0\.45"):
        strong(pretrain=tmp_path / "a").fit(bright)


def test_what_was_pretrained_on_another_size_is_said(quick, tmp_path, caplog):
    strong(run=tmp_path / "a").fit(images())
    with caplog.at_level(logging.WARNING, "apportion"):
        strong(pretrain=tmp_path / "a", epochs=1).fit(images(side=16))
    assert "on images of 8 × 8, but these are of 16 × 16" in caplog.text


@pytest.mark.parametrize("other", [False, True])
def test_a_run_of_another_pretraining_is_refused(quick, tmp_path, other):
    strong(run=tmp_path / "pre").fit(images())
    strong(run=tmp_path / "a", pretrain=tmp_path / "pre").fit(images())
    with pytest.raises(RunError, match="another pre-training: loaded from pre"):
        strong(run=tmp_path / "a", pretrain=other).fit(images())


def test_pretraining_is_not_written_through_a_link(quick, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "pretraining").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="is a link"):
        strong(run=tmp_path / "a").fit(images())
    assert not any((tmp_path / "elsewhere").iterdir())


def test_images_of_any_integers_are_mixed(quick):
    bags = images()
    wide = Bags.from_rows(bags.x.astype(np.int64), np.arange(64) // 8, truth=bags.truth)
    assert strong(pretrain=False).fit(wide).predict(wide.x).shape == (64,)


@pytest.mark.parametrize("options", [{}, {"pretrain": False}, {"method": "fpl", "pretrain": True}])
def test_images_that_are_all_the_same_are_told_before_anything_is_learned(
    quick, tmp_path, monkeypatch, options
):
    bags = images()
    same_rows = Bags.from_rows(np.zeros_like(bags.x), np.arange(64) // 8, truth=bags.truth)
    monkeypatch.setattr(Run, "append", lambda *_: pytest.fail("learned"))
    with pytest.raises(DataError, match="all 64 images are the same: nothing can be learned"):
        strong(run=tmp_path / "a", **options).fit(same_rows)
    assert not Run(tmp_path / "a").has_begun()
