"""Where scripts written for Composer 0.32 look for the loss functions."""

from __future__ import annotations

from composer.loss.dice import DiceLoss
from composer.loss.losses import binary_cross_entropy_with_logits, soft_cross_entropy
from composer.loss.registry import loss_registry

__all__ = ["DiceLoss", "binary_cross_entropy_with_logits", "loss_registry", "soft_cross_entropy"]
