"""Where scripts written for Composer 0.32 look for :mod:`composer.metrics.detection`."""

from __future__ import annotations

from composer.metrics.detection import MAP

__all__ = ["MAP"]
