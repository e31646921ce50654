"""Where scripts written for Composer 0.32 look for the classifier."""

from __future__ import annotations

from composer.models.classifier import ComposerClassifier

__all__ = ["ComposerClassifier"]
