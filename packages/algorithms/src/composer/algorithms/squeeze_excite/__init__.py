"""Squeeze-and-excitation (Hu et al., 2017)."""

from __future__ import annotations

from composer.algorithms.squeeze_excite.algorithm import SqueezeExcite
from composer.algorithms.squeeze_excite.functional import apply_squeeze_excite
from composer.algorithms.squeeze_excite.layers import SqueezeExcite2d, SqueezeExciteConv2d

__all__ = ["SqueezeExcite", "SqueezeExcite2d", "SqueezeExciteConv2d", "apply_squeeze_excite"]
