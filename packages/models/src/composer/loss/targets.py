"""Tell what a target tensor holds, and turn class indices into probabilities.

Losses, metrics and methods that mix labels all have to know whether labels are indices or one
probability per class. The answer follows from the shape, and the dtype must agree with it, so that
a tensor of floats is never read as indices and any integer type will do as indices.
"""

from __future__ import annotations

import warnings
from typing import Literal

import torch

__all__ = [
    "check_for_index_targets",
    "counted",
    "ensure_targets_one_hot",
    "infer_target_type",
    "loss_weight",
]

_INDEX_DTYPES = frozenset(
    {
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint16,
        torch.uint32,
        torch.uint64,
    }
)


def check_for_index_targets(targets: torch.Tensor) -> bool:
    """Say whether a tensor can hold class indices, going by its dtype alone.

    Args:
        targets: The targets.

    Returns:
        True for every integer dtype; false for floating, complex and boolean ones.

    Example:
        >>> check_for_index_targets(torch.tensor([3, 1], dtype=torch.uint8))
        True
        >>> check_for_index_targets(torch.tensor([0.0, 1.0]))
        False
    """
    return targets.dtype in _INDEX_DTYPES


def infer_target_type(input: torch.Tensor, targets: torch.Tensor) -> Literal["indices", "one_hot"]:
    """Say whether targets are class indices or hold one value per class.

    Args:
        input: Predictions of shape (N, C, ...).
        targets: Targets of the same shape, or integers of shape (N, ...).

    Returns:
        ``"one_hot"`` if the shapes agree, ``"indices"`` if only the class dimension is missing.

    Raises:
        ValueError: If the shapes fit neither.
        TypeError: If the class dimension is missing and the dtype is not an integer one.

    Example:
        >>> logits = torch.zeros(4, 10)
        >>> infer_target_type(logits, torch.tensor([1, 2, 3, 4]))
        'indices'
        >>> infer_target_type(logits, torch.full((4, 10), 0.1))
        'one_hot'
    """
    shape, target_shape = input.shape, targets.shape
    if shape == target_shape:
        return "one_hot"
    without_classes = shape[:1] + shape[2:]
    if len(shape) != len(target_shape) + 1 or without_classes != target_shape:
        raise ValueError(
            f"targets of shape {tuple(target_shape)} do not fit predictions of shape "
            f"{tuple(shape)}: give class indices of shape {tuple(without_classes)} or one value "
            f"per class of shape {tuple(shape)}"
        )
    if not check_for_index_targets(targets):
        raise TypeError(
            f"targets of shape {tuple(targets.shape)} for predictions of shape "
            f"{tuple(input.shape)} are read as class indices, which must be integers and not "
            f"{targets.dtype}"
        )
    return "indices"


def ensure_targets_one_hot(
    input: torch.Tensor, targets: torch.Tensor, num_classes: int | None = None
) -> torch.Tensor:
    """Turn class indices into one value per class; targets that have them already stay as they are.

    Negative indices become rows of zeros, which the losses here ignore. Whether there are any (a
    warning) or an index is too large (an error) is only looked at on the CPU, because a look at
    another device would make every step wait for it.

    Args:
        input: Predictions of shape (N, C, ...).
        targets: Indices of shape (N, ...), or one value per class of shape (N, C, ...).
        num_classes: Number of classes; by default C.

    Returns:
        Floating-point targets of shape (N, num_classes, ...).

    Raises:
        ValueError: If an index is not smaller than ``num_classes``.

    Example:
        >>> ensure_targets_one_hot(torch.zeros(2, 3), torch.tensor([2, 0]))
        tensor([[0., 0., 1.],
                [1., 0., 0.]])
    """
    dtype = input.dtype if input.dtype == torch.float64 else torch.float32
    if infer_target_type(input, targets) == "one_hot":
        return targets if targets.is_floating_point() else targets.to(dtype)
    classes = input.shape[1] if num_classes is None else num_classes
    indices = targets.to(torch.int64)
    if indices.device.type == "cpu" and indices.numel():
        _check_range(indices, classes)
    ignored = (indices < 0).unsqueeze(1)
    shape = (indices.shape[0], classes, *indices.shape[1:])
    one_hot = torch.zeros(shape, dtype=dtype, device=indices.device)
    one_hot.scatter_(1, indices.clamp(min=0).unsqueeze(1), 1.0)
    return one_hot.masked_fill_(ignored, 0.0)


def counted(targets: torch.Tensor, ignore_index: int) -> torch.Tensor:
    """Say which class indices count.

    Args:
        targets: Class indices.
        ignore_index: Index of targets that do not count.

    Returns:
        Booleans of the shape of ``targets``.

    Example:
        >>> counted(torch.tensor([156, 3], dtype=torch.uint8), -100)
        tensor([True, True])
    """
    # As an unsigned byte, -100 is 156 and -1 is 255, which may be classes.
    return targets.to(torch.int64) != ignore_index


def loss_weight(targets: torch.Tensor, ignore_index: int) -> int | float:
    """Say what the mean of a cross entropy divides by, without class weights.

    Args:
        targets: Class indices, or one value per class.
        ignore_index: Index of targets that do not count.

    Returns:
        The number of targets that count, or the total of the values.

    Example:
        >>> loss_weight(torch.tensor([2, -100, 1]), -100)
        2
    """
    if check_for_index_targets(targets):
        return int(counted(targets, ignore_index).sum())
    return float(targets.sum(dtype=torch.float64 if targets.device.type != "mps" else None))


def _check_range(indices: torch.Tensor, num_classes: int) -> None:
    low, high = (int(bound) for bound in torch.aminmax(indices))
    if high >= num_classes:
        raise ValueError(
            f"targets hold the class index {high}, but there are {num_classes} classes "
            f"(accepted are 0 to {num_classes - 1})"
        )
    if low < 0:
        warnings.warn(
            "targets hold negative class indices; their rows become zeros and are ignored",
            stacklevel=3,
        )
