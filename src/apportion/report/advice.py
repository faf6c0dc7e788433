"""What to be careful about in a run, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from apportion.auto.held_out import Expectation
from apportion.errors import count
from apportion.report.read import SET_NAMES, RunRead
from apportion.report.weigh import evidence, off_bags, without_off
from apportion.report.words import listed, shortened
from apportion.runs.run import Run


class Step(NamedTuple):
    """Something to do next, with a command if there is one."""

    text: str
    command: str = ""


def next_steps(run: RunRead) -> Iterator[Step]:
    """List what the numbers suggest to do, the most urgent first."""
    folder = shlex.quote(run.place)
    if not run.is_finished:
        command = f"apportion train --resume {folder}" if run.by_command else ""
        again = "" if command else " Call fit again with this folder."
        yield Step(f"Finish the training.{again}", command)
        return
    of = run.held_out
    if of is None:
        return
    config = shlex.quote(f"{run.place}/{Run(run.folder).config.name}")
    found, off = evidence(run), off_bags(run, of)
    first = bool(off) and without_off(run, of) is not None
    if first:
        yield _check(run, of, off, " If not, mend the data and train again.")
    if found == "doubtful":
        yield Step(
            f"Do not use the predictions yet: {_doubt(run, of)}. Look for more bags, for bags "
            "whose shares differ more (by place or time rather than at random), or for columns "
            "that tell the classes apart."
        )
    if of == "train":
        held = f"apportion train {config} --validation 0.2 --out runs/held-out"
        yield Step(
            "Hold out a fifth of the bags, to see an error that does not flatter.",
            held if run.by_command else "",
        )
    elif _still_falls(run):
        yield Step("Train for more epochs: the validation error was lowest in the last one.")
    if off and not first:
        yield _check(run, of, off)
    if run.with_truth is None:
        yield Step(
            f"Find the true classes of a hundred {run.kind}s or so, drawn at random, to learn how "
            f"many single {run.kind}s are right.",
            f"apportion predict {folder} labelled.csv --label CLASS" if run.by_command else "",
        )
    if found != "doubtful":
        care = ""
        if found == "mixed":
            care = (
                ", with care: its nets did well on training bags that they had not seen, though "
                f"the {SET_NAMES[of]} bags alone do not show it"
            )
        yield Step(
            f"Predict new {run.kind}s{care}. Where the shares of their bags are known, pass them: "
            "predictions that meet them are better.",
            f"apportion predict {folder} new.csv --proportions new-bags.csv"
            if run.by_command
            else "",
        )


def _check(run: RunRead, of: str, off: list[int], then: str = "") -> Step:
    names = listed((shortened(str(run.evaluations[of].ids[bag]), 24) for bag in off), 3)
    it, its = ("it", "its") if len(off) == 1 else ("them", "their")
    return Step(
        f"Check {names} in the data: are the shares that were given for {it} right, and do {its} "
        f"{run.kind}s belong there?{then}"
    )


def _doubt(run: RunRead, of: str) -> str:
    if of == "train":
        return "its nets did not clearly beat the overall shares on bags that they had not seen"
    bags = count(len(run.evaluations[of].ids), f"{SET_NAMES[of]} bag")
    return f"the {bags} do not show clearly that they are better than the overall shares"


def _still_falls(run: RunRead) -> bool:
    last = run.is_validated and run.selected["epoch"] == run.done == run.wanted > 1
    return last and not run.is_settled


# ------------------------------------------------------------------------------------------ notices


def notices(run: RunRead) -> list[tuple[str, str]]:
    """List what to be careful about, each with a command that continues the run, or with none."""
    resume = f"apportion train --resume {shlex.quote(run.place)}" if run.by_command else ""
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
    expected = Expectation.of_record(run.records[-1])
    if expected is not None and not expected.learned:
        yield f"{str(expected)[0].upper()}{str(expected)[1:]}."
    if run.unit == "epoch" and not run.is_validated:
        which = "was kept" if run.is_finished else "is shown"
        yield f"There were no validation bags. The last epoch {which}."
    elif run.is_finished and _still_falls(run):
        yield "The validation error was lowest in the last epoch: more epochs may lower it."
    guess, error = run.error_of_mean("valid"), run.error("valid")
    if guess is not None and error is not None and error >= guess:
        yield "On the validation bags the model is no better than the mean of the training bags."
    if run.evaluations and run.with_truth is None:
        yield "The classes of instances are not known, so there is no accuracy."


def commands(run: RunRead) -> list[tuple[str, str]]:
    """List the commands that repeat a run of the command line, each after what it does."""
    if not run.by_command:
        return []
    folder = shlex.quote(run.place)
    config = shlex.quote(f"{run.place}/{Run(run.folder).config.name}")
    found = [
        ("train again, in another folder", f"apportion train {config} --out runs/again"),
        ("write this page again", f"apportion report {folder} --force"),
    ]
    resume = ("continue", f"apportion train --resume {folder}")
    return found if run.is_finished else [resume, *found]
