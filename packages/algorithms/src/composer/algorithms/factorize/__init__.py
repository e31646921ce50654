"""Factorisation of wide layers."""

from __future__ import annotations

from composer.algorithms.factorize.algorithm import Factorize
from composer.algorithms.factorize.functional import apply_factorization
from composer.algorithms.factorize.layers import FactorizedConv2d, FactorizedLinear

__all__ = ["Factorize", "FactorizedConv2d", "FactorizedLinear", "apply_factorization"]
