"""What `apportion train` is told: where the bags come from, and how to learn from them.

It is written as the sections of a TOML file, which a run's config.toml is as well:

    [data]                        # as of `apportion.cli.source`
    rows = "rows.csv"
    bag = "ward"
    proportions = "wards.csv"

    [model]                       # net, and the options of `apportion.nets.build.build`
    net = "mlp"
    validation = 0.1              # the share of the bags to select the epoch by, without a `split`

    [method]                      # a name, and its settings
    name = "fpl"

    [train]                       # options of `apportion.TrainConfig`, over those of a preset
    epochs = 50

All but [data] may be left out, and what is left out follows the data as in `LLPClassifier`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import Any

from apportion.bags.bags import Bags
from apportion.bags.columns import Columns
from apportion.cli.source import Source
from apportion.config import PRESETS, TrainConfig
from apportion.engine.device import device_for
from apportion.errors import ConfigError, RunError, suggestion
from apportion.estimator.classifier import FEWEST_HELD_OUT, default_batch_size, default_epochs
from apportion.files import read_toml
from apportion.methods.base import Method
from apportion.methods.registry import method_from
from apportion.nets.augment import AUGMENTATIONS
from apportion.nets.build import NETS, build
from apportion.nets.normalized import Normalized
from apportion.runs.run import FORMAT_VERSION, Run

__all__ = ["Job", "Prepared", "job_of_run", "read_config"]

log = logging.getLogger("apportion")

SECTIONS = ("data", "model", "method", "train", "resolved")
NETS_BY_KIND = {"table": "mlp", "images": "resnet18", "signals": "conv1d"}
BY_THE_DATA = ("features", "channels", "classes", "categories", "masked")  # arguments of nets
DEFAULT_VALIDATION = 0.1


@dataclass(frozen=True)
class Prepared:
    """All that `fit` takes."""

    bags: dict[str, Bags]  # train, and valid and test if there are such
    columns: Columns | None
    model: Normalized
    method: Method
    config: TrainConfig
    about: dict[str, dict[str, Any]]  # the sections that say all this again


@dataclass(frozen=True)
class Job:
    """A training that is asked for. Options that are None or not there follow the data."""

    source: Source
    model: Mapping[str, Any] = field(default_factory=dict)
    method: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_toml(cls, path: str | PathLike[str], changes: Mapping[str, Any]) -> Job:
        """Read a configuration, with some options of its section [data] changed.

        Relative paths in it begin at its own folder.
        """
        sections = read_config(Path(path))
        folder = Path(path).resolve().parent
        source = Source.from_dict(sections.get("data", {}), folder)
        return cls(
            replace(source, **changes),
            sections.get("model", {}),
            sections.get("method", {}),
            sections.get("train", {}),
        )

    def prepare(self, columns: Columns | None = None) -> Prepared:
        """Read the bags, and make all that follows from them.

        Parameters
        ----------
        columns : Columns, optional
            Those that were learned before, if the run is to go on.
        """
        method = method_from(self.method)  # wrong options are told before anything is read
        options = dict(self.model)
        validation = _fraction(options.pop("validation", None))
        net = options.pop("net", NETS_BY_KIND[self.source.kind])
        if net not in NETS:
            raise ConfigError(f"there is no net {net!r}.", suggestion(str(net), NETS))
        known = [name for name in signature(NETS[net]).parameters if name not in BY_THE_DATA]
        for name in options:
            if name not in known:
                raise ConfigError(
                    f"[model] has {name!r}, which {net} does not know.",
                    suggestion(name, ["net", "validation", *known]),
                )
        _check_options(self._config(1))
        whole, columns = self.source.read(columns)
        config = self._config(whole.n_instances)
        bags = self.source.split(whole)
        chosen = {"net": net, **options}
        if not bags:
            bags = _held_out(whole, validation, config.seed)
            chosen["validation"] = (validation or DEFAULT_VALIDATION) if "valid" in bags else 0
        elif validation is not None:
            raise ConfigError(
                f"validation is {validation:g}, but {self.source.proportions} has a column 'split' "
                "that says which bags are for validation.",
                "Leave out one of the two.",
            )
        if columns is not None and columns.codes and net == "mlp":
            options["categories"] = columns.codes
        model = build(net, whole, seed=config.seed, **options)
        source = self.source.resolved()
        if source.kind == "signals":  # so that they are found again by name, in any order
            source = replace(source, channels=tuple(source.channels_in(source.table())))
        about = {"data": source.to_dict(), "model": chosen}
        return Prepared(bags, columns, model, method, config, about)

    def _config(self, n_instances: int) -> TrainConfig:
        options = dict(self.train)
        preset = options.pop("preset", None)
        if preset is not None and preset not in PRESETS:
            raise ConfigError(f"there is no preset {preset!r}.", suggestion(preset, PRESETS))
        follow = {
            "epochs": default_epochs(n_instances),
            "batch_size": default_batch_size(n_instances),
            "weight_decay": 0.1,
        }
        return TrainConfig.from_dict({**(asdict(PRESETS[preset]) if preset else follow), **options})


def read_config(path: Path) -> dict[str, Any]:
    """Read the sections of a configuration, or of a run's config.toml."""
    if not path.is_file():
        raise ConfigError(f"{path} is missing.", "Pass the path of a .toml file.")
    sections = read_toml(path)
    if sections.pop("format", FORMAT_VERSION) != FORMAT_VERSION:
        raise ConfigError(
            f"{path} is of another format; this apportion reads {FORMAT_VERSION}.",
            "Use the version of apportion that wrote it.",
        )
    for name, section in sections.items():
        if not isinstance(section, dict):
            raise ConfigError(
                f"{path} has {name} = {section!r} outside of a section.",
                "Put it under [data], [model], [method] or [train], on a line before it.",
            )
        if name not in SECTIONS:
            raise ConfigError(f"{path} has a section {name!r}.", suggestion(name, SECTIONS[:4]))
    return sections


def job_of_run(run: Run) -> Job:
    """Give the job that a run was started with, to go on with it."""
    if "data" not in run.settings():
        raise RunError(
            f"{run.folder} was not started by apportion train: its config.toml has no [data].",
            "Go on as it was started: call fit again with the same bags, and run= this folder.",
        )
    return Job.from_toml(run.config, {})


def _check_options(config: TrainConfig) -> None:
    """See to what `fit` would say only after all data are read."""
    device_for(config.device)
    for name in config.augment:
        if name not in AUGMENTATIONS:
            raise ConfigError(
                f"there is no augmentation {name!r}.", suggestion(name, AUGMENTATIONS)
            )


def _fraction(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ConfigError(
            f"validation is {value!r}.", "Let it be a share from 0 to below 1: 0 holds out no bags."
        )
    return float(value)


def _held_out(whole: Bags, fraction: float | None, seed: int) -> dict[str, Bags]:
    """Hold out as many bags as are asked for; by default a tenth, if so many can select."""
    if fraction is None:
        few = round(DEFAULT_VALIDATION * whole.n_bags) < FEWEST_HELD_OUT
        fraction = 0.0 if few else DEFAULT_VALIDATION
    if not fraction:
        return {"train": whole}
    train, valid, overlap = whole.split(fraction, seed=seed)
    if overlap.shared_rows:
        log.warning("%s", overlap)
    return {"train": train, "valid": valid}
