"""Which feed-forward layers can be gated, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from composer.algorithms._nlp.registry import ENCODERS, GPT2, SurgeryPolicy
from composer.algorithms.gated_linear_units.layers import GatedProjection

__all__ = ["POLICIES", "gate_projection"]


def gate_projection(
    layer: nn.Module,
    projection: str,
    activation: str,
    *,
    act_fn: Callable[[torch.Tensor], torch.Tensor],
    **options: Any,
) -> None:
    """Gate a layer that computes ``activation(projection(x))``.

    Args:
        layer: The layer. Its projection becomes a
            :class:`~composer.algorithms.gated_linear_units.GatedProjection`, which activates
            itself, and its activation nothing.
        projection: Name of its attribute with the first projection.
        activation: Name of its attribute with the activation.
        act_fn: The activation of the gate.
        **options: ``gated_layer_bias`` and ``non_gated_layer_bias``.

    Example:
        >>> layer = nn.Module()
        >>> layer.up, layer.act = nn.Linear(2, 4), nn.ReLU()
        >>> gate_projection(layer, "up", "act", act_fn=layer.act)
        >>> type(layer.up).__name__, layer.act
        ('GatedProjection', Identity())
    """
    plain = getattr(layer, projection)
    if isinstance(plain, GatedProjection):
        return
    setattr(layer, projection, GatedProjection.beside(plain, act_fn, **options))
    nothing = nn.Identity()
    nothing.train(layer.training)
    setattr(layer, activation, nothing)


def _of_transformers() -> list[SurgeryPolicy]:
    parts = ("dense", "intermediate_act_fn")
    method, gate = "gated_linear_units", gate_projection
    found = [SurgeryPolicy(method, f"{path}Intermediate", gate, parts) for path in ENCODERS]
    return [*found, SurgeryPolicy(method, f"{GPT2}MLP", gate, ("c_fc", "act"))]


POLICIES = tuple(_of_transformers())
