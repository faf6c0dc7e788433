"""The instances that a model is least sure of: their numbers, or pictures, traces, rows of a table.

A run keeps the numbers of rows. What they hold is shown only if it was read again and passed.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from apportion.bags.columns import Columns
from apportion.report.read import RunRead
from apportion.report.words import percent

Array = NDArray[Any]

MOST_COLUMNS = 12  # of a table
MOST_CHANNELS = 4  # of a signal
MOST_PIXELS = 96  # in either direction
TRACE = (160, 64)  # the width and the height of a signal


class Example(NamedTuple):
    """An instance, what the model says of it, and the truth where it is known."""

    bag: str
    row: int
    guesses: Sequence[tuple[str, str]]  # the two likeliest classes with their probabilities
    truth: str | None
    shown: Any  # the data URL of a picture, the SVG element of a signal, or the values of a row
    name: str | None = None  # of a file or a signal


class Examples(NamedTuple):
    """Examples of one set of bags, and how they are shown."""

    of: str  # "train", "valid" or "test"
    kind: str  # "images", "signals" or "table", which may have no columns
    shown: Sequence[Example]
    remark: str = ""
    header: Sequence[tuple[str, bool]] = ()  # a table's columns; whether numbers


def unsure_examples(run: RunRead) -> Examples | None:
    """Show the instances that the model is least sure of, in held-out bags if there are any."""
    of = run.held_out
    if of is None or not len(run.evaluations[of].unsure.rows):
        return None
    rows = run.instances.get(of)
    if rows is None:
        return Examples(
            of, "table", _examples(run, of, [()] * len(run.evaluations[of].unsure.rows))
        )
    x, axes = rows.parts, rows.parts[0].ndim
    if axes == 4 or (axes == 3 and run.config.get("data", {}).get("kind") == "images"):
        images = [picture(image) for image in _scaled(_channels_last(x[0]))]
        return Examples(of, "images", _examples(run, of, images))
    if axes == 3:
        lengths = x[1] if len(x) > 1 and x[1].ndim == 1 else np.full(len(x[0]), x[0].shape[2])
        pairs = zip(x[0], lengths.tolist(), strict=True)
        traces = [trace(signal[:, : max(int(n), 1)]) for signal, n in pairs]
        remark = _first(MOST_CHANNELS, x[0].shape[1], "channels")
        return Examples(of, "signals", _examples(run, of, traces), remark)
    names, columns = decoded(x, run.columns)
    texts = () if run.columns is None else run.columns.categorical
    header = [(name, name not in texts) for name in names[:MOST_COLUMNS]]
    remark = _first(MOST_COLUMNS, len(names), "columns")
    values = list(zip(*columns[:MOST_COLUMNS], strict=True))
    return Examples(of, "table", _examples(run, of, values), remark, header)


def _first(most: int, n: int, what: str) -> str:
    return f"The first {most} of {n:,} {what}." if n > most else ""


def _examples(run: RunRead, of: str, shown: Sequence[Any]) -> list[Example]:
    ids, unsure, found = run.evaluations[of].ids, run.evaluations[of].unsure, []
    for k, own in enumerate(shown):
        likeliest = np.argsort(-unsure.confidence[k], kind="stable")[:2].tolist()
        guesses = [(run.classes[c], percent(unsure.confidence[k, c])) for c in likeliest]
        truth = None
        if unsure.truth is not None:
            truth = "–" if unsure.truth[k] < 0 else run.classes[unsure.truth[k]]
        rows = run.instances.get(of)
        name = None if rows is None or rows.names is None else rows.names[k]
        bag = str(ids[unsure.bags[k]])
        found.append(Example(bag, int(unsure.rows[k]), guesses, truth, own, name))
    return found


# ------------------------------------------------------------------------------------------ images


def _channels_last(images: Array) -> Array:
    """Return images as (k, H, W, channels), of one channel or three."""
    if images.ndim == 3:
        images = images[..., None]
    elif images.shape[1] in (1, 3, 4) or images.shape[3] not in (1, 3, 4):
        images = np.moveaxis(images, 1, 3)
    return images[..., :3] if images.shape[3] >= 3 else images[..., :1]


def _scaled(images: Array) -> Array:
    """Return images as bytes; what is neither bytes nor from 0 to 1 is scaled to its range."""
    if images.dtype == np.uint8:
        return images
    numbers = np.nan_to_num(images.astype(np.float64))
    low, high = min(0.0, float(numbers.min())), max(1.0, float(numbers.max()))
    return np.rint((numbers - low) * (255 / (high - low))).astype(np.uint8)


def picture(image: NDArray[np.uint8]) -> str:
    """Return an image (H, W, channels) as a data URL of a PNG.

    Examples
    --------
    >>> picture(np.zeros((2, 2, 1), np.uint8))[:28]
    'data:image/png;base64,iVBORw'
    """
    from PIL import Image  # which matplotlib needs, too

    drawn = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)
    file = io.BytesIO()
    drawn.reduce(-(-max(drawn.size) // MOST_PIXELS)).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


# ----------------------------------------------------------------------------------------- signals


def trace(signal: Array) -> Markup:
    """Draw the channels of a signal (channels, length) in one SVG element."""
    channels = np.nan_to_num(signal[:MOST_CHANNELS].astype(np.float64))
    (width, height), low, high = TRACE, float(channels.min()), float(channels.max())
    scale = (height - 4) / (high - low) if high > low else 0.0
    length = channels.shape[1]
    at = np.linspace(0, length - 1, min(length, width)).round().astype(int)
    x = 2 + at * ((width - 4) / max(length - 1, 1))
    lines = []
    for number, channel in enumerate(channels, start=1):
        y = height - 2 - (channel[at] - low) * scale if scale else np.full(len(at), height / 2)
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
        lines.append(f'<polyline points="{points}" style="stroke: var(--s{number})"/>')
    return Markup(f'<svg class="trace" viewBox="0 0 {width} {height}">{"".join(lines)}</svg>')


# ------------------------------------------------------------------------------------------- tables


def decoded(x: Sequence[Array], columns: Columns | None) -> tuple[list[str], list[list[str]]]:
    """Turn instances back into a table: the names of its columns, and the texts of each."""
    numbers = x[0].reshape(len(x[0]), -1)
    codes = x[1] if len(x) > 1 else np.empty((len(numbers), 0), np.int64)
    if columns is None or not _fits(numbers, codes, columns):
        names = [f"x{n}" for n in range(1, numbers.shape[1] + 1)]
        return names, [_alike(values) for values in numbers.T]
    at = {name: k for k, name in enumerate(columns.numeric)}
    gap = {name: len(at) + k for k, name in enumerate(columns.gaps)}
    code = {name: k for k, name in enumerate(columns.categorical)}

    def texts(name: str) -> list[str]:
        if name in code:
            known = ("missing", *columns.categories[name])
            return [known[number] for number in codes[:, code[name]].tolist()]
        shift = columns.means[name] if name in columns.shifted else 0.0
        values = numbers[:, at[name]].astype(np.float64) + shift
        missing = numbers[:, gap[name]] == 1 if name in gap else np.zeros(len(values), bool)
        written = iter(_alike(values[~missing]))
        return ["missing" if is_missing else next(written) for is_missing in missing]

    return list(columns.names), [texts(name) for name in columns.names]


def _fits(numbers: Array, codes: Array, columns: Columns) -> bool:
    if (numbers.shape[1], codes.shape[1:]) != (columns.n_numbers, (len(columns.codes),)):
        return False
    return bool(((codes >= 0) & (codes < columns.codes)).all())


def _alike(values: Array) -> list[str]:
    """Write the numbers of a column with as many decimals each, and no more than tell them.

    Examples
    --------
    >>> _alike(np.array([48.6, 45])), _alike(np.array([38.0, 7])), _alike(np.array([0.123456, -2]))
    (['48.6', '45.0'], ['38', '7'], ['0.1235', '−2.0000'])
    >>> _alike(np.array([1700000000.27, np.nan]))
    ['1,700,000,000.3', '–']
    """
    numbers = [float(value) + 0.0 for value in values]  # no −0
    plain = [number for number in numbers if np.isfinite(number)]
    largest = max(map(abs, plain), default=0.0)
    if largest >= 1e15 or 0 < largest < 1e-3:
        return [f"{n:.4g}".replace("-", "−") if np.isfinite(n) else "–" for n in numbers]
    most = 1 if largest >= 1000 else 4
    decimals = next(
        d for d in range(most + 1) if d == most or all(_same(n, round(n, d)) for n in plain)
    )
    texts = (f"{number:,.{decimals}f}" if np.isfinite(number) else "–" for number in numbers)
    return [text.replace("-", "−") for text in texts]


def _same(number: float, rounded: float) -> bool:
    return abs(number - rounded) <= min(1e-6 * abs(number), 0.05)  # as float32 has it
