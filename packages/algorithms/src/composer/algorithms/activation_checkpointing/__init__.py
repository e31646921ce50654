"""Activations that are computed again in the backward pass instead of being kept."""

from __future__ import annotations

from composer.algorithms.activation_checkpointing.algorithm import ActivationCheckpointing
from composer.algorithms.activation_checkpointing.functional import apply_activation_checkpointing

__all__ = ["ActivationCheckpointing", "apply_activation_checkpointing"]
