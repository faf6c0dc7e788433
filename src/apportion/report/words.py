"""How a report words numbers, times, methods and networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from apportion.errors import count
from apportion.report.read import Interval, RunRead

PHASES = {
    "train": "training",
    "confidence": "confidences",
    "labels": "label decisions",
    "evaluation": "evaluation",
}


BEGINNINGS = {
    "mean-map": ", first labels by a mean map",
    "linear": ", first labels by a linear model",
    "ridge": ", first labels by ridge regression of bag means",
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


def points(share: float) -> str:
    """Write a difference of shares in percentage points.

    Examples
    --------
    >>> points(0.0312), points(0.01)
    ('3.1 percentage points', '1.0 percentage points')
    """
    return f"{hundredths(share)} percentage points"


def hundredths(share: float) -> str:
    """Write a difference of shares in percentage points, where a text has named these before.

    Examples
    --------
    >>> hundredths(0.0312)
    '3.1'
    """
    return f"{100 * share:.1f}".replace("-", "−")


def better(gain: Interval) -> str:
    """Write the interval of a gain so that both its ends say which side is better.

    Examples
    --------
    >>> better((0.012, 0.034))
    '1.2 to 3.4 percentage points better, 95% interval'
    >>> better((-0.0169, 0.0299))
    'from 1.7 percentage points worse to 3.0 better, 95% interval'
    >>> better((-0.0004, 0.02))
    'from no difference to 2.0 percentage points better, 95% interval'
    >>> better((-0.03, -0.01)), better(None)
    ('1.0 to 3.0 percentage points worse, 95% interval', '')
    """
    if gain is None:
        return ""
    low, high = (hundredths(abs(end)) for end in gain)
    if gain[0] < 0 < gain[1] and low == "0.0":
        return f"from no difference to {high} percentage points better, 95% interval"
    if gain[0] < 0 < gain[1]:
        return f"from {low} percentage points worse to {high} better, 95% interval"
    ends, side = ((low, high), "better") if gain[0] >= 0 else ((high, low), "worse")
    return f"{ends[0]} to {ends[1]} percentage points {side}, 95% interval"


def spanned(interval: Interval, write: Callable[[float], str] = plain) -> str:
    """Write an interval, or nothing where there is none.

    Examples
    --------
    >>> spanned((-0.024, 0.0413)), spanned((0.8, 0.9), percent), spanned(None)
    ('−0.0240 to 0.0413', '80.0% to 90.0%', '')
    """
    return "" if interval is None else f"{write(interval[0])} to {write(interval[1])}"


def date(seconds: float | None) -> str:
    """Write a time that is given in seconds since 1970.

    Examples
    --------
    >>> date(1_700_000_000.5), date(None)
    ('2023-11-14 22:13 UTC', '–')
    """
    if seconds is None:
        return "–"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def period(began: float | None, ended: float | None) -> str:
    """Write from when to when, or when alone within one minute.

    Examples
    --------
    >>> period(1_700_000_000, 1_700_000_010), period(1_700_000_000, 1_700_000_100)
    ('on 2023-11-14 22:13 UTC', 'from 2023-11-14 22:13 UTC to 2023-11-14 22:15 UTC')
    """
    first, last = date(began), date(ended)
    return f"on {last}" if first == last else f"from {first} to {last}"


def duration(seconds: float) -> str:
    """Put seconds into words.

    Examples
    --------
    >>> duration(0.004), duration(0.25), duration(2), duration(45), duration(600), duration(9000)
    ('0.004 s', '0.25 s', '2.0 s', '45 s', '10 min', '2.5 h')
    """
    if seconds < 1:
        return f"{seconds:.2f} s" if seconds >= 0.01 else f"{seconds:.1g} s"
    if seconds < 10:
        return f"{seconds:.1f} s"
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
    >>> method_in_words({"method": {"name": "fpl", "first": "mean-map"}})
    'online pseudo labels (Follow the Perturbed Leader, first labels by a mean map)'
    >>> method_in_words({"method": {"name": "fpl", "unlikelihood": "log", "memory": 0.5}})
    'pseudo labels by averaged log-confidences'
    >>> method_in_words({"method": {"name": "proportion-loss", "form": "l1"}})
    'proportion loss (l1)'
    """
    method = config["method"]
    name = str(method["name"])
    if name == "fpl":
        eta = config.get("resolved", {}).get("eta", method.get("eta"))
        form = ", plain unlikelihood" if method.get("unlikelihood") == "plain" else ""
        if method.get("unlikelihood") == "log":
            return "pseudo labels by averaged log-confidences"
        if method.get("memory", 1) == 0:
            why = "" if brief else " (each epoch decides by its own confidences alone)"
            return f"naive pseudo labels{why}{form}"
        if eta == 0:
            return f"greedy pseudo labels{'' if brief else ' (no perturbation)'}{form}"
        strength = "" if eta is None else f", η = {eta:g}"
        if brief:
            return f"online pseudo labels{strength}{form}"
        begin = BEGINNINGS.get(str(method.get("first")), "")
        return f"online pseudo labels (Follow the Perturbed Leader{strength}{form}{begin})"
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
