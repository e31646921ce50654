"""CutOut (DeVries and Taylor, 2017)."""

from __future__ import annotations

from composer.algorithms.cutout.algorithm import CutOut
from composer.algorithms.cutout.functional import cutout_batch

__all__ = ["CutOut", "cutout_batch"]
