"""AugMix (Hendrycks et al., 2020)."""

from __future__ import annotations

from composer.algorithms.augmix.algorithm import AugMix
from composer.algorithms.augmix.functional import AugmentAndMixTransform, augmix_image

__all__ = ["AugMix", "AugmentAndMixTransform", "augmix_image"]
