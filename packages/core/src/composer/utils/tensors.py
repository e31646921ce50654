"""Copies of nested collections that share no tensor with the original."""

from __future__ import annotations

from typing import Any

import torch

from composer.utils.iteration import map_collection

__all__ = ["clone_tensors"]


def clone_tensors(collection: Any) -> Any:
    """Copy nested tuples, lists and mappings, and the tensors in them.

    Args:
        collection: The collection; a tensor alone will do.

    Returns:
        A collection of the same shape. What is neither collection nor tensor is the same object.

    Example:
        >>> kept = {"weights": [torch.ones(1)]}
        >>> copied = clone_tensors(kept)
        >>> _ = copied["weights"][0].zero_()
        >>> kept["weights"][0]
        tensor([1.])
    """
    return map_collection(collection, _clone)


def _clone(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
