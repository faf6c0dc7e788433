"""The input of `apportion train`: where the bags come from, and how to learn from them.

It is written as the sections of a TOML file, which a run's config.toml is as well:

    [data]                        # as of `apportion.cli.source`
    rows = "rows.csv"
    bag = "ward"
    proportions = "wards.csv"

    [model]                       # net, and the options of `apportion.build_net`
    net = "mlp"
    validation = 0.1              # the share of the bags to select the epoch by, without a `split`
    pretrain = true               # of images: first without labels; or pretrained = "runs/pre"

    [method]                      # a name, and its settings
    name = "fpl"

    [train]                       # options of `apportion.TrainConfig`, over those of a preset
    epochs = 50

All but [data] may be left out, and what is left out follows from the data (`apportion.plan`).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apportion.cli.source import Source
from apportion.config import TrainConfig
from apportion.errors import ConfigError, RunError, must_be, suggestion
from apportion.files import read_toml
from apportion.runs.run import FORMAT_VERSION, Run, check_classifies

if TYPE_CHECKING:
    from apportion.bags.bags import Bags
    from apportion.bags.columns import Columns
    from apportion.plan.choices import Choice, Choices
    from apportion.training.history import History

__all__ = ["Learning", "Prepared", "TrainJob", "job_of_run", "read_config"]

OnEpoch = Callable[[dict[str, Any], Any], None]
SECTIONS = ("data", "model", "method", "train", "plan", "resolved")


@dataclass(frozen=True)
class Learning:
    """The options of a job that are no options of `TrainConfig`.

    Parameters
    ----------
    net : str, optional
        mlp for tables, conv1d or summary for signals, resnet18 for images; by default the data
        decide.
    method : str, optional
        Of tables: auto (the default), linear, mean-map (of signals, too) or ridge. Of a single
        net: fpl (the default for images), fpl-mean-map (for signals), fpl-plain, greedy, naive,
        strong, proportion-loss, pi-model, llp-vat or count-likelihood (the default for tables
        with an option of a net).
    eta : float, optional
        How much pseudo labels are perturbed; by default 5 · epochs / 400.
    preset : str, optional
        Instead of defaults that follow from the data: default; paper, which is what Matsuo et al.
        did; or strong, the most that images allow and for these alone.
    validation : float, optional
        The share of the bags to select the best epoch by, if the proportions have no column
        'split'; by default 0.1, if that is at least 5 bags. Methods of tables select nothing: by
        default they learn from all bags, and bags that are held out are only reported.
    pretrain : bool, optional
        Train the net first to tell the images of the training bags apart, without labels, as the
        preset strong does by default.
    pretrained : str, optional
        Load what apportion pretrain has learned, in this folder, instead.
    """

    net: str | None = None
    method: str | None = None
    eta: float | None = None
    preset: str | None = None
    validation: float | None = None
    pretrain: bool | None = None
    pretrained: str | None = None


@dataclass(frozen=True)
class Prepared:
    """A training that may begin."""

    sets: dict[str, Bags]  # train, and valid and test if there are such
    plan: Choices
    about: dict[str, dict[str, Any]]  # the sections that say all this again
    train: Callable[..., History]  # of a Run, on_epoch, and one for pre-training, if wanted


@dataclass(frozen=True)
class TrainJob:
    """A training that is asked for. Options that are None or missing follow from the data."""

    source: Source
    model: Mapping[str, Any] = field(default_factory=dict)
    method: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_toml(cls, path: str | PathLike[str], changes: Mapping[str, Any]) -> TrainJob:
        """Read a configuration, with some options of its section [data] changed.

        Relative paths in it begin at its own folder.
        """
        sections = read_config(Path(path))
        folder = Path(path).resolve().parent
        source = Source.from_dict(sections.get("data", {}), folder)
        model = dict(sections.get("model", {}))
        if isinstance(model.get("pretrained"), str):
            model["pretrained"] = str(folder / Path(model["pretrained"]).expanduser())
        return cls(
            replace(source, **changes),
            model,
            sections.get("method", {}),
            sections.get("train", {}),
        )

    def changed(self, sections: Mapping[str, Mapping[str, Any]]) -> TrainJob:
        """Return the job with what was given as flags over what the configuration says.

        What it says of a single net is left out if the method becomes one of tables.
        """
        from apportion.auto.members import TABLE_METHODS
        from apportion.plan.methods import OF_EVERY_METHOD, STRONG

        preset = sections.get("train", {}).get("preset")
        of_table = sections.get("method", {}).get("name") in TABLE_METHODS
        changes: dict[str, Any] = {}
        for section, options in sections.items():
            own = {name: value for name, value in options.items() if value is not None}
            before = dict(getattr(self, section))
            of_preset = section == "method" and preset == STRONG  # which has a method of its own
            if "name" in own or "preset" in own or of_preset:  # which has other settings
                before = {}
            elif of_table:
                before = {name: before[name] for name in OF_EVERY_METHOD if name in before}
            for name, other in (("pretrain", "pretrained"), ("pretrained", "pretrain")):
                if name in own:  # which stands for both
                    before.pop(other, None)
            changes[section] = {**before, **own}
        return replace(self, **changes)

    def prepare(self, columns: Columns | None = None, *, begun: bool = False) -> Prepared:
        """Read the bags, and prepare their training.

        Parameters
        ----------
        columns : Columns, optional
            Those that were learned before, if the run is to go on.
        begun : bool
            Whether there is a checkpoint to go on from: nothing is pre-trained then.
        """
        from apportion.auto.members import TABLE_METHODS
        from apportion.plan.held_out import check_share

        check_share(self.model.get("validation"))
        method = self._method()
        if method.value in TABLE_METHODS:
            return self._for_table(method, columns)
        return self._for_net(method, columns, begun=begun)

    def _method(self) -> Choice:
        """Return the method that is given, or else the default."""
        from apportion.plan.choices import Choice
        from apportion.plan.methods import default_method

        if "name" in self.method:
            return Choice(self.method["name"], "given")
        given, preset = [*self.train, *self.model, *self.method], self.train.get("preset")
        return default_method(self.source.kind, given, preset, settings=[*self.method])

    def _for_net(self, chosen: Choice, columns: Columns | None, *, begun: bool) -> Prepared:
        from apportion.methods.registry import method_from
        from apportion.nets.build import build_net
        from apportion.plan.images import Pretraining
        from apportion.plan.plan import make_plan
        from apportion.training.fit import fit
        from apportion.training.job import Job
        from apportion.training.pretrained import (
            check_is_alone,
            load_as_planned,
            net_as_before,
            pretrain_as_planned,
        )

        # Wrong options are reported before anything is read.
        method = method_from({"name": chosen.value, **self.method})
        options = dict(self.model)
        validation, net = options.pop("validation", None), options.pop("net", None)
        pretrain, pretrained = options.pop("pretrain", None), options.pop("pretrained", None)
        pretrains = self._check_pretraining(pretrain, pretrained)
        before: dict[str, str] = {}
        if pretrained is not None and not begun:
            before = net_as_before(pretrained, {"net": net, **options})
            net = before.get("net", net)
            options |= {name: value for name, value in before.items() if name != "net"}
        self._check_options(net, options)
        if pretrains and not begun:
            check_is_alone()
        sets, source, held_out = self._read(columns, validation)
        about: dict[str, Any] = {"net": net, "method": chosen, "unit": method.unit}
        about |= {"options": self.train, "net_options": options}
        about["pretrain"] = pretrain if pretrained is None else pretrained
        plan = make_plan(sets["train"], validation=held_out, **about)
        config = plan.config(self.train)
        options = plan.net_options | options
        model = {"net": plan.net.value, **options, "validation": held_out.value}
        made = build_net(plan.net.value, sets["train"], seed=config.seed, **options)
        first = None if plan.pretraining is None else plan.pretraining.value
        if isinstance(first, Pretraining) or pretrain is not None:
            model["pretrain"] = isinstance(first, Pretraining)
        if pretrained is not None:
            model["pretrained"] = str(Path(pretrained).expanduser().resolve())
            plan = plan if begun else load_as_planned(made, sets["train"], pretrained, plan, before)

        def train(run: Run, on_epoch: OnEpoch, on_first: OnEpoch | None = None) -> History:
            options: dict[str, Any] = {"method": method, "config": config, "run": run}
            if isinstance(first, Pretraining):
                pretrain_as_planned(Job(made, **sets, **options), first, on_epoch=on_first)
            return fit(made, **sets, **options, on_epoch=on_epoch)

        return Prepared(sets, plan, self._about(source, model, plan), train)

    def _for_table(self, method: Choice, columns: Columns | None) -> Prepared:
        from apportion.auto.members import check_is_table, plan_table
        from apportion.auto.train import train_table
        from apportion.engine.device import device_for
        from apportion.plan.held_out import share_reported
        from apportion.plan.methods import OF_EVERY_METHOD

        name = method.value
        check_is_table(name, self.source.kind)
        own = {"method": ("name",), "model": ("validation",), "train": OF_EVERY_METHOD}
        for section, known in own.items():
            for option, value in getattr(self, section).items():
                if option not in known:
                    raise ConfigError(
                        f"{option} is {value!r:.60}, which has no meaning for the method {name!r}.",
                        "Leave it out, or choose a method of nets, for example count-likelihood.",
                    )
        config = TrainConfig.from_dict(self.train)
        device_for(config.device)
        asked = self.model.get("validation")
        sets, source, held_out = self._read(columns, 0.0 if asked is None else asked)
        if held_out.value is not None:
            held_out = share_reported(asked)
        plan = plan_table(sets["train"], method, held_out, config.threads)

        def train(run: Run, on_epoch: OnEpoch, on_first: OnEpoch | None = None) -> History:  # noqa: ARG001
            options: dict[str, Any] = {
                option: getattr(config, option) for option in OF_EVERY_METHOD
            }
            return train_table(**sets, method=name, **options, run=run, on_net=on_epoch).history

        model = {} if asked is None else {"validation": asked}
        return Prepared(sets, plan, self._about(source, model, plan), train)

    def read(self, columns: Columns | None) -> dict[str, Bags]:
        """Read the sets of bags of a run that was started with this job, as it did."""
        asked = self.model.get("validation")
        sets: dict[str, Bags] = self._read(columns, 0.0 if asked is None else asked)[0]
        return sets

    def _read(self, columns: Columns | None, validation: float | None) -> Any:
        """Read all sets of bags; return them with what was read and what is held out."""
        sets, source, held_out = self.source.read(columns, validation, self.train.get("seed", 0))
        if self.model.get("validation") is not None and held_out.value is None:
            raise ConfigError(
                f"validation is {validation:g}, but {source.proportions} has a column 'split' that "
                "says which bags are for validation.",
                "Leave out one of the two.",
            )
        return sets, source, held_out

    def _about(
        self, source: Source, model: Mapping[str, Any], plan: Choices
    ) -> dict[str, dict[str, Any]]:
        return {"data": source.resolved().to_dict(), "model": dict(model), "plan": plan.reasons()}

    def _check_pretraining(self, pretrain: Any, pretrained: Any) -> bool:
        """Check what says whether the net is pre-trained, and tell whether it will be."""
        from apportion.plan.images import Pretraining, planned_pretraining

        if not (pretrain is None or isinstance(pretrain, bool)):
            raise must_be("pretrain in [model]", "true or false", pretrain)
        if not (pretrained is None or (isinstance(pretrained, str) and pretrained)):
            raise must_be("pretrained in [model]", "the path of a folder", pretrained)
        if pretrain is not None and pretrained is not None:
            other = "says that nothing is" if pretrain is False else "asks for it again"
            raise ConfigError(
                f"pretrained is {pretrained!r}, what was pre-trained, but pretrain {other}.",
                "Leave out one of the two.",
            )
        asked, preset = pretrain if pretrained is None else pretrained, self.train.get("preset")
        planned = planned_pretraining(self.source.kind, 1, preset, asked)
        return isinstance(planned.value, Pretraining)

    def _check_options(self, net: str | None, options: Mapping[str, Any]) -> None:
        """Check what `fit` would check only after all data are read."""
        from apportion.engine.device import device_for
        from apportion.nets.augment import check_augmentations
        from apportion.nets.build import NETS
        from apportion.nets.recipe import check_name, check_options, options_of
        from apportion.plan.methods import check_preset, preset_options
        from apportion.plan.plan import NET_OF_KIND

        name = NET_OF_KIND[self.source.kind] if net is None else net
        check_name(name, NETS)
        known = options_of(name, NETS)
        for option in options:
            if option not in known:
                raise ConfigError(
                    f"[model] has {option!r}, which {name} does not know.",
                    suggestion(option, ["net", "validation", "pretrain", "pretrained", *known]),
                )
        check_options(name, NETS, options)
        given = dict(self.train)
        preset = given.pop("preset", None)
        check_preset(preset, self.source.kind)
        config = TrainConfig.from_dict({**(preset_options(preset) if preset else {}), **given})
        device_for(config.device)
        check_augmentations(config.augment)


def read_config(path: Path) -> dict[str, Any]:
    """Read the sections of a configuration, or of a run's config.toml."""
    if not path.is_file():
        raise ConfigError(f"{path} does not exist.", "Pass the path of a .toml file.")
    sections = read_toml(path)
    if sections.pop("format", FORMAT_VERSION) != FORMAT_VERSION:
        raise ConfigError(
            f"{path} is of another format version; this apportion reads {FORMAT_VERSION}.",
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


def job_of_run(run: Run) -> TrainJob:
    """Return the job that a run was started with, to go on with it."""
    if run.folder.is_dir() and run.is_empty():
        raise RunError(
            f"{run.folder} holds no run yet: it was stopped before config.toml was written.",
            "Start it again, for example: apportion train rows.csv --bag ward --proportions "
            f"wards.csv --out {shlex.quote(str(run.folder))}",
        )
    settings = run.settings()
    check_classifies(run, settings)
    if "data" not in settings:
        raise RunError(
            f"{run.folder} was not started by apportion train: {run.config.name} has no [data].",
            "Go on as it was started: call fit again with the same bags, and run= this folder.",
        )
    return TrainJob.from_toml(run.config, {})
