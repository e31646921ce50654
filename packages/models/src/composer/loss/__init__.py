"""Loss functions, and helpers to read targets."""

from __future__ import annotations

from composer.loss.dice import DiceLoss
from composer.loss.language import chunked_cross_entropy, language_cross_entropy
from composer.loss.losses import binary_cross_entropy_with_logits, soft_cross_entropy
from composer.loss.registry import loss_registry
from composer.loss.targets import (
    check_for_index_targets,
    ensure_targets_one_hot,
    infer_target_type,
)

__all__ = [
    "DiceLoss",
    "binary_cross_entropy_with_logits",
    "check_for_index_targets",
    "chunked_cross_entropy",
    "ensure_targets_one_hot",
    "infer_target_type",
    "language_cross_entropy",
    "loss_registry",
    "soft_cross_entropy",
]
