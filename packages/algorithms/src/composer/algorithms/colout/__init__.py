"""ColOut: images without some of their rows and columns."""

from __future__ import annotations

from composer.algorithms.colout.algorithm import ColOut
from composer.algorithms.colout.functional import ColOutTransform, colout_batch

__all__ = ["ColOut", "ColOutTransform", "colout_batch"]
