"""The instances that a model is least sure of, as pictures, traces, or rows of a table."""

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
from apportion.runs.evaluation import Unsure

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


class Examples(NamedTuple):
    """Examples of one set of bags, and how they are shown."""

    of: str  # "train", "valid" or "test"
    kind: str  # "images", "signals" or "table"
    shown: Sequence[Example]
    remark: str = ""
    header: Sequence[tuple[str, bool]] = ()  # a table's columns; whether numbers


def unsure_examples(run: RunRead) -> Examples | None:
    """Show the instances that the model is least sure of, in held-out bags if there are any."""
    of = run.held_out
    if of is None or not len(run.evaluations[of].unsure.rows) or not run.evaluations[of].unsure.x:
        return None
    unsure = run.evaluations[of].unsure
    x, axes = unsure.x, unsure.x[0].ndim
    if axes == 4 or (axes == 3 and run.config.get("data", {}).get("kind") == "images"):
        images = [picture(image) for image in _scaled(_channels_last(x[0]))]
        return Examples(of, "images", _examples(run, of, images))
    if axes == 3:
        lengths = x[1] if len(x) > 1 and x[1].ndim == 1 else np.full(len(x[0]), x[0].shape[2])
        pairs = zip(x[0], lengths.tolist(), strict=True)
        traces = [trace(signal[:, : max(int(n), 1)]) for signal, n in pairs]
        remark = _first(MOST_CHANNELS, x[0].shape[1], "channels")
        return Examples(of, "signals", _examples(run, of, traces), remark)
    names, rows = decoded(unsure, run.columns)
    texts = () if run.columns is None else run.columns.categorical
    header = [(name, name not in texts) for name in names[:MOST_COLUMNS]]
    remark = _first(MOST_COLUMNS, len(names), "columns")
    values = [row[:MOST_COLUMNS] for row in rows]
    return Examples(of, "table", _examples(run, of, values), remark, header)


def _first(most: int, n: int, what: str) -> str:
    return f"The first {most} of {n:,} {what}." if n > most else ""


def _examples(run: RunRead, of: str, shown: Sequence[Any]) -> list[Example]:
    ids, unsure, found = run.evaluations[of].ids, run.evaluations[of].unsure, []
    for k, own in enumerate(shown):
        likeliest = np.argsort(-unsure.confidence[k], kind="stable")[:2].tolist()
        guesses = [(run.classes[c], percent(unsure.confidence[k, c])) for c in likeliest]
        known = unsure.truth is not None and unsure.truth[k] >= 0
        truth = run.classes[unsure.truth[k]] if known else None  # type: ignore[index]
        found.append(Example(str(ids[unsure.bags[k]]), int(unsure.rows[k]), guesses, truth, own))
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


def decoded(unsure: Unsure, columns: Columns | None) -> tuple[list[str], list[list[str]]]:
    """Turn instances back into rows of their table: the names of its columns, and texts."""
    numbers = unsure.x[0].reshape(len(unsure.rows), -1)
    codes = unsure.x[1] if len(unsure.x) > 1 else np.empty((len(numbers), 0), np.int64)
    if columns is None or not _fits(numbers, codes, columns):
        return [f"x{n}" for n in range(1, numbers.shape[1] + 1)], [
            [_short(value) for value in row] for row in numbers
        ]
    at = {name: k for k, name in enumerate(columns.numeric)}
    gap = {name: len(at) + k for k, name in enumerate(columns.gaps)}
    code = {name: k for k, name in enumerate(columns.categorical)}

    def text(row: int, name: str) -> str:
        if name in code:
            number = int(codes[row, code[name]])
            return "missing" if number == 0 else columns.categories[name][number - 1]
        if name in gap and numbers[row, gap[name]] == 1:
            return "missing"
        shift = columns.means[name] if name in columns.shifted else 0.0
        return _short(float(numbers[row, at[name]]) + shift)

    return list(columns.names), [[text(k, n) for n in columns.names] for k in range(len(numbers))]


def _fits(numbers: Array, codes: Array, columns: Columns) -> bool:
    if (numbers.shape[1], codes.shape[1:]) != (columns.n_numbers, (len(columns.codes),)):
        return False
    return bool(((codes >= 0) & (codes < columns.codes)).all())


def _short(value: Any) -> str:
    """Write a number in few digits, whole ones in all of theirs.

    Examples
    --------
    >>> _short(38.0), _short(48.6), _short(0.123456), _short(1700000000.27)
    ('38', '48.6', '0.1235', '1,700,000,000.3')
    """
    number = float(value) + 0.0  # no −0
    if not np.isfinite(number):
        return "–"
    whole = ",.0f" if number.is_integer() else ",.1f" if abs(number) >= 1000 else ".4g"
    digits = whole if abs(number) < 1e15 else ".4g"
    return f"{number:{digits}}".replace("-", "−")
