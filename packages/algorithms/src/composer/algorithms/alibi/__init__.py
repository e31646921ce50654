"""Attention with linear biases (Press et al., 2021)."""

from __future__ import annotations

from composer.algorithms._nlp.registry import SurgeryPolicy, register_policy
from composer.algorithms.alibi.algorithm import Alibi
from composer.algorithms.alibi.functional import alibi_bias, alibi_slopes, apply_alibi
from composer.algorithms.alibi.layers import AttentionBias, SilentPositions
from composer.algorithms.alibi.policies import bias_attention, silence_positions

__all__ = [
    "Alibi",
    "AttentionBias",
    "SilentPositions",
    "SurgeryPolicy",
    "alibi_bias",
    "alibi_slopes",
    "apply_alibi",
    "bias_attention",
    "register_policy",
    "silence_positions",
]
