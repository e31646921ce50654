"""Progressive resizing."""

from __future__ import annotations

from composer.algorithms.progressive_resizing.algorithm import ProgressiveResizing
from composer.algorithms.progressive_resizing.functional import resize_batch

__all__ = ["ProgressiveResizing", "resize_batch"]
