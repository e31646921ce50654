"""The weights of a checkpoint under the names of its model, and how they are put into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from composer.models.huggingface.adapter_weights import adapter_keys
from composer.models.huggingface.ties import untie_differing

__all__ = ["fill", "holds_base", "stored_weights"]

_PREFIX = "model."


def stored_weights(contents: Mapping[str, Any], shown: str = "the checkpoint") -> dict[str, Any]:
    """Return the weights of a checkpoint under the names that the model of transformers has.

    Args:
        contents: What the file holds.
        shown: The file, for the error.

    Returns:
        Name to tensor.

    Raises:
        ValueError: If it holds none, or something that is no tensor among them.

    Example:
        >>> stored_weights({"state": {"model": {"model.bias": torch.zeros(1)}}})
        {'bias': tensor([0.])}
    """
    model = (contents.get("state") or {}).get("model")
    weights = {
        # Releases before 0.11 kept the `module.` of a data-parallel wrapper.
        name.removeprefix("module.").removeprefix(_PREFIX): value
        for name, value in (model or {}).items()
        if name.removeprefix("module.").startswith(_PREFIX)
    }
    if not weights:
        raise ValueError(f"{shown} holds no weights of a HuggingFaceModel")
    for name, value in weights.items():
        if not isinstance(value, torch.Tensor):
            raise ValueError(
                f"{shown} holds a {type(value).__name__} as the weight {name!r} of its model, "
                f"where a tensor belongs; the file is damaged"
            )
    return weights


def holds_base(weights: Mapping[str, Any]) -> bool:
    """Say whether weights of a model with adapters are those of the model beneath too.

    Args:
        weights: Name to weight.

    Returns:
        Whether they are.

    Example:
        >>> holds_base({"q.base_layer.weight": 1, "q.lora_A.default.weight": 2})
        True
    """
    return any(".base_layer." in name for name in weights) or (
        # Prompts leave the model's layers as they are.
        any(name.startswith("prompt_encoder.") for name in weights)
        and any(name.startswith("base_model.") for name in weights)
    )


def fill(
    model: Any,
    weights: Mapping[str, Any],
    shown: str,
    *,
    alone: bool = False,
    assign: bool = False,
) -> None:
    """Put weights into a model, all of them and nothing else, in the types that they have.

    Args:
        model: A model of transformers or of peft.
        weights: Name to weight.
        shown: Where they come from, for errors.
        alone: Whether they are those of adapters, without the model beneath.
        assign: Whether they become the model's own and are not copied, as a model without numbers
            needs it.

    Raises:
        ValueError: If one is missing, is not in the model or is of another shape.

    Example:
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> fill(model, {"weight": torch.tensor([[2.0]], dtype=torch.float64)}, "a.pt")
        >>> model.weight.item(), model.weight.dtype
        (2.0, torch.float64)
        >>> fill(model, {}, "a.pt")
        Traceback (most recent call last):
        ValueError: the weights of a.pt do not fit its model; missing: ['weight'], not in ...
    """
    if not assign:
        untie_differing(model, weights)
        for name, tensor in model.state_dict(keep_vars=True).items():
            kind = weights[name].dtype if name in weights else tensor.dtype
            if kind != tensor.dtype and kind.is_floating_point and tensor.is_floating_point():
                tensor.data = tensor.data.to(kind)
    # Tied weights may be kept under one of their names.
    forgiven = _tied_to_given(model, weights)
    try:
        found = model.load_state_dict(dict(weights), strict=False, assign=assign)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"the weights of {shown} do not fit its model: {reason}") from error
    missing = set(found.missing_keys)
    if alone:
        missing &= set(adapter_keys(model))
    missing -= forgiven
    if missing or found.unexpected_keys:
        raise ValueError(
            f"the weights of {shown} do not fit its model; missing: {sorted(missing)}, not in the "
            f"model: {sorted(found.unexpected_keys)}"
        )


def _tied_to_given(model: torch.nn.Module, weights: Mapping[str, Any]) -> set[str]:
    """Names of tensors that were given under another name."""
    named = model.state_dict(keep_vars=True)
    given = {id(named[name]) for name in weights if name in named}
    return {name for name, tensor in named.items() if id(tensor) in given}
