"""Gradient clipping on models."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from composer.utils.checks import check_bool, check_choice, check_number
from composer.utils.module_surgery import check_surgery

__all__ = ["CLIPPING_TYPES", "apply_gradient_clipping", "check_settings", "clip_adaptively"]

CLIPPING_TYPES = ("adaptive", "norm", "value")


def check_settings(clipping_type: str, clipping_threshold: float) -> None:
    """Refuse settings that gradients cannot be clipped by.

    Args:
        clipping_type: The type.
        clipping_threshold: The threshold.

    Raises:
        TypeError: If the threshold is not a number.
        ValueError: If the type is unknown or the threshold is not greater than 0 and finite.

    Example:
        >>> check_settings("norm", 1.0)
    """
    check_choice("clipping_type", clipping_type, CLIPPING_TYPES)
    check_number("clipping_threshold", clipping_threshold, low=0.0, open_low=True)


def apply_gradient_clipping(
    model: torch.nn.Module,
    clipping_type: str,
    clipping_threshold: float,
    fsdp_enabled: bool = False,
) -> None:
    """Clip the gradients of a model, in place.

    Args:
        model: The model, after the backward pass.
        clipping_type: ``"norm"`` scales all gradients so that their joint norm is at most the
            threshold; ``"value"`` cuts every element to plus or minus the threshold;
            ``"adaptive"`` scales the gradient of each unit so that its norm is at most the
            threshold times the norm of the unit's weights.
        clipping_threshold: The threshold.
        fsdp_enabled: Accepted for scripts that pass it; sharded gradients know that they are
            sharded, and every type means the same with them.

    Raises:
        TypeError: If an argument has the wrong type, or a gradient is sparse and the type is not
            ``"norm"``.
        ValueError: If the type is unknown or the threshold is not greater than 0 and finite.

    Example:
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> model.weight.grad = torch.tensor([[3.0]])
        >>> apply_gradient_clipping(model, "value", 0.5)
        >>> model.weight.grad
        tensor([[0.5000]])
    """
    check_surgery(model)
    check_settings(clipping_type, clipping_threshold)
    check_bool("fsdp_enabled", fsdp_enabled)
    parameters = [p for p in model.parameters() if p.grad is not None]
    if not parameters:
        return  # torch's function for values fails without a gradient
    if clipping_type == "norm":
        torch.nn.utils.clip_grad_norm_(parameters, max_norm=clipping_threshold)
        return
    if any(p.grad is not None and p.grad.layout is not torch.strided for p in parameters):
        _refuse_sparse(model, clipping_type)
    if clipping_type == "value":
        torch.nn.utils.clip_grad_value_(parameters, clip_value=clipping_threshold)
    else:
        clip_adaptively(parameters, clipping_threshold)


def _refuse_sparse(model: torch.nn.Module, clipping_type: str) -> None:
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and parameter.grad.layout is not torch.strided:
            raise TypeError(
                f"the gradient of {name} is sparse, and clipping_type={clipping_type!r} needs "
                f"dense ones; use 'norm', or build the embedding with sparse=False"
            )


@torch.no_grad()
def clip_adaptively(
    parameters: Iterable[torch.nn.Parameter], clipping_threshold: float, eps: float = 1e-3
) -> None:
    """Limit the ratio of gradient norm to weight norm, unit by unit, in place.

    A unit is a row of a matrix, an output channel of a convolution, or a whole vector.

    Args:
        parameters: Parameters; those without a gradient are passed over.
        clipping_threshold: The largest ratio.
        eps: The least weight norm assumed, so that weights near zero can move.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
        >>> weight.grad = torch.tensor([[3.0, 4.0], [0.0, 0.1]])
        >>> clip_adaptively([weight], 0.5)
        >>> weight.grad.tolist()
        [[1.5, 2.0], [0.0, 0.10000000149011612]]
    """
    for parameter in parameters:
        grad = parameter.grad
        if grad is None:
            continue
        limit = _unit_norms(parameter).clamp_(min=eps).mul_(clipping_threshold)
        # Gradients of norm 0 give an infinite ratio, which the bound of 1 takes care of.
        grad.mul_((limit / _unit_norms(grad)).clamp_(max=1.0))


def _unit_norms(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.ndim <= 1:
        return torch.linalg.vector_norm(tensor)
    return torch.linalg.vector_norm(tensor, dim=tuple(range(1, tensor.ndim)), keepdim=True)
