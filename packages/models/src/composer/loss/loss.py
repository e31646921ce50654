"""Where scripts written for Composer 0.32 look for what is in :mod:`composer.loss.losses`."""

from __future__ import annotations

from composer.loss.losses import binary_cross_entropy_with_logits, soft_cross_entropy
from composer.loss.registry import loss_registry

__all__ = ["binary_cross_entropy_with_logits", "loss_registry", "soft_cross_entropy"]
