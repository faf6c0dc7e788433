"""Signals of unequal length in bags: frames that are padded to one length, and how many are real.

What they become, frames (M, channels, length) and lengths (M,), is what the net "conv1d" takes; it
sees real frames only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from apportion.bags.bags import Bags
from apportion.bags.read import Placed, factorize
from apportion.data._cells import numbers_written, unmixed
from apportion.data._frames import check_channels, ranks_in_time, tell_padding, tell_ties
from apportion.data._named import agreed, names_in, put, read_columns
from apportion.data.dialect import FormatOptions, formats
from apportion.data.pieces import Pieces, Rows, named
from apportion.data.proportions import read_proportions
from apportion.data.tables import split_bags
from apportion.errors import DataError, Option, comma_list

__all__ = ["pad", "read_signal_sets", "read_signals"]

Frames = NDArray[np.float32]
Ints = NDArray[np.int64]

SHAPE = "Pass numbers of shape (frames, channels)."


def pad(frames: Sequence[ArrayLike], length: int | None = None) -> tuple[Frames, Ints]:
    """Put signals into one array, with zeros behind them.

    Parameters
    ----------
    frames : sequence of M arrays of shape (frames, channels), or (frames,) for one channel
        The first axis is time. Signals may differ in length, but have at least one frame.
    length : int, optional
        To how many frames to pad; by default those of the longest signal.

    Returns
    -------
    frames : ndarray of float32 of shape (M, channels, length)
    lengths : ndarray of int64 of shape (M,)
        How many frames of each signal are real.

    Examples
    --------
    >>> frames, lengths = pad([[[1, 10], [2, 20], [3, 30]], [[4, 40]]])
    >>> frames[1]
    array([[ 4.,  0.,  0.],
           [40.,  0.,  0.]], dtype=float32)
    >>> lengths
    array([3, 1])
    """
    signals = [_as_signal(i, given) for i, given in enumerate(frames)]
    if not signals:
        raise DataError("there are 0 signals.", "Pass at least one.")
    n_channels = signals[0].shape[1]
    lengths = np.array([len(signal) for signal in signals], dtype=np.int64)
    longest = int(lengths.argmax())
    if length is None:
        length = int(lengths[longest])
    elif length < lengths[longest]:
        raise DataError(
            f"signal {longest} has {lengths[longest]:,} frames, and length is {length:,}.",
            f"length must be at least {lengths[longest]:,}; or cut the signal.",
        )
    tell_padding("", lengths, range(len(lengths)))
    padded = np.zeros((len(signals), n_channels, length), np.float32)
    for i, signal in enumerate(signals):
        if signal.shape[1] != n_channels:
            raise DataError(
                f"signal {i} has {signal.shape[1]} channels, but signal 0 has {n_channels}.",
                "All must have the same channels; the first axis is time, so transpose arrays of "
                "shape (channels, frames).",
            )
        padded[i, :, : len(signal)] = signal.T
    return padded, lengths


def _as_signal(i: int, given: ArrayLike) -> Frames:
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise DataError(f"signal {i} is no array: {error}.", SHAPE) from error
    if array.ndim not in (1, 2) or array.dtype.kind not in "fiub":
        raise DataError(f"signal {i} is of shape {array.shape} and type {array.dtype}.", SHAPE)
    if not array.size:
        raise DataError(
            f"signal {i} has 0 frames or channels: it is of shape {array.shape}.",
            "Leave it out: a signal has at least one frame.",
        )
    array = array.reshape(len(array), -1)
    with np.errstate(over="ignore"):  # what is too large for float32 is found below
        signal: Frames = array.astype(np.float32)
    bad = ~np.isfinite(signal)
    if bad.any():
        frame, channel = np.argwhere(bad)[0]
        raise DataError(
            f"signal {i} is {array[frame, channel]:g} in frame {frame}, channel {channel}, and not "
            f"finite in float32 in {bad.sum():,} of {bad.size:,} places.",
            "Replace such values, or leave the frames out.",
        )
    return signal


def read_signals(
    rows: Rows | Pieces,
    *,
    signal: str,
    bag: str,
    proportions: Any = None,
    counts: bool = False,
    normalize: bool = False,
    label: str | None = None,
    order: str | None = None,
    channels: Sequence[str] | None = None,
    skip_unplaced: bool = False,
    **form: Unpack[FormatOptions],
) -> Bags:
    """Read signals from a table that has one row per frame, and put them in bags.

    The instances are the padded frames (M, channels, length) and the lengths (M,), as of `pad`.
    Signals come in the order in which they begin.

    Parameters
    ----------
    rows : path of a table, or a frame, as in `apportion.read_table`
        One row per frame.
    signal, bag : str
        The columns of the ids of signals, and of their bags.
    proportions : dict, Series, frame or path of a table, optional
        The proportions of the classes by bag: a file has a column that is called `bag`, and a
        column per class. Without it, the labels of the signals are counted.
    counts, normalize : bool
        As in `Bags.from_rows`.
    label : str, optional
        The column of classes, for evaluation only if there are proportions.
    order : str, optional
        The column, such as one of times, by which the frames of a signal are sorted: numbers,
        dates, or text that sorts as the numbers in it do (frame_02 before frame_10). By default,
        and where it ties, they are in the order of the rows.
    channels : sequence of str, optional
        The columns of the channels, in this order; by default all other columns.
    skip_unplaced : bool
        Whether signals without a bag, or of a bag that `proportions` do not have, are left out.
    sep, decimal, encoding, sheet : str, optional
        The format of the file of rows, as in `apportion.read_table`.
    proportions_sep, proportions_decimal, proportions_encoding, proportions_sheet : str, optional
        The same of the table of proportions.

    Examples
    --------
    >>> rows = pd.DataFrame(
    ...     {"word": [7, 7, 8], "speaker": ["ann", "ann", "ann"], "pitch": [1.0, 2.0, 3.0]}
    ... )
    >>> bags = read_signals(rows, signal="word", bag="speaker", proportions={"ann": [0.5, 0.5]})
    >>> frames, lengths = bags.x
    >>> frames.tolist(), lengths
    ([[[1.0, 2.0]], [[3.0, 0.0]]], array([2, 1]))
    """
    columns = [signal, bag, *([] if label is None else [label])]
    of_rows, of_proportions = formats(**form)
    may_miss = [label, *([bag] if skip_unplaced else [])]
    pieces, frame = read_columns(
        rows, columns, values=order, others=True, may_miss=may_miss, form=of_rows
    )
    source = pieces.source
    if channels is None:
        channels = named((name for name in pieces.names if name not in (*columns, order)), source)
    pieces.check_columns(channels)
    if not channels:
        raise DataError(
            f"{source} has 0 columns beside {', '.join(map(repr, columns))}.",
            "Add one column per channel.",
        )
    names = frame[signal].tolist()
    table = None if proportions is None else read_proportions(proportions, bag, form=of_proportions)
    bag_of = agreed(source, "signal", names, "bag", names_in(pieces, frame[bag], table))
    truth = None
    if label is not None:
        labels = agreed(source, "signal", names, "label", names_in(pieces, frame[label], table))
        truth = factorize(labels.values(), "label", len(labels), missing=None)
    values = _read_channels(pieces, frame[list(channels)], names)

    place = {name: i for i, name in enumerate(bag_of)}
    number = np.fromiter((place[name] for name in names), np.int64, len(names))
    sequence = np.argsort(number, kind="stable")
    if order is not None:
        keys = ranks_in_time(source, order, _unwritten(pieces, frame[order])[0])
        sequence = np.lexsort((keys, number))
        tell_ties(source, order, keys[sequence], number[sequence], list(bag_of))
    lengths: Ints = np.bincount(number).astype(np.int64)
    tell_padding(f"{source}: ", lengths, list(bag_of))
    position = np.arange(len(number)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    frames = np.zeros((len(lengths), len(channels), int(lengths.max())), np.float32)
    frames[number[sequence], :, position] = values[sequence]
    placed = Placed(*factorize(bag_of.values(), "bag id", len(bag_of), missing=None))
    how: dict[str, Any] = {"counts": counts, "normalize": normalize, "truth": truth}
    bags = put(pieces, placed, table, **how, skip_unplaced=skip_unplaced)
    check_channels(source, bags, values, number, list(map(str, channels)))
    return bags.with_rows((frames, lengths))


def read_signal_sets(
    rows: Any, validation: float | None, seed: int, *, bag: str, proportions: Any, **options: Any
) -> dict[str, Bags]:
    """Read signals to train on, to select by and to test on, as `apportion.read_sets` does.

    Those of each set are padded to their own length. Further options are those of `read_signals`.
    """
    form = {name: value for name, value in options.items() if name in FormatOptions.__annotations__}
    of_proportions = formats(**form)[1]
    table = None if proportions is None else read_proportions(proportions, bag, form=of_proportions)
    bags = read_signals(rows, bag=bag, proportions=table, **options)
    sets, (frames, lengths) = split_bags(bags, table, validation, seed), bags.parts
    for name, own in sets.items():
        longest = int(lengths[own.index].max())
        if longest < frames.shape[2]:
            # A view of the frames; signals of other sets, which are not used, are cut.
            sets[name] = own.with_rows((frames[..., :longest], np.minimum(lengths, longest)))
    return sets


def _read_channels(pieces: Pieces, frame: pd.DataFrame, names: Sequence[Any]) -> Frames:
    values = np.empty(frame.shape, np.float32)
    for j, channel in enumerate(frame.columns):
        cells = frame[channel]
        read, percent = _unwritten(pieces, cells)
        numbers = pd.to_numeric(read, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        with np.errstate(over="ignore"):  # what is too large for float32 is found below
            values[:, j] = numbers
        # Dates are not numbers; and nothing would keep that a channel has percent signs.
        bad = ~np.isfinite(values[:, j]) | (cells.dtype.kind in "mM") | percent
        if bad.any():
            row = int(bad.argmax())
            (cell,) = cells.iloc[[row]].tolist()
            raise DataError(
                f"{pieces.source}: signal {names[row]!r} has {cell!r} in row {row:,} (counted "
                f"from 0), column {str(channel)!r}, where {bad.sum():,} of {len(bad):,} are not "
                "numbers that float32 can hold.",
                (
                    "Fill them in, leave these rows out, or learn without the column: ",
                    Option("channels", "[…]", comma_list([str(channel)])),
                    ". All columns but those of signal, bag, label and order are channels.",
                ),
            )
    return values


def _unwritten(pieces: Pieces, cells: pd.Series[Any]) -> tuple[pd.Series[Any], Any]:
    """Return numbers in place of texts of a text or Excel file, and which have percent signs."""
    if pieces.decimal is None:
        return cells, False
    written = numbers_written(cells, pieces.decimal)
    return (unmixed(cells), False) if written is None else (written.cells, written.percent)
