"""Weight standardisation (Qiao et al., 2019)."""

from __future__ import annotations

from composer.algorithms.weight_standardization.algorithm import WeightStandardization
from composer.algorithms.weight_standardization.functional import apply_weight_standardization

__all__ = ["WeightStandardization", "apply_weight_standardization"]
