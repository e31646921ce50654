"""Which feed-forward layers can be gated, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from composer.algorithms._nlp.registry import SurgeryPolicy
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
    found = []
    for folder, prefix in (
        ("bert", "Bert"),
        ("camembert", "Camembert"),
        ("electra", "Electra"),
        ("roberta", "Roberta"),
        ("xlm_roberta", "XLMRoberta"),
    ):
        path = f"transformers.models.{folder}.modeling_{folder}:{prefix}Intermediate"
        parts = ("dense", "intermediate_act_fn")
        found.append(SurgeryPolicy("gated_linear_units", path, gate_projection, parts))
    gpt2 = "transformers.models.gpt2.modeling_gpt2:GPT2MLP"
    found.append(SurgeryPolicy("gated_linear_units", gpt2, gate_projection, ("c_fc", "act")))
    return found


POLICIES = tuple(_of_transformers())
