"""`apportion train --preset strong`: features without labels first, in one run folder."""

import shutil

import pytest
from PIL import Image

from apportion import Run
from apportion.cli.terminal import Interruption
from apportion.training.session import Session
from tests.cli.images_on_disk import PLACE, STRONG, write_images
from tests.cli.wards_on_disk import config_of, records, run, write
from tests.nets.small_resnet import few_epochs

LINE = "2 epochs on 64 rows without labels (the preset 'strong')"


@pytest.fixture
def files(tmp_path):
    return write_images(tmp_path)


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments):
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    return result.stderr


def test_one_option_goes_from_image_files_to_predictions(files, tmp_path, monkeypatch):
    few_epochs(1, monkeypatch.setitem)
    done("train", *files, "--preset", "strong", "--epochs", "1", *PLACE, "--out", tmp_path / "a")
    config = config_of(tmp_path / "a")
    assert config["plan"]["method"] == "strong (the preset 'strong')"
    assert config["plan"]["pretraining"].startswith("1 epoch on 64 rows without labels")
    model = {"net": "resnet18", "stem": "cifar", "mirror": False, "validation": 0.0}
    assert config["model"] == {**model, "pretrain": True}
    assert config["train"]["average"] == 0.99
    assert len(records(tmp_path / "a" / "pretraining")) == 1
    out = tmp_path / "predictions.csv"
    done("predict", tmp_path / "a", tmp_path / "files.csv", "--out", out)
    assert len(out.read_text().splitlines()) == 65


def test_the_report_says_what_was_pretrained(quick, files, tmp_path):
    said = done("train", *files, *STRONG, "--out", tmp_path / "a").stderr
    assert f"pretraining   {LINE}" in said
    assert "pre-training · epoch 2/2" in said
    done("report", tmp_path / "a")
    page = (tmp_path / "a" / "report.html").read_text()
    assert "2 epochs on 64 rows without labels" in page
    assert "pseudo labels by averaged log-confidences" in page
    assert str(tmp_path) not in page


def test_flips_reach_the_views_and_the_net(quick, files, tmp_path):
    done("train", *files, *STRONG, "--augment", "flip,strong", "--out", tmp_path / "a")
    config = config_of(tmp_path / "a")
    assert config["model"]["mirror"] is True
    assert config["plan"]["mirror"] == "True (flip is among the augmentations)"
    assert config_of(tmp_path / "a" / "pretraining")["train"]["augment"] == ["flip", "views"]


