"""Stochastic weight averaging (Izmailov et al., 2018)."""

from __future__ import annotations

from composer.algorithms.swa.algorithm import SWA

__all__ = ["SWA"]
