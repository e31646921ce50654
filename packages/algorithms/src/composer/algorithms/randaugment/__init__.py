"""RandAugment (Cubuk et al., 2020)."""

from __future__ import annotations

from composer.algorithms.randaugment.algorithm import RandAugment
from composer.algorithms.randaugment.functional import RandAugmentTransform, randaugment_image

__all__ = ["RandAugment", "RandAugmentTransform", "randaugment_image"]
