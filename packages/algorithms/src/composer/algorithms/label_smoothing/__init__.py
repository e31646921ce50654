"""Label smoothing (Szegedy et al., 2015)."""

from __future__ import annotations

from composer.algorithms.label_smoothing.algorithm import LabelSmoothing
from composer.algorithms.label_smoothing.functional import smooth_labels

__all__ = ["LabelSmoothing", "smooth_labels"]
