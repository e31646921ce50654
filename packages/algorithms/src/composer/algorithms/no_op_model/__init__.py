"""A model that costs nothing."""

from __future__ import annotations

from composer.algorithms.no_op_model.algorithm import NoOpModel
from composer.algorithms.no_op_model.layers import NoOpModelClass

__all__ = ["NoOpModel", "NoOpModelClass"]
