"""What a run shows, in words: the summary on top of a report, and what to be careful about."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

from apportion.report.reading import RunRead, spread

__all__ = [
    "SETS",
    "commands",
    "count",
    "duration",
    "method_in_words",
    "network_in_words",
    "notices",
    "percent",
    "plain",
    "shortened",
    "summary",
]

SETS = {"train": "training", "valid": "validation", "test": "test"}


def count(n: int, noun: str) -> str:
    """Count things.

    Examples
    --------
    >>> count(1, "bag"), count(1600, "bag"), count(2, "class")
    ('1 bag', '1,600 bags', '2 classes')
    """
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{n:,} {noun if n == 1 else plural}"


def percent(share: float) -> str:
    """Write a share.

    Examples
    --------
    >>> percent(0.9312), percent(1), percent(0.99996)
    ('93.1%', '100%', '99.9%')
    """
    if share == 1:
        return "100%"
    return f"{min(share, 0.999) if share < 1 else share:.1%}"


def plain(number: float | None, digits: int = 4) -> str:
    """Write a number, or a dash where there is none."""
    return "–" if number is None else f"{number:.{digits}f}".replace("-", "−")


def duration(seconds: float) -> str:
    """Put seconds into words.

    Examples
    --------
    >>> duration(0.25), duration(45), duration(600), duration(9000)
    ('0.25 s', '45 s', '10 min', '2.5 h')
    """
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def shortened(text: str, most: int) -> str:
    """Leave out the middle of a long text.

    Examples
    --------
    >>> shortened("north", 8), shortened("north-by-northwest", 8)
    ('north', 'nort…est')
    """
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[-end:]}"


def listed(texts: Iterable[str], most: int = 12) -> str:
    """Join texts by commas, the last by "and"; of many only the first.

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed("abcde", most=3)
    ('a, b and c', 'a, b, c and 2 more')
    """
    known = list(texts)
    if len(known) > most:
        known = [*known[:most], f"{len(known) - most:,} more"]
    return " and ".join([", ".join(known[:-1]), known[-1]] if len(known) > 1 else known)


def method_in_words(config: Any, *, brief: bool = False) -> str:
    """Say what a method does.

    Examples
    --------
    >>> method_in_words({"method": {"name": "fpl"}, "resolved": {"eta": 1.25}})
    'online pseudo labels (Follow the Perturbed Leader, η = 1.25)'
    >>> method_in_words({"method": {"name": "proportion-loss", "form": "l1"}})
    'proportion loss (l1)'
    """
    method = config["method"]
    name = str(method["name"])
    if name == "fpl":
        eta = config.get("resolved", {}).get("eta", method.get("eta"))
        form = ", plain unlikelihood" if method.get("unlikelihood") == "plain" else ""
        if not method.get("accumulate", True):
            why = "" if brief else " (each epoch decides by its own confidences alone)"
            return f"naive pseudo labels{why}{form}"
        if eta == 0:
            return f"greedy pseudo labels{'' if brief else ' (no perturbation)'}{form}"
        strength = "" if eta is None else f", η = {eta:g}"
        if brief:
            return f"online pseudo labels{strength}{form}"
        return f"online pseudo labels (Follow the Perturbed Leader{strength}{form})"
    if name == "proportion-loss":
        return f"proportion loss ({method.get('form', 'cross-entropy')})"
    known = {"pi-model": "Π-model with proportion loss", "llp-vat": "LLP-VAT"}
    return known.get(name, name)


def network_in_words(run: RunRead) -> str | None:
    """Name the network, if the run knows it."""
    name = run.config.get("model", {}).get("net") or run.recipe.get("net")
    if not name:
        return None
    hidden = run.recipe.get("hidden")
    sizes = hidden if isinstance(hidden, list) else [hidden] if hidden else []
    return f"{name} ({' → '.join(f'{size}' for size in sizes)})" if sizes else str(name)


def summary(run: RunRead) -> list[str]:
    """Tell what was learned from what, and how well, in two paragraphs."""
    told = [" ".join([*_of_data(run), *_of_training(run)]), " ".join(_of_result(run))]
    return [paragraph for paragraph in told if paragraph]


def _of_data(run: RunRead) -> list[str]:
    train = run.outcomes.get("train")
    if train is None:
        return []
    least, middle, most = spread(train.sizes)
    bags, instances = len(train.sizes), int(train.sizes.sum())
    size = f"{least:,}" if least == most else f"{least:,} to {most:,} (median {middle:,g})"
    classes = f"{count(len(run.classes), 'class')} ({listed(_short(run.classes), 10)})"
    told = (
        f"A classifier of {classes} was learned from {count(bags, 'bag')} of {size} "
        f"instances, {instances:,} in all, of which only the class proportions were used."
    )
    return [told]


def _short(names: Iterable[str]) -> list[str]:
    return [shortened(name, 24) for name in names]


def _of_training(run: RunRead) -> list[str]:
    early = run.epochs < run.epochs_wanted and run.is_finished
    epochs = f"{run.epochs:,} epochs" if run.epochs > 1 else "1 epoch"
    if run.epochs < run.epochs_wanted:
        epochs = f"{run.epochs:,} of {run.epochs_wanted:,} epochs"
    device = run.config.get("resolved", {}).get("device")
    where = f" on {device}" if device else ""
    found = [f"Method: {method_in_words(run.config)}."]
    network = network_in_words(run)
    if network is not None:
        found.append(f"Network: {network}.")
    took = "Training took" if run.is_finished else "So far it took"
    found.append(f"{took} {epochs} and {duration(run.total_seconds)}{where}.")
    if early:
        patience = run.config["train"].get("patience")
        found.append(
            "It stopped early: the validation error had not improved"
            + (f" for {count(int(patience), 'epoch')}." if patience else " any more.")
        )
    return found


def _of_result(run: RunRead) -> list[str]:
    found = []
    if run.is_validated:
        error = float(run.selected["valid_error"])
        chosen = "was selected, for" if run.is_finished else "is the best so far, with"
        found.append(
            f"Epoch {run.selected['epoch']:,} {chosen} the least validation proportion "
            f"error: {error:.4f}. That share of a validation bag is, on average, given to the "
            "wrong class."
        )
        guess = run.error_of_guessing("valid")
        if guess is not None:
            found[-1] += (
                " Saying of every bag that it is like the mean of the training bags would give "
                f"{guess:.4f}."
            )
    known = {name: run.accuracy(name) for name in ("test", "valid", "train")}
    told = [f"{percent(a)} on the {SETS[n]} bags" for n, a in known.items() if a is not None]
    if told:
        found.append(f"Accuracy of single instances: {listed(told)}.")
    return found


def notices(run: RunRead) -> list[tuple[str, str]]:
    """Tell what to be careful about, each with a command that helps, or with none."""
    found: list[tuple[str, str]] = []
    resume = f"apportion train --resume {shlex.quote(str(run.folder))}" if run.by_command else ""
    again = "goes on." if run.by_command else "The same call of fit, with this folder, goes on."
    if not run.is_finished:
        done = f"Not finished: {run.epochs:,} of {run.epochs_wanted:,} epochs."
        found.append((f"{done} {again}" if not resume else done, resume))
    elif not run.outcomes:
        what = "All epochs are done, but what they led to (outcome.safetensors) is not there, so "
        found.append((f"{what}nothing is told of bags and instances.", resume))
    if not run.is_validated:
        which = "The last epoch was taken" if run.is_finished else "The last epoch is shown"
        found.append((f"There were no validation bags to select an epoch by. {which}.", ""))
    elif run.is_finished and run.selected["epoch"] == run.epochs == run.epochs_wanted > 1:
        text = "The validation error was least in the last epoch: more epochs may lower it further."
        found.append((text, ""))
    guess, error = run.error_of_guessing("valid"), run.error("valid")
    if guess is not None and error is not None and error >= guess:
        text = "On the validation bags the model is no better than saying the same of every bag."
        found.append((text, ""))
    if run.outcomes and run.with_truth is None:
        text = "The classes of single instances are not known, so no accuracy can be told."
        found.append((text, ""))
    elif run.with_truth == "train":
        text = "Accuracy is known on the training bags only, whose proportions were learned from."
        found.append((text, ""))
    return found


def commands(run: RunRead) -> list[tuple[str, str]]:
    """Give the commands that do it again, each with what it does, if the command line did it."""
    if not run.by_command:
        return []
    folder = shlex.quote(str(run.folder))
    config = shlex.quote(str(run.folder / "config.toml"))
    found = [
        ("train it again, in another folder", f"apportion train {config} --out runs/again"),
        ("make this page again", f"apportion report {folder} --force"),
    ]
    resume = ("go on", f"apportion train --resume {folder}")
    return found if run.is_finished else [resume, *found]
