"""What a run is recognised by: another optimiser, scheduler or augmentation does not go on."""

import tomllib
from dataclasses import replace

import numpy as np
import pytest
import torch

from apportion.errors import ConfigError, RunError
from apportion.methods.pseudo_labels import FPL
from apportion.runs.run import Run
from apportion.training import checkpoint
from apportion.training.identity import check_identity
from tests.training.interrupted_runs import (
    CONFIG,
    EPOCHS,
    Interrupted,
    outcome,
    refusal,
    same_outcome,
    stop_after,
    train,
)


def momentum(lr=0.05, momentum=0.9):
    return lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=momentum)


def by_steps(n=3):
    return lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, n)


def shifted(x):
    return x + 0.1


OWN = {"optimizer": momentum(), "scheduler": by_steps(), "augment": shifted}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"optimizer": torch.optim.Adam}, "another optimiser: class 'SGD', not 'Adam'."),
        ({"optimizer": momentum(lr=0.1)}, "another optimiser: lr of group 0 0.05, not 0.1."),
        ({"optimizer": None}, "another optimiser: class 'SGD', not 'AdamW'."),
        ({"scheduler": by_steps(2)}, "another scheduler: step_size 3, not 2."),
        ({"scheduler": None}, "another scheduler: class 'StepLR', not None."),
        ({"augment": None}, "another augmentation: function 'shifted', not None"),
        ({"augment": lambda x: x}, "another augmentation: function 'shifted', not '<lambda>'"),
        (
            {"optimizer": lambda ps: torch.optim.SGD([{"params": ps[:2]}, {"params": ps[2:]}],
                                                     lr=0.05, momentum=0.9)},
            "parameters of group 0 '6: 0.weight",
        ),
    ],
)  # fmt: skip
def test_another_optimizer_scheduler_or_augmentation_is_refused(tmp_path, changes, said):
    with pytest.raises(Interrupted):
        train(tmp_path, on_epoch=stop_after(2), **OWN)
    assert said in refusal(tmp_path, **{**OWN, **changes})
    assert train(tmp_path, **OWN).n_epochs == EPOCHS


def test_an_own_optimizer_in_the_folder_of_the_built_in_one_is_refused(folder):
    problem = refusal(folder, **OWN)
    assert problem.endswith("another optimiser: class 'that of the configuration', not 'SGD'.")


def test_the_folder_tells_what_was_passed(tmp_path):
    train(tmp_path, **OWN)
    resolved = tomllib.loads((tmp_path / "config.toml").read_text())["resolved"]
    names = {"optimizer": "SGD", "scheduler": "StepLR", "augmentation": "shifted"}
    assert names.items() <= resolved.items()


def test_epochs_are_added_under_an_own_schedule_that_does_not_depend_on_them(tmp_path):
    longer = replace(CONFIG, epochs=2 * EPOCHS)
    train(tmp_path / "a", method=FPL(eta=1), **OWN)
    found = train(tmp_path / "a", method=FPL(eta=1), config=longer, **OWN)
    wanted = train(tmp_path / "whole", method=FPL(eta=1), config=longer, **OWN)
    assert same_outcome(outcome(tmp_path / "a", found), outcome(tmp_path / "whole", wanted))
    problem = refusal(
        tmp_path / "a",
        method=FPL(eta=1),
        config=replace(CONFIG, epochs=3 * EPOCHS),
        **{**OWN, "scheduler": by_steps(5)},
    )
    assert "another scheduler: step_size 3, not 5" in problem


def test_a_state_that_cannot_be_kept_is_refused_before_training(tmp_path):
    class Odd(torch.optim.lr_scheduler.StepLR):
        def __init__(self, optimizer):
            self.table = np.zeros(3)
            super().__init__(optimizer, 3)

    with pytest.raises(ConfigError, match=r"table is of type ndarray.*\n.*run="):
        train(tmp_path, scheduler=Odd)
    assert not Run(tmp_path).config.exists()
    assert train(None, scheduler=Odd).n_epochs == EPOCHS


@pytest.mark.parametrize("own", [None, {}, {"settings": [], "values": {}, "scheduler": None}])
def test_a_checkpoint_that_lost_the_state_of_its_own_optimizer_is_refused(tmp_path, own):
    with pytest.raises(Interrupted):
        train(tmp_path, on_epoch=stop_after(2), **OWN)
    run = Run(tmp_path)
    tensors, header = checkpoint.load(run)
    content = {k: v for k, v in header.items() if k not in ("format", "kind")}
    checkpoint.save(run, tensors, {**content, "optimizer": own})
    assert "is damaged" in refusal(tmp_path, **OWN)


def test_true_is_no_number_though_1_and_1_0_are_one(tmp_path):
    run, ours = Run(tmp_path), {"method": {"memory": 1.0, "rows": [False]}}
    check_identity(run, {"method": {"memory": 1, "rows": [False]}}, ours)
    for other in ({"memory": True, "rows": [False]}, {"memory": 1.0, "rows": [0]}):
        with pytest.raises(RunError, match="holds a run of another method"):
            check_identity(run, {"method": other}, ours)
