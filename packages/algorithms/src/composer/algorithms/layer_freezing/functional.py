"""Freezing the first layers of a model.

Frozen parameters stay in their optimizers. They have no gradients, and optimizers leave out what
has none: neither momentum nor weight decay moves them, and checkpoints look the same before and
after.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from composer.utils.checks import check_number
from composer.utils.iteration import ensure_tuple
from composer.utils.modules import unwrapped_model

__all__ = [
    "check_optimizers",
    "check_settings",
    "freeze_first",
    "freeze_layers",
    "num_freezable",
    "share_to_freeze",
]


def check_settings(freeze_start: float, freeze_level: float) -> None:
    """Refuse settings that cannot be.

    Args:
        freeze_start: When freezing starts.
        freeze_level: Which share of the layers is frozen at the end.

    Raises:
        TypeError: If one is no number.
        ValueError: If one is out of range.

    Example:
        >>> check_settings(0.5, 1.0)
    """
    check_number("freeze_start", freeze_start, low=0.0, high=1.0, open_high=True)
    check_number("freeze_level", freeze_level, low=0.0, high=1.0)


def check_optimizers(
    optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None,
) -> None:
    """Refuse optimizers that would move what has no gradient.

    Args:
        optimizers: The optimizers.

    Raises:
        ValueError: If one of them is L-BFGS, whose direction mixes all parameters of the past.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> check_optimizers(torch.optim.SGD([weight], lr=0.1))
    """
    for optimizer in () if optimizers is None else ensure_tuple(optimizers):
        if isinstance(getattr(optimizer, "base_optimizer", optimizer), torch.optim.LBFGS):
            raise ValueError(
                f"optimizers has {type(optimizer).__name__}, which moves parameters without "
                f"gradients too, so layers cannot be frozen under it; use another optimizer"
            )


def freeze_layers(
    model: torch.nn.Module,
    optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None,
    current_duration: float,
    freeze_start: float = 0.5,
    freeze_level: float = 1.0,
) -> tuple[int, float]:
    """Freeze as many of the first layers as it is time for, in place.

    Layers are the modules that have parameters of their own, in the order of the model. The last
    one that is trainable is never frozen, nor is a parameter that a layer after the frozen ones
    uses too. What is frozen stays so.

    Args:
        model: The model.
        optimizers: Its optimizers. They keep their parameters, so they are only looked at.
        current_duration: The share of the run that is done.
        freeze_start: The share of the run after which freezing starts, from 0 to below 1.
        freeze_level: The share of the layers that is frozen at the end.

    Returns:
        How many layers are to be frozen now, and which share of all.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a number is out of range or an optimizer does not fit.

    Example:
        >>> model = torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(5)])
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> freeze_layers(model, optimizer, current_duration=0.75)
        (2, 0.5)
        >>> [layer.weight.requires_grad for layer in model]
        [False, False, True, True, True]
    """
    check_settings(freeze_start, freeze_level)
    check_number("current_duration", current_duration, low=0.0)
    check_optimizers(optimizers)
    share = share_to_freeze(current_duration, freeze_start, freeze_level)
    # What should be whole but for rounding is not truncated to the number below.
    depth = int(share * num_freezable(model) + 1e-9)
    freeze_first(model, depth)
    return depth, share


def share_to_freeze(current_duration: float, freeze_start: float, freeze_level: float) -> float:
    """Return which share of the layers is to be frozen.

    Args:
        current_duration: The share of the run that is done.
        freeze_start: The share after which freezing starts.
        freeze_level: The share of the layers that is frozen at the end.

    Returns:
        The share: none up to the start, and from there on linear in time.

    Example:
        >>> share_to_freeze(0.75, 0.5, 0.8)
        0.4
    """
    if current_duration <= freeze_start:
        return 0.0
    return freeze_level * min((current_duration - freeze_start) / (1.0 - freeze_start), 1.0)


def num_freezable(model: torch.nn.Module) -> int:
    """Count the layers before the last one that is trainable.

    Args:
        model: The model.

    Returns:
        The number. It stays the same while layers are frozen, since that last one never is.

    Example:
        >>> num_freezable(torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)))
        1
    """
    layers = _layers(model)
    trainable = [i for i, own in enumerate(layers) if any(p.requires_grad for p in own)]
    return trainable[-1] if trainable else 0


def freeze_first(model: torch.nn.Module, depth: int) -> None:
    """Freeze the first layers.

    Args:
        model: The model.
        depth: How many.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
        >>> freeze_first(model, 1)
        >>> [p.requires_grad for p in model.parameters()]
        [False, False, True, True]
    """
    layers = _layers(model)
    used_later = {id(parameter) for own in layers[depth:] for parameter in own}
    for own in layers[:depth]:
        for parameter in own:
            if id(parameter) not in used_later:
                parameter.requires_grad_(False)
                # An old gradient would be applied once more.
                parameter.grad = None


def _layers(model: torch.nn.Module) -> list[list[torch.nn.Parameter]]:
    """The parameters of each module that has some of its own."""
    own = [list(m.parameters(recurse=False)) for m in unwrapped_model(model).modules()]
    return [parameters for parameters in own if parameters]
