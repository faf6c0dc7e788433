"""How well a run did: one verdict, then the figures behind it, and which bags each is of."""

from __future__ import annotations

from collections.abc import Iterator

from apportion.auto.held_out import Expectation
from apportion.errors import count
from apportion.report.read import SET_NAMES, RunRead
from apportion.report.weigh import (
    Without,
    closer,
    evidence,
    times_chance,
    usual_chance,
    without_off,
)
from apportion.report.words import (
    hundredths,
    listed,
    percent,
    plain,
    points,
    shortened,
    spanned,
)

__all__ = ["how_well", "named"]

SAME = "the overall shares of classes (the same guess for every bag)"
NEAR_CHANCE = 1.3
FEW = 30  # bags
ALIKE = 0.1  # a difference of two shares that needs no words


def how_well(run: RunRead) -> Iterator[str]:
    """Say how well, the verdict first."""
    of = run.held_out
    if of is not None:
        yield _verdict(run, of)
        yield from _of_error(run, of)
    elif run.is_validated:
        error = float(run.selected["valid_error"])
        yield (
            f"So far epoch {run.selected['epoch']:,} has the lowest validation proportion error, "
            f"{plain(error)}: predicted and known shares differ by {points(error)} on average."
        )
    if run.evaluations and run.is_validated:
        why = "it has the lowest validation proportion error,"
        if run.is_settled and run.selected["epoch"] == run.done:
            why = (
                "the last one, whose validation proportion error is the lowest or not worse "
                "beyond chance:"
            )
        yield (
            f"Epoch {run.selected['epoch']:,} was selected: {why} "
            f"{plain(float(run.selected['valid_error']))}."
        )
    yield from _of_accuracy(run)


def _verdict(run: RunRead, of: str) -> str:
    found, expected = evidence(run), Expectation.of_record(run.records[-1])
    bags = count(len(run.evaluations[of].ids), f"{SET_NAMES[of]} bag")
    if found == "shown":
        return f"It clearly predicts bags that it did not learn from better than {SAME}."
    error, guess = run.error(of), run.error_of_mean(of)
    saved = 1 - error / guess if error is not None and guess else 0.0
    if found == "mixed" and expected is not None:
        return (
            f"It probably predicts new bags better than {SAME}, but by how much is uncertain: "
            f"{f'{saved:.0%}' if saved > 0 else 'no'} less error on the {bags}, about "
            f"{closer(expected):.0%} on training bags that its nets had not seen."
        )
    if found == "expected" and expected is not None:
        but = "no bags were held out" if of == "train" else f"the {bags} are too few"
        return (
            f"It probably predicts new bags better than {SAME}, with about "
            f"{closer(expected):.0%} less error, but {but} to show it."
        )
    if found == "unknown":
        why = "no bags were held out" if of == "train" else f"{bags} are too few to tell"
        return f"How well it predicts new bags is not known: {why}."
    why = f": {saved:.0%} less error on the {bags} may be chance"
    why = why if saved > 0 and of != "train" else ""
    return f"Nothing shows clearly that it predicts new bags better than {SAME}{why}."


def _of_error(run: RunRead, of: str) -> Iterator[str]:
    error, guess, n = run.error(of), run.error_of_mean(of), len(run.evaluations[of].ids)
    if error is None:
        return
    learned = "which it learned from" if of == "train" else "which it did not learn from"
    span = spanned(run.error_interval(of), hundredths)
    sure = f"95% interval {span}; " if span else ""
    yield (
        f"On the {count(n, f'{SET_NAMES[of]} bag')}, {learned}, predicted and known shares of "
        f"classes differ by {points(error)} on average ({sure}proportion error {plain(error)})."
    )
    less = without_off(run, of)
    if guess:
        saved = 1 - error / guess
        removed = f"the model removes {saved:.0%} of that error"
        yield (
            "Predicting the overall shares of the training bags for every bag would be off by "
            f"{points(guess)} ({plain(guess)}): "
            f"{removed if saved > 0 else 'the model is no better'}."
        )
        if less is not None:
            yield _of_rest(run, of, less)
    yield _of_chance(run, of, error, less)
    expected = Expectation.of_record(run.records[-1])
    if guess and expected is not None and expected.learned:
        yield _of_unseen(run, of, expected, 1 - error / guess, less)


