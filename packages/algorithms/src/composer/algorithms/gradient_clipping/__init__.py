"""Gradient clipping (Mikolov, 2012; Pascanu et al., 2013; Brock et al., 2021)."""

from __future__ import annotations

from composer.algorithms.gradient_clipping.algorithm import GradientClipping
from composer.algorithms.gradient_clipping.functional import apply_gradient_clipping

__all__ = ["GradientClipping", "apply_gradient_clipping"]
