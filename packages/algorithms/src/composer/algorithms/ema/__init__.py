"""Exponential moving average of weights."""

from __future__ import annotations

from composer.algorithms.ema.algorithm import EMA
from composer.algorithms.ema.functional import EMAParameters, compute_ema

__all__ = ["EMA", "EMAParameters", "compute_ema"]
