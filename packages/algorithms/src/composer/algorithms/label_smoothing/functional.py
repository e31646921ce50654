"""Label smoothing on tensors."""

from __future__ import annotations

import torch

from composer.loss.targets import ensure_targets_one_hot, infer_target_type
from composer.utils.checks import check_number

__all__ = ["smooth_labels"]


def smooth_labels(
    logits: torch.Tensor, target: torch.Tensor, smoothing: float = 0.1
) -> torch.Tensor:
    """Move a share of every label to all classes alike.

    Args:
        logits: Predictions of shape (N, C, ...), which tell the number of classes.
        target: Class indices of shape (N, ...) or probabilities of shape (N, C, ...).
        smoothing: The share. Rows of negative (ignored) indices stay zero.

    Returns:
        Probabilities of shape (N, C, ...).

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If ``smoothing`` is not between 0 and 1 or the shapes do not fit.

    Example:
        >>> smooth_labels(torch.zeros(1, 4), torch.tensor([2]), smoothing=0.2)
        tensor([[0.0500, 0.0500, 0.8500, 0.0500]])
    """
    check_number("smoothing", smoothing, low=0.0, high=1.0)
    for name, value in (("logits", logits), ("target", target)):
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} must be a tensor, not {type(value).__name__}")
    dense = ensure_targets_one_hot(logits, target)
    smoothed = dense * (1.0 - smoothing) + smoothing / logits.shape[1]
    if infer_target_type(logits, target) == "indices":
        smoothed = smoothed.masked_fill_((target < 0).unsqueeze(1), 0.0)
    return smoothed
