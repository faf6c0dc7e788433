"""`apportion pretrain`: images alone, in a run folder that trainings begin with."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from apportion import LLPClassifier, Run
from apportion.cli.terminal import Interruption
from tests.cli.images_on_disk import PLACE, STRONG, write_images
from tests.cli.test_strong import done, refused
from tests.cli.wards_on_disk import config_of, records, run

OUT = "pre"


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_images(tmp_path)


def test_images_are_learned_from_without_bags_and_a_training_begins_with_that(quick, files):
    result = done("pretrain", "images", "--out", OUT, *PLACE)
    assert "Pre-trained on 64 images." in result.stdout
    told = "--images images --proportions bags.csv --preset strong --pretrained pre"
    assert told in result.stdout
    config = config_of(OUT)
    assert config["model"] == {"net": "resnet18", "stem": "cifar"}
    assert config["plan"]["epochs"] == "2 (the default)"
    done("train", *files, *STRONG, "--pretrained", OUT, "--out", "a")
    assert config_of("a")["plan"]["pretraining"] == "loaded from pre, of 64 rows"
    finished = "pre is finished: 2 epochs. There is nothing to do."
    assert finished in done("pretrain", "images", "--out", OUT, *PLACE).stdout
    assert finished in done("pretrain", "--resume", OUT).stdout


@pytest.mark.parametrize("again", [["images", "--out", OUT, *PLACE], ["--resume", OUT]])
def test_after_ctrl_c_the_same_command_goes_on(quick, files, monkeypatch, again):
    done("pretrain", "images", "--out", "whole", *PLACE)

    def stop(interruption):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Interruption, "after_epoch", stop)
        result = run("pretrain", "images", "--out", OUT, *PLACE)
    assert result.exit_code == 130
    assert "Stopped after 1 of 2 epochs. To go on:\n  apportion pretrain --resume pre" in (
        result.stderr
    )
    done("pretrain", *again)
    ours, theirs = (Run(folder).pretrained.read_bytes() for folder in (OUT, "whole"))
    assert ours == theirs
    assert len(records(OUT)) == 2


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "last.npy", "gray.npy"])
def test_arrays_of_numpy_are_images(quick, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).integers(256, size=(64, 3, 8, 8), dtype=np.uint8)
    if name == "gray.npy":
        x = x[:, :1]
        np.save(name, x[:, 0])
    elif name == "x.npz":
        np.savez(name, x=x, truth=np.zeros(64))
    else:
        np.save(name, np.moveaxis(x, 1, -1) if name == "last.npy" else x)
    result = done("pretrain", name, "--out", OUT, "--augment", "flip,views", *PLACE)
    assert 'pretrain=\'pre\', augment=("flip", "strong"))' in result.stdout
    classifier = LLPClassifier(preset="strong", pretrain=OUT, epochs=1, random_state=0)
    classifier.fit(x, bags=np.arange(64) // 8, y=np.arange(64) % 2)
    assert str(classifier.plan_.pretraining) == "loaded from pre, of 64 rows"


def test_force_replaces_a_run_and_other_options_do_not(quick, files):
    done("pretrain", "images", "--out", OUT, *PLACE)
    before = load_file(Run(OUT).pretrained)
    other = ["pretrain", "images", "--out", OUT, "--seed", "1", *PLACE]
    assert "holds a pre-training of other options: seed" in refused(*other)
    done(*other, "--force")
    after = load_file(Run(OUT).pretrained)
    assert any(not np.array_equal(before[name], after[name]) for name in before)
    assert not Run("pre.replaced").folder.exists()


def test_it_is_said_what_a_folder_of_pretraining_is(quick, files):
    done("pretrain", "images", "--out", OUT, *PLACE)
    for command in (
        ["predict", OUT, "files.csv"],
        ["report", OUT],
        ["export", OUT, "model.onnx"],
        ["train", "--resume", OUT],
    ):
        said = refused(*command)
        assert "holds pre-training without labels, and no classifier yet" in said
        assert "--pretrained pre" in said
    done("train", *files, *STRONG, "--out", "a")
    assert "apportion train --resume a" in refused("pretrain", "--resume", "a")
    assert "apportion train --resume a" in refused("pretrain", "images", "--out", "a")
    assert "apportion pretrain --resume pre" in refused("train", *files, *STRONG, "--out", OUT)


def test_other_images_are_no_reason_to_call_a_run_finished(quick, files, tmp_path):
    done("pretrain", "images", "--out", OUT, *PLACE)
    (tmp_path / "images").rename(tmp_path / "others")
    for arguments, differ in (
        (["others"], "images"),
        (["images", "--size", "4x4"], "size"),
        (["others", "--follow-links", "--net", "mlp"], "net, follow_links, images"),
    ):
        said = refused("pretrain", *arguments, "--out", OUT, *PLACE)
        assert f"--out pre holds a pre-training of other options: {differ}.\n" in said


@pytest.mark.parametrize("verb", ["train", "pretrain"])
def test_a_folder_without_a_run_to_go_on_with_is_told(quick, files, tmp_path, verb):
    done("pretrain", "images", "--out", OUT, *PLACE)
    (tmp_path / "a").mkdir()
    Run(OUT).pretrained.rename(Run("a").pretrained)
    given = [verb, *(["images", *PLACE] if verb == "pretrain" else [*files, *STRONG])]
    said = refused(*given, "--out", "a")
    assert "--out a has pretrained.safetensors, but no run to go on with" in said
    assert "--resume" not in said
    done(*given, "--out", "a", "--force")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "no images are given"),
        (["nowhere"], "nowhere is missing"),
        (["files.csv"], "files.csv is neither a folder nor a .npy"),
        (["empty"], "empty has no image files"),
        (["images", "--net", "resnet"], "there is no net 'resnet'"),
        (["images", "--stem", "none"], "stem must be 'imagenet' or 'cifar'"),
        (["images", "--augment", "flop"], "there is no augmentation 'flop'"),
        (["images", "--epochs", "0"], "epochs must be an integer ≥ 1"),
        (["objects.npy"], "cannot be read as an array"),
        (["table.npy"], "has an array of shape (3, 2)"),
        (["one.npy"], "there are no others to tell it apart from"),
        (["one.npy", "--size", "4x4"], "size is (4, 4), but one.npy holds an array"),
        (["images", "--resume", "a"], "but there is also images"),
    ],
)
def test_mistakes_are_named(quick, files, tmp_path, arguments, problem):
    (tmp_path / "empty").mkdir()
    np.save("objects.npy", np.array([{}, {}], dtype=object), allow_pickle=True)
    np.save("table.npy", np.zeros((3, 2)))
    np.save("one.npy", np.zeros((1, 3, 8, 8), np.uint8))
    assert problem in refused("pretrain", *arguments)
    assert not (tmp_path / "runs").exists()
