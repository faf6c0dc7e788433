"""Options: what makes no sense is refused by name, and files say exactly what was set."""

import math
import tomllib
from dataclasses import FrozenInstanceError, asdict, fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.config import FOR_TRAINING, PRESETS, TrainConfig

# --------------------------------------------------------------------------------------- refusals
from apportion.errors import ConfigError
from apportion.files import as_toml

WHOLE = "an integer ≥ 1"


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        *[
            (name, value, WHOLE)
            for name in ("epochs", "batch_size", "instances_per_pass", "checkpoint_every")
            for value in (0, -3, 2.0, True, "5", None)
        ],
        *[
            (name, value, f"{WHOLE}, or None")
            for name in ("bags_per_step", "patience")
            for value in (0, -3, 2.0, True, "5")
        ],
        *[
            ("threads", value, f"{WHOLE} and ≤ 1,024, or None")
            for value in (0, -3, 2.0, True, "5", 1025, 100_000)
        ],
        *[
            ("workers", value, "an integer ≥ 0 and ≤ 1,024")
            for value in (-1, 2.0, True, "5", None, 1025)
        ],
        *[("seed", value, "an integer ≥ 0 and below 2**63") for value in (-1, 2**63, 1.0, None)],
        *[
            ("learning_rate", v, "above 0 and below a million")
            for v in (0, -1e-3, math.nan, math.inf)
        ],
        *[("weight_decay", v, "a number ≥ 0") for v in (-1e-3, math.nan, math.inf)],
        *[("clip_norm", v, "a number above 0, or None") for v in (0, -1, math.nan, math.inf, "1")],
        *[("warmup", v, "a share from 0 to below 1") for v in (-0.1, 1, 1.5, math.nan)],
        *[("schedule", v, "'constant' or 'cosine'") for v in ("Cosine", None, 3)],
        *[("shuffle", v, "'all' or 'shard'") for v in ("Shard", None, True)],
        *[("precision", v, "'auto', 'float32' or 'bfloat16'") for v in ("float16", None)],
        *[
            ("step_mode", v, "'auto', 'eager', 'captured' or 'compiled'")
            for v in ("Eager", "", None, True, 3)
        ],
        *[
            ("device_memory_gib", v, "a number of GiB ≥ 0, or None")
            for v in (-1, -1e-9, math.nan, math.inf, "8", True, [8])
        ],
    ],
)
def test_a_value_that_makes_no_sense_is_named_with_its_option_and_the_rule(name, value, rule):
    with pytest.raises(ConfigError) as refused:
        TrainConfig(**{name: value})
    assert str(refused.value) == f"{name} must be {rule}; got {value!r}."


@pytest.mark.parametrize("name", ["learning_rate", "weight_decay", "warmup"])
@pytest.mark.parametrize("value", ["0.1", None, [0.1]])
def test_a_number_of_the_wrong_type_is_refused_like_any_other_value(name, value):
    """It is what a quoted number in a TOML file gives."""
    with pytest.raises(ConfigError) as refused:
        TrainConfig(**{name: value})
    assert str(refused.value).startswith(f"{name} must be ")
    assert str(refused.value).endswith(f"; got {value!r}.")


def test_augmentations_that_are_one_text_are_not_taken_letter_by_letter():
    try:
        config = TrainConfig(augment="noise")  # type: ignore[arg-type]
    except ConfigError as refused:
        assert "got 'noise'" in str(refused)  # noqa: PT017 - either answer is a good one
    else:
        assert config.augment == ("noise",)


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 1, "batch_size": 1, "instances_per_pass": 1, "checkpoint_every": 1},
        {"bags_per_step": None, "patience": None, "threads": None},
        {"bags_per_step": 1, "patience": 1, "threads": 1},
        {"workers": 0},
        {"workers": 1024},
        {"seed": 0, "warmup": 0, "weight_decay": 0, "learning_rate": 1},
        {"seed": 2**63 - 1, "warmup": 0.999, "learning_rate": 1e-300},
        {"device_memory_gib": None, "step_mode": "auto"},
        {"device_memory_gib": 0, "step_mode": "eager"},
        {"device_memory_gib": 1e-300, "step_mode": "captured"},
        {"device_memory_gib": 1e12, "step_mode": "compiled"},
    ],
)
def test_values_at_the_border_are_taken(options):
    config = TrainConfig(**options)
    assert {name: getattr(config, name) for name in options} == options


@pytest.mark.parametrize(
    ("read", "options"),
    [
        (TrainConfig.from_dict, {"learning_rat": 0.1}),
        (lambda options: TrainConfig.preset("paper", **options), {"learning_rat": 0.1}),
        (lambda options: TrainConfig.from_toml(as_toml(options)), {"learning_rat": 0.1}),
    ],
)
def test_an_unknown_option_is_an_error_with_a_suggestion(read, options):
    with pytest.raises(ConfigError) as refused:
        read(options)
    problem, remedy = str(refused.value).split("\n  ")
    assert problem == "there is no option 'learning_rat'."
    assert remedy.startswith("Did you mean 'learning_rate'? Known: epochs, ")


def test_an_option_like_no_other_is_answered_by_a_list():
    with pytest.raises(ConfigError) as refused:
        TrainConfig.from_dict({"zzz": 1})
    assert "there is no option 'zzz'" in str(refused.value)
    for field in fields(TrainConfig):
        assert field.name in str(refused.value)


def test_an_unknown_preset_is_answered_by_the_presets():
    with pytest.raises(ConfigError) as refused:
        TrainConfig.preset("papper")
    assert "there is no preset 'papper'" in str(refused.value)
    for name in FOR_TRAINING:
        assert name in str(refused.value)
    assert "pretrain" not in str(refused.value)


