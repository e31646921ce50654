"""Loss functions, and helpers to read targets."""

from __future__ import annotations

from composer.loss.losses import binary_cross_entropy_with_logits, soft_cross_entropy
from composer.loss.registry import loss_registry
from composer.loss.targets import (
    check_for_index_targets,
    ensure_targets_one_hot,
    infer_target_type,
)
from composer.utils.suggestions import names_that_come_later

__all__ = [
    "binary_cross_entropy_with_logits",
    "check_for_index_targets",
    "ensure_targets_one_hot",
    "infer_target_type",
    "loss_registry",
    "soft_cross_entropy",
]

__getattr__ = names_that_come_later(
    __name__,
    ("DiceLoss",),
)
