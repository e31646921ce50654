"""Metrics that add up exactly over batches and ranks."""

from __future__ import annotations

from composer.metrics.base import Metric
from composer.metrics.classification import CrossEntropy, LossMetric, MulticlassAccuracy
from composer.utils.suggestions import names_that_come_later

__all__ = ["CrossEntropy", "LossMetric", "Metric", "MulticlassAccuracy"]

__getattr__ = names_that_come_later(
    __name__,
    (
        "BinaryF1Score",
        "Dice",
        "LanguageCrossEntropy",
        "LanguagePerplexity",
        "MAP",
        "MIoU",
        "MaskedAccuracy",
    ),
)
