"""Losses by name, for configuration files."""

from __future__ import annotations

from collections.abc import Callable

import torch

from composer.loss.losses import binary_cross_entropy_with_logits, soft_cross_entropy

__all__ = ["loss_registry"]

#: Name to function.
loss_registry: dict[str, Callable[..., torch.Tensor]] = {
    "binary_cross_entropy_with_logits": binary_cross_entropy_with_logits,
    "soft_cross_entropy": soft_cross_entropy,
}
