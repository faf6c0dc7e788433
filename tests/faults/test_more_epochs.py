"""Epochs added to a run: what so many from the start would have led to, at the η it began with."""

from dataclasses import replace

import pytest
from safetensors.torch import load_file

from apportion import FPL, Run
from apportion.errors import ApportionError, RunError
from tests.cli.wards_on_disk import QUICK, config_of, records, run, train_in, without_times, write
from tests.training.interrupted_runs import (
    CONFIG,
    EPOCHS,
    Interrupted,
    identical,
    network,
    stop_after,
    train,
)

LONGER = replace(CONFIG, epochs=2 * EPOCHS)
ETA = 5 * EPOCHS / 400
TENSORS = ("checkpoint", "model", "last", "evaluation")


def assert_alike(ours, theirs):
    assert without_times(records(ours)) == without_times(records(theirs))
    for name in TENSORS:
        found, wanted = (load_file(f / f"{name}.safetensors") for f in (ours, theirs))
        assert identical(found, wanted), name


@pytest.mark.parametrize(("method", "same"), [("fpl", FPL(eta=ETA)), ("proportion-loss",) * 2])
@pytest.mark.parametrize("done", [EPOCHS, EPOCHS - 2], ids=["finished", "stopped"])
def test_epochs_added_are_as_good_as_from_the_start(tmp_path, method, same, done):
    if done == EPOCHS:
        train(tmp_path / "a", method=method)
    else:
        with pytest.raises(Interrupted):
            train(tmp_path / "a", method=method, on_epoch=stop_after(done))
    net = network()
    history = train(tmp_path / "a", model=net, method=method, config=LONGER)
    train(tmp_path / "whole", method=same, config=LONGER)
    assert history.n_epochs == 2 * EPOCHS
    assert_alike(tmp_path / "a", tmp_path / "whole")
    assert identical(net.state_dict(), load_file(tmp_path / "a" / "model.safetensors"))
    settings = Run(tmp_path / "a").settings()
    assert settings["train"]["epochs"] == 2 * EPOCHS
    if method == "fpl":
        assert settings["resolved"]["eta"] == ETA


def test_a_run_stopped_among_epochs_that_were_added_goes_on(tmp_path):
    train(tmp_path / "a")
    with pytest.raises(Interrupted):
        train(tmp_path / "a", config=LONGER, on_epoch=stop_after(EPOCHS + 2))
    assert not Run(tmp_path / "a").evaluation.exists()
    train(tmp_path / "a", config=LONGER)
    train(tmp_path / "whole", method=FPL(eta=ETA), config=LONGER)
    assert_alike(tmp_path / "a", tmp_path / "whole")
    line = Run(tmp_path / "a").config.read_text().splitlines()[3]
    assert (
        line == f"epochs = {2 * EPOCHS}  # {EPOCHS} when it began, which eta in [resolved] follows"
    )


def test_the_plan_says_how_many_epochs_there_are_and_with_how_many_it_began(tmp_path):
    run, said = Run(tmp_path), []
    for epochs in (EPOCHS, EPOCHS + 1, EPOCHS + 2):
        train(tmp_path, config=replace(CONFIG, epochs=epochs))
        said.append(run.settings()["plan"]["epochs"])
        edited = run.config.read_text().replace("[plan]\n", "[plan]  # why\n\n")
        run.config.write_text(edited)
    begun = f"{EPOCHS} when it began)"
    assert said == [f"{EPOCHS} (given to fit)", *(f"{EPOCHS + k} (given; {begun}" for k in (1, 2))]
    assert run.config.read_text().count("# why") == 1


def test_a_plan_that_cannot_be_changed_is_left_alone(tmp_path):
    train(tmp_path)
    config = Run(tmp_path).config
    plan = 'epochs = """\nsome"""'
    config.write_text(config.read_text().replace(f'epochs = "{EPOCHS} (given to fit)"', plan))
    before = config.read_text()
    with pytest.raises(ApportionError, match=r"config\.toml"):
        train(tmp_path, config=LONGER)
    assert config.read_text() == before


@pytest.mark.parametrize("changes", [{"schedule": "cosine"}, {"warmup": 0.5}], ids=str)
def test_a_rate_that_depends_on_the_epochs_rules_out_more(tmp_path, changes):
    train(tmp_path, config=replace(CONFIG, **changes))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(RunError, match="its learning rate depends on how many there are") as error:
        train(tmp_path, config=replace(LONGER, **changes))
    assert ("falls to 0" in str(error.value)) == ("schedule" in changes)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_finished_run_stays_as_it_is_if_it_cannot_go_on(tmp_path):
    train(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(RunError, match="another net"):
        train(tmp_path, model=network(width=12), config=LONGER)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_epochs_are_added_at_the_command_line(tmp_path):
    folder, files = train_in(tmp_path, "--method", "fpl") / "a", write(tmp_path)
    sections = config_of(folder)
    result = run("train", "--resume", folder, "--epochs", 5)
    assert result.exit_code == 0, result.output
    more = ["--epochs", 5, "--eta", sections["resolved"]["eta"], "--out", tmp_path / "whole"]
    assert run("train", *files, *QUICK, *more).exit_code == 0
    assert_alike(folder, tmp_path / "whole")
    assert sections["plan"]["epochs"] == "3 (given)"
    sections["train"]["epochs"] = 5
    sections["plan"]["epochs"] = "5 (given; 3 when it began)"
    assert config_of(folder) == sections
    assert "is finished: 5 epochs" in run("train", "--resume", folder).stdout
    assert "is finished: 5 epochs" in run("train", "--resume", folder, "--epochs", 5).stdout
    result = run("train", "--resume", folder, "--epochs", 4)
    assert result.exit_code == 1
    assert "--epochs 4 is less than the 5" in result.stderr
