"""Reads files that hold arrays of NumPy and wall clocks, without running anything in them.

NumPy's own functions for rebuilding arrays are not let near a file: stand-ins take their place, and
they take numbers only.
"""

from __future__ import annotations

import datetime
import pickle
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

__all__ = ["foreign_classes", "load_harmless"]

_NUMBERS = {f"{kind}{size}" for kind, sizes in (("i", "1248"), ("u", "1248"), ("f", "248"),
            ("c", "8")) for size in sizes} | {"b1", "c16"}  # fmt: skip
_READING = threading.Lock()


class _Dtype:
    """Stands in for the type of an array."""

    def __init__(self, code: str, *_: Any) -> None:
        if code not in _NUMBERS:
            raise pickle.UnpicklingError(f"it holds an array of type {code!r}")
        self.code = code
        self.order = "="

    def __setstate__(self, state: Sequence[Any]) -> None:
        if state[1] not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError(f"it holds an array of byte order {state[1]!r}")
        self.order = state[1]

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.order.replace("|", "") + self.code)


class _Array:
    """Stands in for an array of numbers."""

    value: np.ndarray[Any, Any]

    def __setstate__(self, state: Sequence[Any]) -> None:
        _, shape, dtype, by_columns, data = state
        if not isinstance(dtype, _Dtype) or not isinstance(data, bytes):
            raise pickle.UnpicklingError("it holds an array of something else than numbers")
        flat = np.frombuffer(data, dtype=dtype.numpy)
        self.value = flat.reshape(shape, order="F" if by_columns else "C")

    @property
    def tensor(self) -> torch.Tensor:
        value = self.value
        if value.dtype.kind == "u" and value.dtype.itemsize > 1:
            value = value.astype(np.int64)
        return torch.from_numpy(value.astype(value.dtype.newbyteorder("="), copy=True))


def _new_array(kind: Any, *_: Any) -> _Array:
    if kind is not _Array:
        raise pickle.UnpicklingError("it holds an array of an unknown kind")
    return _Array()


def _new_scalar(dtype: Any, data: Any) -> Any:
    if not isinstance(dtype, _Dtype) or not isinstance(data, bytes):
        raise pickle.UnpicklingError("it holds a NumPy scalar that is no number")
    return np.frombuffer(data, dtype=dtype.numpy)[0].item()


def _no_bytes() -> bytes:
    return b""  # how the data of an empty array is written


def _stand_ins() -> list[Any]:
    found: list[Any] = [
        datetime.timedelta,
        (str, "torch.torch_version.TorchVersion"),
        (_Array, "numpy.ndarray"),
        (_Dtype, "numpy.dtype"),
        (_no_bytes, "builtins.bytes"),
        (_no_bytes, "__builtin__.bytes"),
    ]
    for home in ("numpy.core.multiarray", "numpy._core.multiarray"):
        found += [(_new_array, f"{home}._reconstruct"), (_new_scalar, f"{home}.scalar")]
    return found


def _plain(value: Any) -> Any:
    """Replace the stand-ins, and containers' own classes, by plain types."""
    if isinstance(value, _Array):
        return value.tensor
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(item) for item in value)
    if isinstance(value, _Dtype):
        raise pickle.UnpicklingError("it holds the type of an array without the array")
    return value


def load_harmless(path: str | Path, map_location: str = "cpu", *, mmap: bool = True) -> Any:
    """Read a file that holds arrays of numbers and wall clocks beside plain types.

    Args:
        path: The file.
        map_location: Where tensors go.
        mmap: Whether to map the file instead of reading it whole.

    Returns:
        What the file holds: arrays as tensors, clocks as seconds.

    Raises:
        pickle.UnpicklingError: If it holds anything else; the error names the classes.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/a.pt"
        >>> torch.save({"keys": np.array([1, 2], dtype=np.uint32)}, path)
        >>> load_harmless(path)
        {'keys': tensor([1, 2])}
    """
    with _READING:  # torch keeps the list of allowed classes for the whole process
        try:
            with torch.serialization.safe_globals(_stand_ins()):
                found = torch.load(path, map_location=map_location, weights_only=True, mmap=mmap)
        except pickle.UnpicklingError as error:
            classes = foreign_classes(path)
            if not classes:
                raise
            raise pickle.UnpicklingError(f"It asks for {', '.join(classes)}") from error
    return _plain(found)


def foreign_classes(path: str | Path) -> list[str]:
    """Name what a file would have to run or build beside plain types, without doing so.

    Args:
        path: A file of torch.

    Returns:
        Full names of classes and functions, sorted.

    Example:
        >>> import collections, tempfile
        >>> path = tempfile.mkdtemp() + "/a.pt"
        >>> torch.save(collections.ChainMap(), path)
        >>> foreign_classes(path)
        ['collections.ChainMap']
    """
    known = {entry[1] for entry in _stand_ins() if isinstance(entry, tuple)}
    known.add("datetime.timedelta")
    try:
        found = torch.serialization.get_unsafe_globals_in_checkpoint(str(path))
    except Exception:  # a damaged file can fail anywhere in it
        return []
    return sorted(set(found) - known)
