"""Low-precision layer normalisation."""

from __future__ import annotations

from composer.algorithms.low_precision_layernorm.algorithm import LowPrecisionLayerNorm
from composer.algorithms.low_precision_layernorm.functional import apply_low_precision_layernorm
from composer.algorithms.low_precision_layernorm.layers import LPLayerNorm

__all__ = ["LPLayerNorm", "LowPrecisionLayerNorm", "apply_low_precision_layernorm"]
