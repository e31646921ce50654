"""Read and write a part of a batch, whatever the batch is.

Methods that change inputs or targets work on tuples, named tuples, lists, dictionaries, objects and
anything else a data loader yields. A key says where the part is:

* an index or a name: ``batch[key]``, else the attribute of that name;
* a callable: ``key(batch)`` (reading only);
* a pair of callables: the first reads, the second is called with the batch and the new value;
* a sequence of indices or names: several parts at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import torch

from composer.utils.suggestions import did_you_mean

__all__ = ["batch_get", "batch_set"]

_LOOKUP_ERRORS = (LookupError, TypeError, AttributeError, ValueError)


def batch_get(batch: Any, key: Any) -> Any:
    """Read a part of a batch.

    Args:
        batch: The batch.
        key: An index, a name, a callable, a pair of callables, or a sequence of indices or names.

    Returns:
        The part; for a sequence of keys a tuple of parts.

    Raises:
        ValueError: If the batch has no such part.

    Example:
        >>> batch_get(("image", "label"), 1)
        'label'
        >>> batch_get({"x": 1, "y": 2}, ("y", "x"))
        (2, 1)
        >>> batch_get([3, 4], lambda batch: batch[0])
        3
    """
    kind = type(key)
    if kind is int or kind is str:
        return _get_one(batch, key)
    if _is_pair_of_callables(key):
        return key[0](batch)
    if callable(key):
        return key(batch)
    if not _is_key_sequence(key):
        return _get_one(batch, key)
    # A tensor or an array takes a sequence as an index of its own, and a mapping may have tuple
    # keys.
    if isinstance(batch, torch.Tensor) or (isinstance(batch, Mapping) and _has_key(batch, key)):
        return _get_one(batch, key)
    return tuple(_get_one(batch, one) for one in key)


def batch_set(batch: Any, key: Any, value: Any) -> Any:
    """Replace a part of a batch.

    Lists, mappings and objects are changed in place. Tuples, named tuples and frozen dataclasses
    cannot be, so a new one is built: always go on with the returned batch.

    Args:
        batch: The batch.
        key: An index, a name, a pair of callables, or a sequence of indices or names.
        value: The new part; for a sequence of keys as many values. The second callable of a pair is
            called with the batch and this value and returns the batch (or nothing, if it changed
            the batch in place).

    Returns:
        The batch with the new part.

    Raises:
        ValueError: If the batch has no such part, or the numbers of keys and values differ.
        TypeError: If the key is a single callable, which can only read.

    Example:
        >>> batch_set((1, 2), 1, 20)
        (1, 20)
        >>> batch_set({"x": 1, "y": 2}, ("x", "y"), (10, 20))
        {'x': 10, 'y': 20}
    """
    kind = type(key)
    if kind is int or kind is str:
        return _set_one(batch, key, value)
    if _is_pair_of_callables(key):
        result = key[1](batch, value)
        return batch if result is None else result
    if callable(key):
        raise TypeError(
            f"key={key!r} is one callable and can only read; to write, give a pair (read, write), "
            "where write takes the batch and the new value and returns the batch."
        )
    if not _is_key_sequence(key):
        return _set_one(batch, key, value)
    if isinstance(batch, torch.Tensor) or (isinstance(batch, Mapping) and _has_key(batch, key)):
        return _set_one(batch, key, value)
    if isinstance(value, (str, bytes)) or not isinstance(value, (Sequence, torch.Tensor)):
        raise ValueError(
            f"key={key!r} names {len(key)} parts of the batch, so value must be a sequence of as "
            f"many values, not {type(value).__name__}."
        )
    if len(value) != len(key):
        raise ValueError(
            f"key={key!r} names {len(key)} parts of the batch, value has {len(value)}."
        )
    # All parts are looked up first, so that a wrong key leaves the batch as it was.
    for one in key:
        _get_one(batch, one)
    for one, part in zip(key, value, strict=True):
        batch = _set_one(batch, one, part)
    return batch


def _is_pair_of_callables(key: Any) -> bool:
    return (
        isinstance(key, (tuple, list)) and len(key) == 2 and callable(key[0]) and callable(key[1])
    )


def _is_key_sequence(key: Any) -> bool:
    return isinstance(key, Sequence) and not isinstance(key, (str, bytes))


def _has_key(batch: Mapping[Any, Any], key: Any) -> bool:
    try:
        return key in batch
    except TypeError:
        return False


def _get_one(batch: Any, key: Any) -> Any:
    try:
        return batch[key]
    except _LOOKUP_ERRORS as error:
        if isinstance(key, str):
            try:
                value = batch
                for name in key.split("."):
                    value = getattr(value, name)
                # The methods of a mapping are no parts of the batch.
                if not (isinstance(batch, (Mapping, Sequence)) and callable(value)):
                    return value
            except AttributeError:
                pass
        _raise_missing(batch, key, error)


def _set_one(batch: Any, key: Any, value: Any) -> Any:
    if isinstance(batch, tuple):
        return _set_in_tuple(batch, key, value)
    if isinstance(batch, Mapping):
        if _has_key(batch, key):
            try:
                batch[key] = value  # type: ignore[index]
            except TypeError:
                return {**batch, key: value}
            return batch
        _get_one(batch, key)
        return _set_attribute(batch, key, value)
    if isinstance(key, str) and not isinstance(batch, (list, torch.Tensor)):
        # An object that also offers item access is written the way it was read.
        try:
            batch[key]
        except _LOOKUP_ERRORS:
            _get_one(batch, key)
            return _set_attribute(batch, key, value)
    try:
        batch[key] = value
    except _LOOKUP_ERRORS as error:
        _raise_missing(batch, key, error)
    return batch


def _set_in_tuple(batch: tuple[Any, ...], key: Any, value: Any) -> Any:
    fields = getattr(type(batch), "_fields", None)
    if isinstance(key, str) and fields is not None and key in fields:
        return batch._replace(**{key: value})  # type: ignore[attr-defined]
    items = list(batch)
    try:
        items[key] = value
    except _LOOKUP_ERRORS as error:
        _raise_missing(batch, key, error)
    if len(items) != len(batch):
        raise ValueError(
            f"key={key!r} with {len(value)} values would change the batch from {len(batch)} parts "
            f"to {len(items)}."
        )
    return type(batch)(*items) if fields is not None else type(batch)(items)


def _set_attribute(batch: Any, key: str, value: Any) -> Any:
    *parents, last = key.split(".")
    owner = batch
    for name in parents:
        owner = getattr(owner, name)
    try:
        setattr(owner, last, value)
    except dataclasses.FrozenInstanceError:
        if owner is batch:
            return dataclasses.replace(batch, **{last: value})
        raise
    return batch


def _raise_missing(batch: Any, key: Any, error: Exception) -> NoReturn:
    hint = ""
    kind = type(batch).__name__
    fields = getattr(type(batch), "_fields", None)
    if isinstance(batch, Mapping):
        names = list(map(str, batch))
        holds = f"a {kind} with the keys {names}"
    elif fields is not None:
        names = list(fields)
        holds = f"a {kind} with the fields {names}"
    elif isinstance(batch, torch.Tensor):
        names = []
        holds = f"a tensor of shape {tuple(batch.shape)}"
    elif isinstance(batch, Sequence):
        names = []
        holds = f"a {kind} with {len(batch)} parts"
    else:
        names = [name for name in getattr(batch, "__dict__", {}) if not name.startswith("_")]
        holds = f"a {kind} with the attributes {names}" if names else f"a {kind}"
    if isinstance(key, str):
        hint = did_you_mean(key, names)
    raise ValueError(f"key={key!r} is not in the batch, which is {holds}.{hint}") from error
