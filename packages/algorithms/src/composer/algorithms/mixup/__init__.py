"""MixUp (Zhang et al., 2017)."""

from __future__ import annotations

from composer.algorithms.mixup.algorithm import MixUp
from composer.algorithms.mixup.functional import mixup_batch

__all__ = ["MixUp", "mixup_batch"]
