"""What a run shows, for readers who know neither it nor this field: five questions, answered.

What was learned from what, how well, how far to trust it, which bags are off, and what to do next.
Every sentence follows from numbers of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

import numpy as np

from apportion.auto.held_out import Expectation
from apportion.errors import count
from apportion.metrics import overdispersion
from apportion.report.advice import Step, next_steps
from apportion.report.charts import NAMED
from apportion.report.read import SET_NAMES, RunRead
from apportion.report.results import how_well, named
from apportion.report.weigh import OFF, evidence, off_bags, times_chance, told_class
from apportion.report.words import (
    better,
    duration,
    listed,
    method_in_words,
    network_in_words,
    percent,
    period,
    shortened,
)

FEW_BAGS, FEW_HELD_OUT = 30, 10
ALIKE = 2.0  # times as much as by chance


class Answer(NamedTuple):
    """A question, and its answer in sentences or steps."""

    question: str
    sentences: list[str]
    steps: list[Step]


def answers(run: RunRead, *, shared: bool = False) -> list[Answer]:
    """Answer the questions that the run can answer.

    Beside others of the same bags, what is the same for all of them is left to `of_data`.
    """
    first = "How was it learned?" if shared else "What was learned, from what?"
    told = {
        first: [*([] if shared else of_data(run)), *_of_training(run)],
        "How well?": how_well(run),
        "How far can it be trusted?": _of_trust(run),
        "Which bags are off?": _of_bags(run),
    }
    found = [Answer(question, list(sentences), []) for question, sentences in told.items()]
    found.append(Answer("What to do next?", [], list(next_steps(run))))
    return [answer for answer in found if answer.sentences or answer.steps]


# ---------------------------------------------------------------------------------- what, and when


def of_data(run: RunRead) -> Iterator[str]:
    """Say what was learned from what."""
    train, data = run.evaluations.get("train"), run.config.get("data", {})
    if train is not None:
        sizes = train.sizes.tolist()
        least, middle, most = min(sizes), median(sizes), max(sizes)
        size = f"{least:,}" if least == most else f"{least:,} to {most:,} (median {middle:,g})"
        names = listed((shortened(name, 24) for name in run.classes), 10)
        by = f", by the column {data['bag']!r}" if isinstance(data.get("bag"), str) else ""
        yield (
            f"A classifier that tells {count(len(run.classes), 'class')} ({names}) of single "
            f"{run.kind}s was trained on {count(len(sizes), 'bag')} of {size} {run.kind}s, "
            f"{sum(sizes):,} in all."
        )
        yield (
            f"A bag is a group of {run.kind}s{by}. Training used only the share of each class in "
            f"each bag (its proportions), never the class of a single {run.kind}."
        )
    if run.columns is not None:
        names = listed((shortened(name, 24) for name in run.columns.names), 8)
        yield f"It learned from {count(len(run.columns.names), 'column')}: {names}."


def _of_training(run: RunRead) -> Iterator[str]:
    yield f"Method: {method_in_words(run.config)}."
    if network := network_in_words(run):
        yield f"Network: {network}."
    is_short = run.done < run.wanted
    of_all = f"{run.done:,} of {count(run.wanted, run.unit)}"
    epochs = of_all if is_short else count(run.done, run.unit)
    device = run.config.get("resolved", {}).get("device")
    where = f" on {device}" if device else ""
    took = "Training took" if run.is_finished else "So far training took"
    when = "" if run.began is None else f", {period(run.began, run.ended)}"
    spent = f"{duration(run.total_seconds)}{where}"
    if run.unit == "net":
        of_all = f", for {epochs}" if run.wanted > 1 else ""
        yield f"{took} {spent}{of_all}{when}."
        return
    yield f"{took} {epochs} and {spent}{when}."
    if is_short and run.is_finished:
        patience = run.config["train"].get("patience")
        since = f"for {count(int(patience), 'epoch')}" if patience else ""
        stopped = f"stopped early: the validation error had not improved {since}"
        yield f"It {stopped if patience else 'was ended early, by the program that trained it'}."


# --------------------------------------------------------------------------------- how far to trust


def _of_trust(run: RunRead) -> Iterator[str]:
    of, expected = run.held_out, Expectation.of_record(run.records[-1])
    if of is None:
        return
    found, gain = evidence(run), run.gain_interval(of)
    if of == "train":
        yield (
            "No bags were held out. The error was measured on the bags that it learned from, which "
            "flatters it."
        )
    bags, span = f"{SET_NAMES[of]} bags", better(gain)
    judged = "" if expected is None else f" ({expected.standard_errors:.1f} standard errors)"
    by_nets = (
        "nets that were trained without a part of the training bags predict that part clearly "
        f"better than the shares of all others do{judged}"
    )
    if found == "shown":
        yield (
            f"It has learned something that holds beyond its training bags: {bags} are predicted "
            f"better than by the overall shares, and not by chance ({span})."
        )
    elif found == "expected":
        yield f"It has learned something that holds beyond single bags: {by_nets}."
    elif found == "mixed":
        yield (
            f"The evidence is mixed. On the {bags} it is not clearly better than the overall "
            f"shares ({span}), but {by_nets}."
        )
    elif found == "unknown":
        yield "Nothing here tells whether new bags are predicted better than by the overall shares."
    elif of == "train":
        yield f"Do not rely on it: {expected}."
    else:
        yield (
            f"Do not rely on it yet: on the {bags} it is not clearly better than the overall "
            f"shares ({span})."
        )
    if of != "train" and found in ("mixed", "doubtful"):
        yield from _without_off(run, of)
    yield from _limits(run, of)


def _without_off(run: RunRead, of: str) -> Iterator[str]:
    """Say if a few bags that are off, perhaps by a mistake in the data, make all the doubt."""
    off, own = off_bags(run, of), run.evaluations[of]
    for some in (off[:1], off):
        gain = run.gain_interval(of, without=some) if 0 < len(some) <= len(own.ids) / 4 else None
        if gain is not None and gain[0] > 0:
            names = named(run, of, some)
            which = "which is off" if len(some) == 1 else "which are off"
            yield (
                f"Without {names}, {which}, it would be clearly better ({better(gain)}): first "
                "check whether those data are right."
            )
            return


def _limits(run: RunRead, of: str) -> Iterator[str]:
    train = run.evaluations.get("train")
    if train is not None and len(train.ids) < FEW_BAGS:
        yield f"It learned from {count(len(train.ids), 'bag')} only, which is little to go by."
    if of != "train" and len(run.evaluations[of].ids) < FEW_HELD_OUT:
        n_bags = count(len(run.evaluations[of].ids), f"{SET_NAMES[of]} bag")
        yield f"{n_bags} are few: with others the error could easily be another."
    if train is not None and len(train.ids) > 1:
        times = overdispersion(train.sizes, train.given)
        if times <= ALIKE:
            yield (
                f"The bags are alike: their shares differ {times:.2g} times as much as by chance. "
                f"Such bags say little about single {run.kind}s."
            )
    if of == "valid" and run.is_validated:
        yield "The validation bags also selected the epoch, which makes their error a little low."
    if run.with_truth is None:
        yield (
            f"Whether single {run.kind}s are right is not known, since no true classes were given: "
            f"shares of bags can be right while {run.kind}s within a bag are mixed up."
        )
    elif run.with_truth == "train":
        yield (
            "How many are right is known on the training bags only, whose proportions were used."
        )
    yield "All this holds for bags like these: other places or times may differ."


# ------------------------------------------------------------------------------- which bags are off


def _of_bags(run: RunRead) -> Iterator[str]:
    for of, name in SET_NAMES.items():
        if of not in run.evaluations:
            continue
        off, n = off_bags(run, of), count(len(run.evaluations[of].ids), f"{name} bag")
        if off:
            which = listed((_gap(run, of, bag) for bag in off[:NAMED]), NAMED)
            one = len(off) == 1
            yield (
                f"Of the {n}, {len(off):,} {'is' if one else 'are'} off by more than {OFF:g} times "
                f"what chance explains in {'a bag of its size' if one else 'bags of their sizes'}"
                f"{'' if len(off) <= NAMED else '; the farthest'}: {which}."
            )
        else:
            far = int(times_chance(run.evaluations[of]).argmax())
            yield (
                f"Of the {n}, none is off by more than {OFF:g} times what chance explains in a bag "
                f"of its size; the farthest is {_gap(run, of, far)}."
            )


def _gap(run: RunRead, of: str, bag: int) -> str:
    own, c = run.evaluations[of], told_class(run)
    if c is None:
        c = int(np.argmax(np.abs(own.given[bag] - own.predicted[bag])))
    given, predicted = float(own.given[bag, c]), float(own.predicted[bag, c])
    name, label = shortened(str(own.ids[bag]), 32), shortened(run.classes[c], 24)
    side = "too low" if predicted < given else "too high"
    return (
        f"{name} (share of {label}: known {percent(given)}, predicted {percent(predicted)}, {side}"
        f"; {times_chance(own)[bag]:.1f} times chance)"
    )