def test_values_from_a_file_are_checked_as_well():
    with pytest.raises(ConfigError, match="epochs must be an integer ≥ 1; got 0"):
        TrainConfig.from_toml("epochs = 0")
    with pytest.raises(ConfigError, match="epochs must be an integer ≥ 1; got 0"):
        TrainConfig.preset("paper", epochs=0)


def test_text_that_is_no_toml_is_refused_with_its_place():
    with pytest.raises(ConfigError, match=r"not valid TOML: .*line 2") as refused:
        TrainConfig.from_toml("epochs = 3\nseed =\n")
    assert isinstance(refused.value.__cause__, tomllib.TOMLDecodeError)


def test_options_cannot_be_changed_behind_the_checks():
    with pytest.raises(FrozenInstanceError):
        TrainConfig().epochs = 0  # type: ignore[misc]


# -------------------------------------------------------------------------------------- TOML files

TRIED: dict[str, st.SearchStrategy[Any]] = {
    "epochs": st.integers(1, 10**6),
    "batch_size": st.integers(1, 10**6),
    "bags_per_step": st.none() | st.integers(1, 100),
    "instances_per_pass": st.integers(1, 10**6),
    "learning_rate": st.floats(1e-300, 1e5),
    "weight_decay": st.floats(0, 1e5),
    "clip_norm": st.none() | st.integers(1, 100) | st.floats(1e-6, 1e6),
    "schedule": st.sampled_from(["constant", "cosine"]),
    "warmup": st.floats(0, 0.999),
    "average": st.floats(0, 0.999),
    "select": st.sampled_from(["least", "last"]),
    "shuffle": st.sampled_from(["all", "shard"]),
    "patience": st.none() | st.integers(1, 100),
    "augment": st.lists(st.sampled_from(["crop", "flip", "noise"])).map(tuple),
    "seed": st.integers(0, 2**63 - 1),
    "device": st.sampled_from(["auto", "cpu", "cuda:1"]),
    "precision": st.sampled_from(["auto", "float32", "bfloat16"]),
    "step_mode": st.sampled_from(["auto", "eager", "captured", "compiled"]),
    "device_memory_gib": st.none() | st.integers(0, 10**6) | st.floats(0, 1e6),
    "threads": st.none() | st.integers(1, 100),
    "workers": st.integers(0, 100),
    "checkpoint_every": st.integers(1, 100),
}
OPTIONS = st.fixed_dictionaries({}, optional=TRIED)


def test_every_option_is_tried():
    assert set(TRIED) == {field.name for field in fields(TrainConfig)}


@given(options=OPTIONS)
def test_toml_holds_every_option_exactly(options):
    config = TrainConfig(**options)
    assert TrainConfig.from_toml(config.to_toml()) == config
    # What the file says is what any other reader of TOML sees, too.
    read = tomllib.loads(config.to_toml())
    read["augment"] = tuple(read["augment"])
    assert read == {name: value for name, value in asdict(config).items() if value is not None}


def test_a_file_by_hand_changes_what_it_names_alone():
    config = TrainConfig.from_toml('epochs = 7  # short\naugment = ["crop", "flip"]\n')
    assert asdict(config) == {
        **asdict(TrainConfig()),
        "epochs": 7,
        "augment": ("crop", "flip"),
    }


# ----------------------------------------------------------------------------------------- presets


def test_the_papers_preset_is_what_the_authors_did():
    """PAPER.md, rows 3 and 8, and the 400 epochs of its first measurement."""
    paper = TrainConfig.preset("paper")
    assert paper.epochs == 400
    assert paper.batch_size == 512  # instances, for pseudo labels
    assert paper.bags_per_step == 4  # for the proportion losses
    assert paper.learning_rate == 3e-4
    assert {paper.learning_rate_at(share) for share in np.linspace(0, 1, 101)} == {3e-4}
    assert paper.weight_decay == 0  # so AdamW is Adam
    assert paper.augment == ()
    assert paper.patience is None


def test_a_preset_takes_changes_and_keeps_the_rest():
    changed = TrainConfig.preset("paper", epochs=9, seed=4)
    assert asdict(changed) == {**asdict(PRESETS["paper"]), "epochs": 9, "seed": 4}
    assert PRESETS["paper"].epochs == 400
    assert TrainConfig.preset("default") == TrainConfig()


# ------------------------------------------------------------------------------- the learning rate


@given(
    peak=st.floats(1e-6, 10),
    warmup=st.just(0.0) | st.floats(1e-6, 0.9),
    progress=st.floats(0, 1, exclude_max=True),
    schedule=st.sampled_from(["constant", "cosine"]),
)
def test_learning_rate_rises_in_a_line_and_falls_as_a_cosine(peak, warmup, progress, schedule):
    found = TrainConfig(learning_rate=peak, warmup=warmup, schedule=schedule).learning_rate_at(
        progress
    )
    if progress < warmup:
        wanted = np.interp(progress, [0, warmup], [0, peak])
    elif schedule == "constant":
        wanted = peak
    else:
        # Half a turn of a circle from its top to its bottom, whose middle is half the peak.
        angle = np.pi * np.interp(progress, [warmup, 1], [0, 1])
        wanted = peak * np.cos(angle / 2) ** 2
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-12 * peak)
    assert 0 <= found <= peak


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_learning_rate_has_no_jump_where_warmup_ends(schedule):
    config = TrainConfig(learning_rate=0.5, warmup=0.25, schedule=schedule)
    before, after = (config.learning_rate_at(0.25 + d) for d in (-1e-9, 1e-9))
    assert before == pytest.approx(after, abs=1e-6)
    assert config.learning_rate_at(0.25) == 0.5
