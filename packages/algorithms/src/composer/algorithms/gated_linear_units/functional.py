"""Gated linear units as surgery on models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from composer.algorithms._nlp.registry import (
    apply_policies,
    explain_unsupported,
    find_policies,
    has_adapters,
)
from composer.algorithms.gated_linear_units.activations import activation_called, same_activation
from composer.utils.checks import check_bool

__all__ = ["apply_gated_linear_units"]


def apply_gated_linear_units(
    model: torch.nn.Module,
    optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    act_fn: str | Callable[[torch.Tensor], torch.Tensor] | None = None,
    gated_layer_bias: bool = False,
    non_gated_layer_bias: bool = False,
) -> None:
    """Gate the feed-forward layers of a model, in place: ``act(Wx)`` becomes ``act(Wx) * Vx``.

    Knows BERT, CamemBERT, ELECTRA, RoBERTa, XLM-RoBERTa and GPT-2 of transformers with any head,
    and what policies make known. ``W`` stays the parameter that it is; ``V`` is new and of its
    size, drawn from torch's global generator. A second application changes nothing.

    Args:
        model: The model.
        optimizers: Optimizers that receive the new parameters.
        act_fn: The activation, by name or itself; by default that of the model.
        gated_layer_bias: Whether there is a bias beside ``W``; the model's own is kept or dropped.
        non_gated_layer_bias: Whether there is a bias beside ``V``.

    Raises:
        TypeError: If an argument has the wrong type, or the model has adapters.
        ValueError: If nothing in the model is known, or it has several activations and ``act_fn``
            does not say which one to use.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> model = BertModel(BertConfig(**sizes, intermediate_size=16, vocab_size=9))
        >>> apply_gated_linear_units(model)
        >>> type(model.encoder.layer[0].intermediate.dense).__name__
        'GatedProjection'
    """
    from composer.algorithms.gated_linear_units.layers import GatedProjection

    check_bool("gated_layer_bias", gated_layer_bias)
    check_bool("non_gated_layer_bias", non_gated_layer_bias)
    if act_fn is not None and not isinstance(act_fn, str) and not callable(act_fn):
        raise TypeError(f"act_fn={act_fn!r} must be the name of an activation, or a function")
    found = find_policies(model, "gated_linear_units")
    if not found:
        name = "GatedLinearUnits"
        raise ValueError(explain_unsupported(model, name, "gated_linear_units"))
    # Policies with a function of their own may have other parts than these two.
    fresh = [
        (module, policy)
        for module, policy in found
        if not isinstance(getattr(module, "".join(policy.parts[:1]), None), GatedProjection)
    ]
    if not fresh:
        return
    if has_adapters(model):
        raise TypeError(
            "the model has adapters, and checkpoints of them would not hold the new parameters; "
            "apply GatedLinearUnits to the model before adapters are put on it"
        )
    chosen: Any = activation_called(act_fn) if isinstance(act_fn, str) else act_fn
    if chosen is None:
        chosen = _only([getattr(m, p.parts[1]) for m, p in fresh if len(p.parts) == 2])
    apply_policies(
        model,
        fresh,
        optimizers,
        act_fn=chosen,
        gated_layer_bias=gated_layer_bias,
        non_gated_layer_bias=non_gated_layer_bias,
    )


def _only(activations: list[Any]) -> Any:
    first = activations[0] if activations else None
    others = [one for one in activations if not same_activation(one, first)]
    if others:
        raise ValueError(
            f"the model has several activations, among them {first!r} and {others[0]!r}; say with "
            f"act_fn which one the gates are to have"
        )
    return first
