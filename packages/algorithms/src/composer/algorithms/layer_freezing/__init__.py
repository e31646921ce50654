"""Layer freezing (Raghu et al., 2017)."""

from __future__ import annotations

from composer.algorithms.layer_freezing.algorithm import LayerFreezing
from composer.algorithms.layer_freezing.functional import freeze_layers

__all__ = ["LayerFreezing", "freeze_layers"]
