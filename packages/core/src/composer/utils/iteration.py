"""Small helpers for arguments that may be one thing or many, and for nested collections."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = [
    "IteratorFileStream",
    "ensure_tuple",
    "flatten_values",
    "iterate_with_callback",
    "map_collection",
]


def ensure_tuple(x: Any) -> tuple[Any, ...]:
    """Turn an argument that may be nothing, one thing or many into a tuple.

    Args:
        x: ``None`` gives an empty tuple, a sequence its items, a mapping its values. Strings,
            bytes and everything else are one item.

    Returns:
        The items.

    Example:
        >>> ensure_tuple(None), ensure_tuple("ab"), ensure_tuple([1, 2]), ensure_tuple({"a": 3})
        ((), ('ab',), (1, 2), (3,))
    """
    if x is None:
        return ()
    if isinstance(x, (str, bytes, bytearray)):
        return (x,)
    if isinstance(x, Sequence):
        return tuple(x)
    if isinstance(x, Mapping):
        return tuple(x.values())
    return (x,)


def map_collection(collection: Any, map_fn: Callable[[Any], Any]) -> Any:
    """Apply a function to every leaf of nested tuples, lists and mappings.

    Args:
        collection: Tuples (named ones too), lists and mappings are walked and rebuilt in their own
            type; anything else, strings included, is a leaf.
        map_fn: Called with each leaf.

    Returns:
        A collection of the same shape.

    Example:
        >>> map_collection({"a": [1, (2, 3)]}, lambda x: x * 10)
        {'a': [10, (20, 30)]}
    """
    if isinstance(collection, (tuple, list)):
        items = [map_collection(item, map_fn) for item in collection]
        return rebuild_sequence(collection, items)
    if isinstance(collection, Mapping):
        values = {key: map_collection(value, map_fn) for key, value in collection.items()}
        return rebuild_mapping(collection, values)
    return map_fn(collection)


def flatten_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Give every number in nested mappings and sequences a name of its own.

    Args:
        values: Name to number, or to mappings and sequences of numbers of any depth. Arrays and
            tensors of one element are numbers; larger ones are sequences.

    Returns:
        Name to number. What stands inside a value has its key or place added with a slash.

    Example:
        >>> flatten_values({"mAP": {"a": 1.0, "b": [2.0, 3.0]}, "loss": 0.5})
        {'mAP/a': 1.0, 'mAP/b/0': 2.0, 'mAP/b/1': 3.0, 'loss': 0.5}
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        _flatten(str(name), value, flat)
    return flat


def _flatten(name: str, value: Any, flat: dict[str, Any]) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _flatten(f"{name}/{key}", item, flat)
    elif isinstance(value, (list, tuple)) or (_number_of_elements(value) not in (None, 1)):
        for place, item in enumerate(value):
            _flatten(f"{name}/{place}", item, flat)
    else:
        flat[name] = value


def _number_of_elements(value: Any) -> int | None:
    """How many elements an array or tensor has; ``None`` for anything else."""
    shape = getattr(value, "shape", None)
    return math.prod(shape) if isinstance(shape, tuple) else None


def rebuild_sequence(like: Any, items: Sequence[Any]) -> Any:
    """Build a tuple, named tuple or list of the type of another one.

    Args:
        like: The collection whose type is wanted.
        items: The new items.

    Returns:
        The items in a collection of that type.

    Example:
        >>> rebuild_sequence((1, 2), [3, 4])
        (3, 4)
    """
    kind = type(like)
    if isinstance(like, tuple) and getattr(kind, "_fields", None) is not None:
        return kind(*items)
    return kind(items)


def rebuild_mapping(like: Mapping[Any, Any], values: dict[Any, Any]) -> Any:
    """Build a mapping of the type of another one.

    Args:
        like: The mapping whose type is wanted. It is not changed.
        values: The new values, under the same keys.

    Returns:
        The values in a mapping of that type, or in a plain dictionary if the type cannot be
        rebuilt.

    Example:
        >>> from collections import Counter
        >>> rebuild_mapping(Counter(a=1), {"a": 2})
        Counter({'a': 2})
    """
    if type(like) is dict:
        return values
    # A shallow copy keeps what the mapping holds beside its items, such as a default factory.
    import copy
    from collections.abc import MutableMapping

    if not isinstance(like, MutableMapping):
        return values
    rebuilt = copy.copy(like)
    for key, value in values.items():
        rebuilt[key] = value
    return rebuilt


class IteratorFileStream(io.RawIOBase):
    """A readable binary stream over an iterator of byte chunks.

    Args:
        iterator: Yields chunks of any size.

    Example:
        >>> io.BufferedReader(IteratorFileStream(iter([b"ab", b"cde"]))).read()
        b'abcde'
    """

    def __init__(self, iterator: Iterable[bytes]) -> None:
        self.leftover = b""
        self.iterator = iter(iterator)

    def readinto(self, b: WriteableBuffer) -> int:
        """Fill a buffer with the next bytes.

        Args:
            b: The buffer.

        Returns:
            How many bytes were written; 0 at the end.

        Example:
            >>> buffer = bytearray(4)
            >>> IteratorFileStream(iter([b"ab"])).readinto(buffer)
            2
        """
        view = memoryview(b).cast("B")
        chunk = self.leftover
        # An empty chunk is no end of the stream, so go on to the next one.
        while not chunk:
            try:
                chunk = next(self.iterator)
            except StopIteration:
                return 0
        count = min(len(view), len(chunk))
        view[:count] = chunk[:count]
        self.leftover = chunk[count:]
        return count

    def readable(self) -> bool:
        """Tell that this stream can be read.

        Returns:
            Always true.

        Example:
            >>> IteratorFileStream(iter([])).readable()
            True
        """
        return True


def iterate_with_callback(
    iterator: Iterable[bytes],
    total_len: int,
    callback: Callable[[int, int], None] | None = None,
) -> Iterator[bytes]:
    """Pass chunks through and report how many bytes went by.

    Args:
        iterator: Yields chunks.
        total_len: The number of bytes expected in all, handed on to the callback.
        callback: Called with the bytes so far and ``total_len``: once before the first chunk and
            after every chunk.

    Yields:
        The chunks.

    Example:
        >>> seen = []
        >>> for chunk in iterate_with_callback([b"ab", b"c"], 3, lambda *now: seen.append(now)):
        ...     pass
        >>> seen
        [(0, 3), (2, 3), (3, 3)]
    """
    num_bytes = 0
    if callback is not None:
        callback(0, total_len)
    for chunk in iterator:
        num_bytes += len(chunk)
        yield chunk
        if callback is not None:
            callback(num_bytes, total_len)
