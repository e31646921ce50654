"""Metrics that add up exactly over batches and ranks.

Names resolve on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from composer._lazy import lazy_names

if TYPE_CHECKING:
    from composer.metrics.base import Metric as Metric
    from composer.metrics.classification import CrossEntropy as CrossEntropy
    from composer.metrics.classification import LossMetric as LossMetric
    from composer.metrics.classification import MulticlassAccuracy as MulticlassAccuracy
    from composer.metrics.detection import MAP as MAP
    from composer.metrics.language import BinaryF1Score as BinaryF1Score
    from composer.metrics.language import LanguageCrossEntropy as LanguageCrossEntropy
    from composer.metrics.language import LanguagePerplexity as LanguagePerplexity
    from composer.metrics.language import MaskedAccuracy as MaskedAccuracy
    from composer.metrics.regression import MeanSquaredError as MeanSquaredError
    from composer.metrics.segmentation import Dice as Dice
    from composer.metrics.segmentation import MIoU as MIoU

# Public name -> module that defines it.
_HOMES = {
    "BinaryF1Score": "language",
    "CrossEntropy": "classification",
    "Dice": "segmentation",
    "LanguageCrossEntropy": "language",
    "LanguagePerplexity": "language",
    "LossMetric": "classification",
    "MAP": "detection",
    "MIoU": "segmentation",
    "MaskedAccuracy": "language",
    "MeanSquaredError": "regression",
    "Metric": "base",
    "MulticlassAccuracy": "classification",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)

if not TYPE_CHECKING:
    # A type checker takes the imports above for the exported names.
    __all__ = sorted(_HOMES)