def named(run: RunRead, of: str, bags: list[int]) -> str:
    """Name some bags."""
    return listed((shortened(str(run.evaluations[of].ids[bag]), 24) for bag in bags), 3)


def _of_rest(run: RunRead, of: str, less: Without) -> str:
    times = times_chance(run.evaluations[of])[less.bags]
    if len(times) == 1:
        far = f"whose difference is {times[0]:.1f} times that by chance"
    else:
        far = f"whose differences are {times.min():.1f} to {times.max():.1f} times those by chance"
    saves = f"removes {less.saved:.0%}" if less.saved > 0 else "no better"
    return (
        f"Without {named(run, of, less.bags)}, {far}, it would be {points(less.error)} against "
        f"{hundredths(less.of_overall)} for the overall shares ({saves})."
    )


def _of_chance(run: RunRead, of: str, error: float, less: Without | None) -> str:
    chance = usual_chance(run, of)
    told = (
        f"Bags of these sizes differ by about {points(chance)} by chance, even from right "
        "probabilities"
    )
    if error <= NEAR_CHANCE * chance:
        return f"{told}: little is left to gain."
    if less is not None and less.error <= NEAR_CHANCE * chance:
        return f"{told}: beside what is off, little is left to gain."
    return f"{told}."


def _of_unseen(
    run: RunRead, of: str, expected: Expectation, saved: float, less: Without | None
) -> str:
    """Say what nets did on bags that they had not seen, and why it may be another figure."""
    told = (
        "Its nets were also tried on the training bags that each of them had not seen: there they "
        f"remove about {closer(expected):.0%} of the error of the overall shares "
        f"({expected.skill:.0%} of the squared error)."
    )
    if of == "train":
        why = (
            ": bags that were learned from are met more closely" if closer(expected) < saved else ""
        )
        return f"{told} Expect that of new bags{why}."
    if abs(closer(expected) - saved) < ALIKE:
        return told
    n, reasons = len(run.evaluations[of].ids), []
    if n < FEW:
        reasons.append(f"{count(n, 'bag')} are few")
    if less is not None:
        weigh = "weighs" if len(less.bags) == 1 else "weigh"
        reasons.append(f"{named(run, of, less.bags)} {weigh} much among them")
    near, usual = run.error_of_mean(of), run.error_of_mean("train")
    near = near if less is None else less.of_overall
    if near and usual and near < (1 - ALIKE) * usual and closer(expected) > saved:
        also = "" if less is None else "the others "
        reasons.append(
            f"{also}lie nearer to the overall shares ({points(near)} on average, the training bags "
            f"{hundredths(usual)}), which leaves less to remove"
        )
    why = f": {listed(reasons)}" if reasons else ""
    return (
        f"{told} That figure is of the training bags, the {max(saved, 0):.0%} above of the "
        f"{SET_NAMES[of]} bags, and different bags may give different figures{why}."
    )


def _of_accuracy(run: RunRead) -> Iterator[str]:
    known = {of: run.accuracy(of) for of in SET_NAMES}
    told = []
    for of, share in known.items():
        if share is not None:
            span = spanned(run.accuracy_interval(of), percent)
            sure = f" (95% interval {span})" if span else ""
            told.append(f"{percent(share)} on the {SET_NAMES[of]} bags{sure}")
    if told:
        yield f"Single {run.kind}s whose class is right: {listed(told)}."
    judged = run.with_truth
    confusion = None if judged is None else run.evaluations[judged].confusion
    if judged is not None and confusion is not None:
        totals = confusion.sum(axis=1)
        most = int(totals.argmax())
        always, name = percent(float(totals[most] / totals.sum())), shortened(run.classes[most], 24)
        yield (
            f"Always answering {name!r} would be right for {always} of those in the "
            f"{SET_NAMES[judged]} bags."
        )
