"""Where scripts written for Composer 0.32 look for :mod:`composer.metrics.classification`."""

from __future__ import annotations

from composer.metrics.classification import CrossEntropy, LossMetric

__all__ = ["CrossEntropy", "LossMetric"]
