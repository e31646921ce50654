"""Metrics that add up exactly over batches and ranks."""

from __future__ import annotations

from composer.metrics.base import Metric
from composer.metrics.classification import CrossEntropy, LossMetric, MulticlassAccuracy

__all__ = ["CrossEntropy", "LossMetric", "Metric", "MulticlassAccuracy"]
