"""Where scripts written for Composer 0.32 look for :mod:`composer.metrics.language`."""

from __future__ import annotations

from composer.metrics.language import (
    BinaryF1Score,
    LanguageCrossEntropy,
    LanguagePerplexity,
    MaskedAccuracy,
)

__all__ = ["BinaryF1Score", "LanguageCrossEntropy", "LanguagePerplexity", "MaskedAccuracy"]
