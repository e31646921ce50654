"""Batches of sequences, brought to a shorter length: cut, or split into more rows.

Which members of a batch are sequences is told by their second dimension, so any mapping will do.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

__all__ = ["check_keys", "cut_rows", "sequence_members", "split_rows"]

#: Members that tell the length of the sequences, where a batch has one of them.
_TELLING = ("input_ids", "inputs_embeds", "attention_mask")


def check_keys(keys: Any) -> None:
    """Refuse what are no names of members.

    Args:
        keys: A sequence of keys, or ``None``.

    Raises:
        TypeError: If it is something else.

    Example:
        >>> check_keys(["input_ids"])
    """
    if keys is not None and (isinstance(keys, str) or not isinstance(keys, Sequence)):
        raise TypeError(f"keys={keys!r} must be a sequence of keys of the batch, or None")
    if keys is not None and not keys:
        raise TypeError(f"keys={keys!r} must name at least one member, or be None for all")


def sequence_members(
    owner: str, batch: Any, keys: Sequence[Any] | None = None
) -> tuple[int, list[Any]]:
    """Find the members of a batch that hold sequences.

    Args:
        owner: Who asks, for errors.
        batch: A mapping.
        keys: Which members they are. By default all tensors whose second dimension is that of
            ``input_ids``, ``inputs_embeds`` or ``attention_mask``; in a batch without these, the
            second dimension that most members share, and the longest of several.

    Returns:
        The length of the sequences, and the keys of the members.

    Raises:
        TypeError: If the batch is no mapping.
        ValueError: If it has no sequences, or the named ones differ in length.

    Example:
        >>> batch = {"x": torch.zeros(3, 9), "y": torch.zeros(3), "z": torch.zeros(3, 9, 2)}
        >>> sequence_members("Some", batch)
        (9, ['x', 'z'])
    """
    if not isinstance(batch, Mapping):
        raise TypeError(
            f"{owner} works on batches that are mappings, and this one is a "
            f"{type(batch).__name__}; let the loader yield dictionaries, as a tokenizer does"
        )
    tensors = {k: v for k, v in batch.items() if isinstance(v, torch.Tensor) and v.ndim > 1}
    if keys is not None:
        missing = [key for key in keys if key not in tensors]
        lengths = {key: tensors[key].shape[1] for key in keys if key in tensors}
        if missing or len(set(lengths.values())) > 1:
            raise ValueError(
                f"keys={list(keys)!r} must name tensors of shape (N, T, ...) with one T; the batch "
                f"has {_shapes(batch)}"
            )
        return next(iter(lengths.values())), list(keys)
    if not tensors:
        raise ValueError(
            f"{owner} found no sequences, tensors of shape (N, T, ...), in a batch with "
            f"{_shapes(batch)}"
        )
    telling = next((key for key in _TELLING if key in tensors), None)
    if telling is not None:
        length = tensors[telling].shape[1]
    else:
        counts = Counter(tensor.shape[1] for tensor in tensors.values())
        length = max(counts, key=lambda size: (counts[size], size))
    return length, [key for key, tensor in tensors.items() if tensor.shape[1] == length]


def cut_rows(
    batch: Any, keys: Sequence[Any], length: int, *, ends: torch.Tensor | None = None
) -> Any:
    """Keep the first positions of every sequence.

    Args:
        batch: The batch, which stays as it is.
        keys: The members that hold sequences.
        length: How many positions to keep.
        ends: Of shape (N,), the position of each sample's last token, which is moved to the last
            kept place if it would be lost; in all members alike.

    Returns:
        A batch of the same kind.

    Example:
        >>> cut_rows({"x": torch.tensor([[1, 5, 6, 2]])}, ["x"], 2, ends=torch.tensor([3]))
        {'x': tensor([[1, 2]])}
    """
    # A view would keep the whole batch in memory, and be written into below.
    copied = torch.contiguous_format
    new = {key: batch[key][:, :length].clone(memory_format=copied) for key in keys}
    if ends is not None:
        rows, places = torch.arange(len(ends), device=ends.device), ends.clamp(max=length - 1)
        for key, cut in new.items():
            # All are on one device, unless a loader has it otherwise.
            row, old, place = (index.to(cut.device) for index in (rows, ends, places))
            cut[row, place] = batch[key][row, old]
    return _with(batch, new)


def split_rows(owner: str, batch: Any, keys: Sequence[Any], length: int) -> Any:
    """Make more rows of fewer positions, of the same tokens in the same order.

    Where the length does not divide that of the sequences, a row may hold the end of one sample and
    the beginning of the next, and what does not fill a row at the end of the batch is left out.
    Else members with something per sample are repeated for its rows.

    Args:
        owner: Who asks, for errors.
        batch: The batch, which stays as it is.
        keys: The members that hold sequences.
        length: Positions of a row.

    Returns:
        A batch of the same kind.

    Raises:
        ValueError: If something per sample cannot be given to rows.

    Example:
        >>> batch = {"x": torch.tensor([[1, 2, 3, 4]]), "id": ["a"]}
        >>> split_rows("Some", batch, ["x"], 2)
        {'x': tensor([[1, 2],
                [3, 4]]), 'id': ['a', 'a']}
    """
    samples, old = batch[keys[0]].shape[:2]
    rows = samples * old // length
    new = {}
    for key, value in batch.items():
        if key in keys:
            flat = value.reshape(samples * old, *value.shape[2:])[: rows * length]
            new[key] = flat.reshape(rows, length, *value.shape[2:])
            continue
        per_sample = isinstance(value, torch.Tensor) and value.ndim > 0 and len(value) == samples
        listed = isinstance(value, (list, tuple)) and len(value) == samples
        if not (per_sample or listed):
            continue
        if old % length:
            raise ValueError(
                f"{owner} makes rows of {length} out of sequences of {old}, so a row may be of two "
                f"samples, and the member {key!r} has one value per sample; choose lengths that "
                f"divide {old}, or leave the member out"
            )
        times = old // length
        if per_sample:
            new[key] = value.repeat_interleave(times, dim=0)
        else:
            new[key] = type(value)(item for item in value for _ in range(times))
    return _with(batch, new)


def _with(batch: Any, new: dict[Any, Any]) -> Any:
    """Put members into a copy, of the batch's own type where that can be."""
    try:
        changed = copy.copy(batch)
        for key, value in new.items():
            changed[key] = value
    except TypeError:
        return {**batch, **new}
    return changed


def _shapes(batch: Mapping[Any, Any]) -> str:
    named = {
        key: tuple(v.shape) if isinstance(v, torch.Tensor) else type(v).__name__
        for key, v in batch.items()
    }
    return f"the members {named}"
