"""What a run shows, in words: the summary at the top of a report, and what to be careful about."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from statistics import median
from typing import Any

from apportion.auto.held_out import Expectation
from apportion.errors import count
from apportion.report.read import SET_NAMES, RunRead
from apportion.runs.run import Run

PHASES = {
    "train": "training",
    "confidence": "confidences",
    "labels": "label decisions",
    "evaluation": "evaluation",
}


def percent(share: float | None) -> str:
    """Write a share, or a dash where there is none.

    Examples
    --------
    >>> percent(0.9312), percent(1), percent(0.99996), percent(None)
    ('93.1%', '100%', '99.9%', '–')
    """
    if share is None:
        return "–"
    return "100%" if share == 1 else f"{min(share, 0.999) if share < 1 else share:.1%}"


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
    """Name a method and what matters of its settings.

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
    known = {
        "pi-model": "Π-model with proportion loss",
        "llp-vat": "LLP-VAT",
        "count-likelihood": "likelihood of the counts",
        "auto": "auto, which averages small nets",
        "linear": "linear model, likelihood of the counts",
        "mean-map": "linear model, mean map",
        "ridge": "linear model, ridge regression of bag means",
    }
    return known.get(name, name)


def network_in_words(run: RunRead) -> str | None:
    """Name the network, if the run knows it."""
    name = run.config.get("model", {}).get("net") or run.recipe.get("net")
    if groups := run.recipe.get("groups"):
        return f"{name} of {count(sum(map(len, groups)), 'net')}"
    hidden = run.recipe.get("hidden") or []
    if run.recipe.get("hidden") == []:
        return "none: a linear model"
    return f"{name} ({' → '.join(map(str, hidden))})" if name and hidden else name


def summary(run: RunRead) -> list[str]:
    """Describe in two paragraphs what was learned from what, and how well."""
    told = [" ".join([*_of_data(run), *_of_training(run)]), " ".join(_of_result(run))]
    return [paragraph for paragraph in told if paragraph]


def _of_data(run: RunRead) -> Iterator[str]:
    train = run.evaluations.get("train")
    if train is None:
        return
    sizes = train.sizes.tolist()
    least, middle, most = min(sizes), median(sizes), max(sizes)
    size = f"{least:,}" if least == most else f"{least:,} to {most:,} (median {middle:,g})"
    names = listed((shortened(name, 24) for name in run.classes), 10)
    yield (
        f"A classifier of {count(len(run.classes), 'class')} ({names}) was trained on "
        f"{count(len(sizes), 'bag')} of {size} instances, {sum(sizes):,} in all."
    )
    yield "Only the class proportions of the bags were used."


def _of_training(run: RunRead) -> Iterator[str]:
    yield f"Method: {method_in_words(run.config)}."
    reason = run.config.get("plan", {}).get("net") if run.unit == "net" else None
    if network := reason or network_in_words(run):
        yield f"Network: {network}."
    is_short = run.done < run.wanted
    of_all = f"{run.done:,} of {count(run.wanted, run.unit)}"
    epochs = of_all if is_short else count(run.done, run.unit)
    device = run.config.get("resolved", {}).get("device")
    where = f" on {device}" if device else ""
    took = "Training took" if run.is_finished else "So far training took"
    if run.unit == "net":
        of_all = f", for {epochs}" if run.wanted > 1 else ""
        yield f"{took} {duration(run.total_seconds)}{where}{of_all}."
        return
    yield f"{took} {epochs} and {duration(run.total_seconds)}{where}."
    if is_short and run.is_finished:
        patience = run.config["train"].get("patience")
        since = f"for {count(int(patience), 'epoch')}" if patience else ""
        stopped = f"stopped early: the validation error had not improved {since}"
        yield f"It {stopped if patience else 'was ended early, by the program that trained it'}."


def _of_result(run: RunRead) -> Iterator[str]:
    if (expected := Expectation.of_record(run.records[-1])) is not None and expected.learned:
        yield f"What to expect: {expected}."
    if run.is_validated:
        error = float(run.selected["valid_error"])
        chosen = "was selected: it has" if run.is_finished else "so far has"
        yield (
            f"Epoch {run.selected['epoch']:,} {chosen} the lowest validation proportion error, "
            f"{error:.4f}. On average, that share of a validation bag is assigned to the wrong "
            "class."
        )
        guess = run.error_of_mean("valid")
        if guess is not None:
            mean = "Predicting the mean of the training bags for every bag"
            yield f"{mean} would have an error of {guess:.4f}."
    known = {of: run.accuracy(of) for of in SET_NAMES}
    told = [f"{percent(a)} on the {SET_NAMES[of]} bags" for of, a in known.items() if a is not None]
    if told:
        yield f"Accuracy on single instances: {listed(told)}."


def notices(run: RunRead) -> list[tuple[str, str]]:
    """List what to be careful about, each with a command that continues the run, or with none."""
    resume = f"apportion train --resume {shlex.quote(str(run.folder))}" if run.by_command else ""
    found = []
    if not run.is_finished:
        again = "" if resume else " To continue, call fit again with this folder."
        done = f"Not finished: {run.done:,} of {count(run.wanted, run.unit)}."
        found.append((done + again, resume))
    elif not run.evaluations:
        missing = f"All {run.unit}s are done, but {Run(run.folder).evaluation.name} is missing: "
        found.append((f"{missing}bags and instances cannot be shown.", resume))
    return [*found, *((text, "") for text in _cautions(run))]


def _cautions(run: RunRead) -> Iterator[str]:
    if run.unit == "net":
        expected = Expectation.of_record(run.records[-1])
        if expected is not None and not expected.learned:
            yield f"{str(expected)[0].upper()}{str(expected)[1:]}."
    elif not run.is_validated:
        which = "was kept" if run.is_finished else "is shown"
        yield f"There were no validation bags. The last epoch {which}."
    elif run.is_finished and run.selected["epoch"] == run.done == run.wanted > 1:
        yield "The validation error was lowest in the last epoch: more epochs may lower it."
    guess, error = run.error_of_mean("valid"), run.error("valid")
    if guess is not None and error is not None and error >= guess:
        yield "On the validation bags the model is no better than the mean of the training bags."
    if run.evaluations and run.with_truth is None:
        yield "The classes of instances are not known, so there is no accuracy."
    elif run.with_truth == "train":
        yield "Accuracy is known on the training bags only, whose proportions were used."


def commands(run: RunRead) -> list[tuple[str, str]]:
    """List the commands that repeat a run of the command line, each after what it does."""
    if not run.by_command:
        return []
    folder = shlex.quote(str(run.folder))
    config = shlex.quote(str(Run(run.folder).config))
    found = [
        ("train again, in another folder", f"apportion train {config} --out runs/again"),
        ("write this page again", f"apportion report {folder} --force"),
    ]
    resume = ("continue", f"apportion train --resume {folder}")
    return found if run.is_finished else [resume, *found]
