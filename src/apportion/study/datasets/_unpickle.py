"""Read pickles of plain values without trusting them.

A pickle is a program: whoever writes it may have any function called. Here a file can name nothing
but what arrays of bytes are made of, and even those names lead to the stand-ins below: numpy's own
would take from a file the flags of a dtype, with which bytes can pass for pointers.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray


class PickledDtype:
    """Stands in for numpy.dtype."""

    def __init__(self, code: str | bytes, *_: Any) -> None:
        self.code = code.decode() if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:
        """Leave the byte order and the rest alone: single bytes have none."""


class PickledArray:
    """Stands in for an array, which pickles make empty at first, and then fill."""

    content: NDArray[np.uint8] = np.empty(0, np.uint8)

    def __init__(self, *_: Any) -> None:
        """Take no notice of what numpy would need."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, by_columns, content = state
        self.fill(content, dtype, shape, "F" if by_columns else "C")

    def fill(self, content: bytes | bytearray, dtype: Any, shape: Any, order: Any) -> None:
        """Take the content of the array."""
        if not isinstance(dtype, PickledDtype) or dtype.code != "u1":
            kind = getattr(dtype, "code", dtype)
            raise pickle.UnpicklingError(f"it has an array of {kind!r}, not of bytes ('u1')")
        self.content = np.frombuffer(content, np.uint8).reshape(shape, order=order)


class PickledBuffer(PickledArray):
    """Stands in for an array of protocol 5, which is made and filled at once."""

    def __init__(self, content: bytes | bytearray, dtype: Any, shape: Any, order: Any) -> None:
        self.fill(content, dtype, shape, order)


class ArrayType:
    """Stands in for numpy.ndarray, which pickles hand on but need not call."""


STAND_INS: dict[tuple[str, str], type] = {
    ("numpy", "ndarray"): ArrayType,
    ("numpy", "dtype"): PickledDtype,
    ("numpy.core.multiarray", "_reconstruct"): PickledArray,  # up to numpy 1
    ("numpy._core.multiarray", "_reconstruct"): PickledArray,  # from numpy 2
    ("numpy.core.numeric", "_frombuffer"): PickledBuffer,
    ("numpy._core.numeric", "_frombuffer"): PickledBuffer,
}


class PlainUnpickler(pickle.Unpickler):
    """Makes containers, texts, numbers and stand-ins for arrays of bytes; refuses other names."""

    def find_class(self, module: str, name: str) -> type:
        """Return the stand-in for a name, never what the name stands for."""
        if (module, name) not in STAND_INS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is refused")
        # A pickle can set attributes of what it names. Of a new class, nobody else sees them.
        return type(name, (STAND_INS[module, name],), {})


def unpickle_plain(content: bytes) -> Any:
    """Read a pickle, with the text of Python 2 as bytes; arrays come as `PickledArray`.

    Raises
    ------
    Exception
        Of any kind, if the pickle is damaged; `pickle.UnpicklingError`, which says the name, if
        it asks for something else.

    Examples
    --------
    >>> unpickle_plain(pickle.dumps({"labels": [3, 8]}))
    {'labels': [3, 8]}
    >>> unpickle_plain(pickle.dumps(np.eye(2, dtype=np.uint8))).content
    array([[1, 0],
           [0, 1]], dtype=uint8)
    >>> unpickle_plain(pickle.dumps(print))
    Traceback (most recent call last):
    _pickle.UnpicklingError: it asks for builtins.print, which is refused
    """
    return PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
