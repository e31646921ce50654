"""Losses for classifiers that take class indices and probabilities alike.

Methods that mix or smooth labels turn indices into probabilities on the way. The mean of a loss
must not change its meaning when they do: one-hot targets give the number that their indices give,
with class weights and with ignored rows too.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F

from composer.loss._reductions import check_reduction
from composer.loss.targets import ensure_targets_one_hot, infer_target_type

__all__ = ["binary_cross_entropy_with_logits", "soft_cross_entropy"]

# Rounding of mixed and smoothed labels stays far below this share of a row.
_TOLERANCE = 1e-3


def soft_cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> torch.Tensor:
    """Cross entropy of logits with class indices or with a probability per class.

    With probabilities the mean divides by their total, so that rows of zeros (ignored samples) do
    not count. The checks of that total run on the CPU only; elsewhere they would make every step
    wait for the device, and targets without any probability give NaN instead of an error.

    Args:
        input: Logits of shape (N, C, ...).
        target: Integers of shape (N, ...), or probabilities of shape (N, C, ...).
        weight: One weight per class.
        ignore_index: Index of targets that do not count; unused with probabilities.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        The loss: a scalar, or of shape (N, ...) without reduction.

    Raises:
        TypeError: If targets are floats where indices are expected.
        ValueError: If ``reduction`` is unknown, the shapes do not fit, or all targets are zero.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
        >>> by_index = soft_cross_entropy(logits, torch.tensor([0, 1]))
        >>> dense = soft_cross_entropy(logits, torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        >>> torch.testing.assert_close(by_index, dense)
    """
    check_reduction(reduction)
    if weight is not None:
        _check_class_weights("weight", weight, input.shape[1] if input.ndim > 1 else len(input))
    if infer_target_type(input, target) == "indices":
        return F.cross_entropy(
            input, target.to(torch.int64), weight, ignore_index=ignore_index, reduction=reduction
        )
    if not target.is_floating_point() or target.dtype in (torch.float16, torch.bfloat16):
        # Sums over many pixels do not fit into half precision.
        target = target.to(torch.float32)
    if input.dtype in (torch.float16, torch.bfloat16):
        input = input.float()
    if reduction != "mean":
        return F.cross_entropy(input, target, weight, reduction=reduction)
    total = target.sum() if weight is None else _weighted_total(target, weight)
    num_rows = target.numel() // target.shape[1] if target.ndim > 1 else 1
    if total.device.type == "cpu" and num_rows:
        plain = total if weight is None else target.sum()
        _check_total(float(plain.detach()), num_rows)
    return F.cross_entropy(input, target, weight, reduction="sum") / total


def binary_cross_entropy_with_logits(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: str = "sum",
    pos_weight: torch.Tensor | None = None,
    scale_by_batch_size: bool | None = True,
) -> torch.Tensor:
    """Binary cross entropy of logits, one yes-or-no question per class.

    Args:
        input: Logits of shape (N, C, ...).
        target: Integers of shape (N, ...), or one value per class of shape (N, C, ...).
        weight: Weights that broadcast to the shape of ``input``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        pos_weight: Weights of positive answers that broadcast to the shape of ``input``.
        scale_by_batch_size: Whether to divide the result by N.

    Returns:
        The loss: a scalar, or of the shape of ``input`` without reduction.

    Raises:
        ValueError: If ``reduction`` is unknown or the shapes do not fit.

    Example:
        >>> loss = binary_cross_entropy_with_logits(torch.zeros(2, 3), torch.tensor([0, 2]))
        >>> round(float(loss), 4)  # three questions per sample, each log(2)
        2.0794
    """
    check_reduction(reduction)
    for name, factor in (("weight", weight), ("pos_weight", pos_weight)):
        if factor is not None:
            _check_broadcast(name, factor, input.shape)
    target = ensure_targets_one_hot(input, target)
    loss = F.binary_cross_entropy_with_logits(
        input, target, weight, reduction=reduction, pos_weight=pos_weight
    )
    return loss / input.shape[0] if scale_by_batch_size else loss


def _check_class_weights(name: str, weight: Any, num_classes: int) -> None:
    if not isinstance(weight, torch.Tensor):
        raise TypeError(f"{name}={weight!r} must be a tensor of one weight per class")
    if weight.shape != (num_classes,):
        raise ValueError(
            f"{name} of shape {tuple(weight.shape)} must have the shape ({num_classes},), one "
            f"weight per class"
        )


def _check_broadcast(name: str, factor: Any, shape: torch.Size) -> None:
    if not isinstance(factor, torch.Tensor):
        raise TypeError(f"{name}={factor!r} must be a tensor that broadcasts to {tuple(shape)}")
    sizes = zip(factor.shape[::-1], shape[::-1], strict=False)
    if factor.ndim > len(shape) or any(own not in (1, size) for own, size in sizes):
        raise ValueError(
            f"{name} of shape {tuple(factor.shape)} does not broadcast to the shape of input, "
            f"{tuple(shape)}"
        )


def _weighted_total(target: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (target * weight.view(1, -1, *[1] * (target.ndim - 2))).sum()


def _check_total(total: float, num_rows: int) -> None:
    if total <= 0:
        raise ValueError(
            "target holds no positive probability, so there is nothing to average; give at least "
            "one row that is not all zeros"
        )
    if total < num_rows * (1 - _TOLERANCE):
        warnings.warn(
            f"the probabilities of {num_rows} targets add up to {total:.6g} only; the mean is over "
            f"that total",
            stacklevel=3,
        )
