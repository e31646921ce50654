"""Low-precision group normalisation."""

from __future__ import annotations

from composer.algorithms.low_precision_groupnorm.algorithm import LowPrecisionGroupNorm
from composer.algorithms.low_precision_groupnorm.functional import apply_low_precision_groupnorm
from composer.algorithms.low_precision_groupnorm.layers import LPGroupNorm

__all__ = ["LPGroupNorm", "LowPrecisionGroupNorm", "apply_low_precision_groupnorm"]
