"""Where scripts written for Composer 0.32 look for metrics of classification and segmentation."""

from __future__ import annotations

from composer.metrics.classification import CrossEntropy, LossMetric
from composer.metrics.segmentation import Dice, MIoU

__all__ = ["CrossEntropy", "Dice", "LossMetric", "MIoU"]
