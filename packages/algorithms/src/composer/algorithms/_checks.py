"""What the methods ask of a batch, in one wording."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["check_batch", "require_tensor"]


def check_batch(input: Any, target: Any) -> None:
    """Refuse samples or labels that are no tensor with one entry per sample.

    Args:
        input: The samples.
        target: Their labels.

    Raises:
        TypeError: If one is no tensor.
        ValueError: If one is a single number, or they are not of the same number.

    Example:
        >>> check_batch(torch.ones(2, 3), torch.tensor([0, 1]))
    """
    for name, value in (("input", input), ("target", target)):
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} must be a tensor, not {type(value).__name__}")
        if value.ndim == 0:
            raise ValueError(f"{name} must have one entry per sample, and is a single number")
    if len(input) != len(target):
        raise ValueError(f"target has {len(target)} entries and input has {len(input)} samples")


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
