"""Gyro dropout (Park, Lee and Seo, 2023)."""

from __future__ import annotations

from composer.algorithms.gyro_dropout.algorithm import GyroDropout
from composer.algorithms.gyro_dropout.functional import apply_gyro_dropout
from composer.algorithms.gyro_dropout.layers import GyroDropoutLayer

__all__ = ["GyroDropout", "GyroDropoutLayer", "apply_gyro_dropout"]
