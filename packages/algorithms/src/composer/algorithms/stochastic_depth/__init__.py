"""Stochastic depth (Huang et al., 2016)."""

from __future__ import annotations

from composer.algorithms.stochastic_depth.algorithm import StochasticDepth
from composer.algorithms.stochastic_depth.blocks import ResidualBlock, register_residual_block
from composer.algorithms.stochastic_depth.functional import apply_stochastic_depth
from composer.algorithms.stochastic_depth.layers import StochasticBlock

__all__ = [
    "ResidualBlock",
    "StochasticBlock",
    "StochasticDepth",
    "apply_stochastic_depth",
    "register_residual_block",
]
