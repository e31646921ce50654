"""CutMix (Yun et al., 2019)."""

from __future__ import annotations

from composer.algorithms.cutmix.algorithm import CutMix
from composer.algorithms.cutmix.functional import cutmix_batch

__all__ = ["CutMix", "cutmix_batch"]
