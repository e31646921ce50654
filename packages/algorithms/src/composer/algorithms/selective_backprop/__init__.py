"""Selective backprop (Jiang et al., 2019)."""

from __future__ import annotations

from composer.algorithms.selective_backprop.algorithm import SelectiveBackprop
from composer.algorithms.selective_backprop.functional import (
    select_using_loss,
    should_selective_backprop,
)

__all__ = ["SelectiveBackprop", "select_using_loss", "should_selective_backprop"]
