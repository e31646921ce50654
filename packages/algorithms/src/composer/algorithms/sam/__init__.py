"""Sharpness-aware minimisation (Foret et al., 2020)."""

from __future__ import annotations

from composer.algorithms.sam.algorithm import SAM
from composer.algorithms.sam.functional import SAMOptimizer, climb

__all__ = ["SAM", "SAMOptimizer", "climb"]
