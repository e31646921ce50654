"""Where scripts written for Composer 0.32 look for what is in :mod:`composer.loss.targets`."""

from __future__ import annotations

from composer.loss.targets import (
    check_for_index_targets,
    ensure_targets_one_hot,
    infer_target_type,
)

__all__ = ["check_for_index_targets", "ensure_targets_one_hot", "infer_target_type"]
