"""Feed-forward layers with a gate (Shazeer, 2020)."""

from __future__ import annotations

from composer.algorithms._nlp.registry import SurgeryPolicy, register_policy
from composer.algorithms.gated_linear_units.algorithm import GatedLinearUnits
from composer.algorithms.gated_linear_units.functional import apply_gated_linear_units
from composer.algorithms.gated_linear_units.layers import GatedProjection
from composer.algorithms.gated_linear_units.policies import gate_projection

__all__ = [
    "GatedLinearUnits",
    "GatedProjection",
    "SurgeryPolicy",
    "apply_gated_linear_units",
    "gate_projection",
    "register_policy",
]
