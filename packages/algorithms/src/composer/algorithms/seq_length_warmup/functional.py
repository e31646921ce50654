"""Sequences that grow: how long at which time, and a batch brought to that length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from composer.algorithms._nlp.sequences import check_keys, cut_rows, sequence_members, split_rows
from composer.utils.checks import check_bool, check_integer, check_number

__all__ = ["check_warmup", "sequence_length_at", "set_batch_sequence_length", "shorten"]


def check_warmup(duration: float, min_seq_length: int, max_seq_length: int, step_size: int) -> None:
    """Refuse a curriculum that cannot be.

    Args:
        duration: Share of the run in which lengths grow, from 0 to 1.
        min_seq_length: Length at the start.
        max_seq_length: Length at the end.
        step_size: Lengths in between are multiples of it.

    Raises:
        TypeError: If one has the wrong type.
        ValueError: If one is out of range.

    Example:
        >>> check_warmup(0.3, 8, 1024, 8)
    """
    check_number("duration", duration, low=0.0, high=1.0)
    check_integer("min_seq_length", min_seq_length, low=1)
    check_integer("max_seq_length", max_seq_length, low=1)
    check_integer("step_size", step_size, low=1)
    if max_seq_length < min_seq_length:
        raise ValueError(
            f"max_seq_length={max_seq_length} must be at least min_seq_length={min_seq_length}"
        )


def sequence_length_at(
    fraction: float,
    duration: float = 0.3,
    min_seq_length: int = 8,
    max_seq_length: int = 1024,
    step_size: int = 8,
) -> int:
    """Say how long sequences are at a time of the run.

    The length grows linearly and is rounded down to a multiple of the step, as in the paper; a run
    of fewer batches than there are steps takes several at a time.

    Args:
        fraction: Share of the run that is done, from 0 to 1.
        duration: Share of the run in which lengths grow; with 0 they have grown at the start.
        min_seq_length: Length at the start.
        max_seq_length: Length after ``duration``.
        step_size: Lengths in between are multiples of it.

    Returns:
        The length, from ``min_seq_length`` to ``max_seq_length``.

    Example:
        >>> [sequence_length_at(f, 0.5, 8, 64, 8) for f in (0.0, 0.1, 0.25, 0.49, 0.5, 1.0)]
        [8, 16, 32, 56, 64, 64]
    """
    if fraction >= duration:
        return max_seq_length
    grown = min_seq_length + (max_seq_length - min_seq_length) * fraction / duration
    # A step that is due is not missed for the last digit of a quotient.
    length = step_size * math.floor(grown / step_size + 1e-9)
    return min(max(length, min_seq_length), max_seq_length)


def set_batch_sequence_length(
    batch: Any,
    curr_seq_len: int,
    truncate: bool = True,
    preserve_end_of_sequence: bool = False,
    *,
    keys: Sequence[Any] | None = None,
) -> Any:
    """Bring the sequences of a batch to a shorter length; shorter ones stay as they are.

    Args:
        batch: Any mapping, which stays as it is.
        curr_seq_len: The length.
        truncate: Whether to drop what is beyond it; else it goes into further rows, so that no
            token is lost where the length divides that of the batch.
        preserve_end_of_sequence: Whether a cut sample keeps its last token, at the last kept place,
            together with its label and whatever else the batch holds per position. Needs the
            member ``attention_mask`` to know where samples end.
        keys: The members that hold sequences; by default all tensors whose second dimension is that
            of ``input_ids``, ``inputs_embeds`` or ``attention_mask``, the first of them that there
            is, or in a batch without these, the one that most of them share.

    Returns:
        A batch of the same kind.

    Raises:
        TypeError: If the batch is no mapping, or an argument has the wrong type.
        ValueError: If there are no sequences, or no mask to find their ends by.

    Example:
        >>> ids = torch.tensor([[1, 5, 6, 7, 8, 2]])
        >>> batch = {"input_ids": ids, "attention_mask": torch.ones(1, 6)}
        >>> set_batch_sequence_length(batch, 4)["input_ids"]
        tensor([[1, 5, 6, 7]])
        >>> set_batch_sequence_length(batch, 4, preserve_end_of_sequence=True)["input_ids"]
        tensor([[1, 5, 6, 2]])
        >>> set_batch_sequence_length(batch, 3, truncate=False)["input_ids"]
        tensor([[1, 5, 6],
                [7, 8, 2]])
    """
    check_integer("curr_seq_len", curr_seq_len, low=1)
    check_bool("truncate", truncate)
    check_bool("preserve_end_of_sequence", preserve_end_of_sequence)
    check_keys(keys)
    return shorten(batch, curr_seq_len, truncate, preserve_end_of_sequence, keys)[0]


def shorten(
    batch: Any,
    length: int,
    truncate: bool,
    preserve_end_of_sequence: bool,
    keys: Sequence[Any] | None,
) -> tuple[Any, Any]:
    """Do what :func:`set_batch_sequence_length` does, and say where the sequences are.

    Args:
        batch: As there.
        length: The length.
        truncate: As there.
        preserve_end_of_sequence: As there.
        keys: As there.

    Returns:
        The batch, and the key of a member that holds sequences.

    Raises:
        TypeError: If the batch is no mapping.
        ValueError: If there are no sequences, or no mask to find their ends by.

    Example:
        >>> shorten({"x": torch.tensor([[1, 2, 3]])}, 2, True, False, None)
        ({'x': tensor([[1, 2]])}, 'x')
    """
    old, found = sequence_members("SeqLengthWarmup", batch, keys)
    # Asked for also where nothing is cut yet, so that a missing mask shows at the first batch.
    mask = _mask_of(batch, old) if truncate and preserve_end_of_sequence else None
    if old <= length:
        return batch, found[0]
    if not truncate:
        return split_rows("SeqLengthWarmup", batch, found, length), found[0]
    ends = None if mask is None else _last_tokens(mask)
    return cut_rows(batch, found, length, ends=ends), found[0]


def _mask_of(batch: Any, length: int) -> torch.Tensor:
    mask = batch.get("attention_mask")
    if not isinstance(mask, torch.Tensor) or mask.ndim != 2 or mask.shape[1] != length:
        raise ValueError(
            "preserve_end_of_sequence=True needs the member 'attention_mask' of shape (N, T) to "
            f"know where samples end; the batch has {list(batch)}"
        )
    return mask


def _last_tokens(mask: torch.Tensor) -> torch.Tensor:
    """Positions of the last real token of every sample; 0 where there is none."""
    places = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask.bool(), places, 0).amax(dim=1)
