"""What the methods ask of a batch, in one wording."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["require_tensor"]


def require_tensor(owner: str, what: str, value: Any) -> torch.Tensor:
    """Return a value that must be a single tensor.

    Args:
        owner: The method that asks.
        what: What the value is.
        value: The value.

    Returns:
        The tensor.

    Raises:
        TypeError: If it is anything else.

    Example:
        >>> require_tensor("MixUp", "input", torch.ones(1))
        tensor([1.])
    """
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"{owner} works on a single {what} tensor, and this one is a "
            f"{type(value).__name__}; set the key so that it selects one tensor, or leave "
            f"{owner} out"
        )
    return value