def test_a_configuration_says_the_same_again(quick, files, tmp_path):
    done("train", *files, *STRONG, "--out", tmp_path / "a")
    done("train", tmp_path / "a" / "config.toml", "--out", tmp_path / "b")
    for name in ("model.safetensors", "pretraining/pretrained.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    own = tmp_path / "own.toml"
    own.write_text(
        '[data]\nrows = "files.csv"\nimages = "images"\nproportions = "bags.csv"\n'
        '[model]\npretrained = "a"\n[train]\npreset = "strong"\nepochs = 1\n'
    )
    done("train", own, *PLACE, "--out", tmp_path / "c")
    assert config_of(tmp_path / "c")["plan"]["pretraining"] == "loaded from a, of 64 rows"
    assert config_of(tmp_path / "c")["model"]["pretrained"] == str(tmp_path / "a")
    assert not (tmp_path / "c" / "pretraining").exists()
    flags = ["--pretrained", tmp_path / "b", *PLACE]  # over pretrain = true
    done("train", tmp_path / "a" / "config.toml", *flags, "--out", tmp_path / "d")
    assert config_of(tmp_path / "d")["plan"]["pretraining"] == "loaded from b, of 64 rows"
    assert "pretrain" not in config_of(tmp_path / "d")["model"]


def test_the_preset_goes_over_the_method_of_a_configuration(quick, files, tmp_path):
    done("train", *files, "--epochs", "1", *PLACE, "--out", tmp_path / "a")
    assert config_of(tmp_path / "a")["plan"]["pretraining"] == (
        "none (the preset 'strong' does that)"
    )
    again = ["--preset", "strong", "--epochs", "1", *PLACE, "--no-pretrain"]
    done("train", tmp_path / "a" / "config.toml", *again, "--out", tmp_path / "b")
    config = config_of(tmp_path / "b")
    assert config["method"]["unlikelihood"] == "log"
    assert config["plan"]["pretraining"] == "none (given)"
    assert config["model"]["pretrain"] is False


def test_ctrl_c_in_pretraining_says_how_to_go_on(quick, files, tmp_path, monkeypatch):
    done("train", *files, *STRONG, "--out", tmp_path / "whole")

    def stop(interruption):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Interruption, "after_epoch", stop)
        result = run("train", *files, *STRONG, "--out", tmp_path / "cut")
    assert result.exit_code == 130
    assert "Stopped after 1 of 2 epochs of pre-training." in result.stderr
    assert f"apportion train --resume {tmp_path / 'cut'}" in result.stderr
    assert "0 of 2 epochs are done" in refused("predict", tmp_path / "cut", tmp_path / "files.csv")
    done("train", "--resume", tmp_path / "cut")
    for name in ("model.safetensors", "pretraining/pretrained.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert config_of(tmp_path / "cut") == config_of(tmp_path / "whole")


@pytest.mark.parametrize(("epoch", "lost"), [(3, "none is saved"), (12, "10 are saved")])
def test_what_is_stopped_at_once_says_how_much_of_it_is_saved(
    quick, files, tmp_path, monkeypatch, epoch, lost
):
    few_epochs(12, monkeypatch.setitem)
    train_epoch, folder = Session.train_epoch, tmp_path / "a"

    def stop(session, number):
        if number == epoch:
            raise KeyboardInterrupt
        return train_epoch(session, number)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "train_epoch", stop)
        result = run("train", *files, *STRONG, "--out", folder)
    assert result.exit_code == 130
    said = f"Stopped after {epoch - 1} of 12 epochs of pre-training, of which {lost}. To go on:"
    assert f"{said}\n  apportion train --resume {folder}" in result.stderr
    assert f"{epoch - 1} of 12 epochs of pre-training are done" in refused("report", folder)
    said = refused("predict", folder / "pretraining", tmp_path / "files.csv")
    assert "apportion train --resume and the folder above it" in said
    again = f"{folder / 'pretraining'} was left after 2 records of its log, without a checkpoint"
    assert (again in done("train", "--resume", folder).stderr) == (epoch == 3)


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_run_killed_at_any_epoch_ends_as_if_nothing_had_happened(
    quick, files, tmp_path, monkeypatch, epoch
):
    """Two epochs of pre-training, then two of training: a copy of the folder is what a kill leaves.

    With a checkpoint in every tenth epoch alone, that begins the training or pre-training again.
    """
    number, append = 0, Run.append

    def copy(run, record):
        nonlocal number
        append(run, record)
        number += 1
        if number == epoch:
            shutil.copytree(tmp_path / "whole", tmp_path / "cut")

    with monkeypatch.context() as patch:
        patch.setattr(Run, "append", copy)
        done("train", *files, *STRONG, "--out", tmp_path / "whole")
    assert not (tmp_path / "cut" / "model.safetensors").exists()
    done("train", "--resume", tmp_path / "cut")
    for name in ("model.safetensors", "last.safetensors", "pretraining/pretrained.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert config_of(tmp_path / "cut") == config_of(tmp_path / "whole")
    assert len(records(tmp_path / "cut" / "pretraining")) == 2


def test_what_was_read_may_be_gone_once_there_is_a_checkpoint(quick, files, tmp_path, monkeypatch):
    done("train", *files, *STRONG, "--out", tmp_path / "a")
    named = [*files, "--pretrained", tmp_path / "a", "--preset", "strong", "--epochs", "1", *PLACE]
    done("train", *named, "--out", tmp_path / "b")
    (tmp_path / "b" / "evaluation.safetensors").unlink()
    shutil.rmtree(tmp_path / "a")
    done("train", "--resume", tmp_path / "b")
    assert (tmp_path / "b" / "evaluation.safetensors").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--preset", "strong"], "preset is 'strong', but the instances are rows of a table"),
        (["--preset", "strong", "--method", "fpl"], "preset is 'strong', but the instances are"),
        (["--preset", "pretrain"], "the preset 'pretrain' is for pre-training without labels"),
        (["--pretrain"], "pretrain is True, but the instances are rows of a table"),
        (["--pretrained", "runs/pre"], "pretrain is 'runs/pre', but the instances are rows of"),
        (["--pretrain", "--method", "linear"], "pretrain is True, which has no meaning for the"),
        (["--preset", "strong", "--method", "auto"], "preset is 'strong', which has no meaning"),
    ],
)
def test_tables_are_refused_by_name(tmp_path, options, problem):
    files = write(tmp_path)
    assert problem in refused("train", *files, "--exclude", "id", *options)


def test_contradictions_and_what_is_missing_are_named(quick, files, tmp_path):
    both = refused("train", *files, *STRONG, "--no-pretrain", "--pretrained", tmp_path / "pre")
    assert "but pretrain says that nothing is" in both
    missing = refused("train", *files, *STRONG, "--pretrained", tmp_path / "pre")
    assert f"{tmp_path / 'pre'} does not exist" in missing
    done("train", *files, "--epochs", "1", *PLACE, "--out", tmp_path / "a")
    other = refused("train", *files, *STRONG, "--pretrained", tmp_path / "a")
    assert "keeps no pre-training of its own" in other
    own = tmp_path / "own.toml"
    data = '[data]\nrows = "files.csv"\nimages = "images"\nproportions = "bags.csv"\n'
    for line, problem in (
        ('pretrain = "yes"', "must be true or false"),
        ("pretrained = 3", "path"),
    ):
        own.write_text(f"{data}[model]\n{line}\n")
        assert problem in refused("train", own)
    beside = refused("train", "--resume", tmp_path / "a", "--no-pretrain")
    assert "but there is also --pretrain" in beside


@pytest.mark.parametrize("verb", ["train", "pretrain"])
def test_images_that_are_all_the_same_are_told_before_anything_is_learned(
    quick, files, tmp_path, verb
):
    for path in (tmp_path / "images").iterdir():
        Image.new("RGB", (8, 8), "white").save(path)
    given = [*files, *STRONG] if verb == "train" else [tmp_path / "images", *PLACE]
    said = refused(verb, *given, "--out", tmp_path / "a")
    assert "all 64 images are the same: nothing can be learned from them." in said
    assert not (tmp_path / "a").exists()
