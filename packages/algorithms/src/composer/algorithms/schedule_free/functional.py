"""Optimizers without a schedule: from one of torch's, and the weights that they mean.

Such an optimizer computes gradients at one point and answers with another, an average. The weights
in the model are those of the first while it trains, those of the second inside
:func:`averaged_weights`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim import SGD, Adam, AdamW, Optimizer

from composer.utils.checks import check_integer, check_number
from composer.utils.imports import MissingConditionalImportError

__all__ = [
    "averaged_weights",
    "check_settings",
    "is_schedule_free",
    "make_schedule_free",
    "require_package",
    "weights_put_back",
]

_ACCEPTED = "torch.optim.SGD, AdamW, Adam without weight decay, and optimizers of schedulefree"


def check_settings(warmup_steps: int, r: float, weight_lr_power: float) -> None:
    """Refuse settings out of range.

    Args:
        warmup_steps: Number of steps of warm-up.
        r: Power of the step's number in the weights of the average.
        weight_lr_power: Power of the learning rate in the weights of the average.

    Raises:
        TypeError: If one has the wrong type.
        ValueError: If one is negative.

    Example:
        >>> check_settings(0, 0.0, 2.0)
    """
    check_integer("warmup_steps", warmup_steps, low=0)
    check_number("r", r, low=0.0)
    check_number("weight_lr_power", weight_lr_power, low=0.0)


def require_package() -> None:
    """Refuse to go on without the package ``schedulefree``.

    Raises:
        MissingConditionalImportError: If it is not installed.

    Example:
        >>> require_package()
    """
    if importlib.util.find_spec("schedulefree") is None:
        raise MissingConditionalImportError(
            "schedulefree", "schedulefree", distribution="composer-algorithms"
        )


def is_schedule_free(optimizer: Optimizer) -> bool:
    """Say whether an optimizer has two sets of weights to switch between.

    Args:
        optimizer: The optimizer.

    Returns:
        Whether it has ``train`` and ``eval``, and groups that remember which of them was called.

    Example:
        >>> is_schedule_free(SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1))
        False
    """
    return all(callable(getattr(optimizer, name, None)) for name in ("train", "eval")) and all(
        "train_mode" in group for group in optimizer.param_groups
    )


def make_schedule_free(
    optimizer: Optimizer,
    warmup_steps: int = 0,
    r: float = 0.0,
    weight_lr_power: float = 2.0,
) -> Optimizer:
    """Make an optimizer that needs no schedule out of one of torch's.

    Parameter groups keep their learning rates, betas and weight decays. A momentum of zero becomes
    0.9, since here it says where between the two sets of weights gradients are taken.

    Args:
        optimizer: An SGD, an AdamW, or an Adam without weight decay that has made no step yet. One
            of the package ``schedulefree`` is returned as it is.
        warmup_steps: Over how many steps the learning rate rises to its value.
        r: The average weighs step ``t`` by ``t ** r``.
        weight_lr_power: The average weighs a step by its learning rate to this power.

    Returns:
        The optimizer, ready for training.

    Raises:
        MissingConditionalImportError: If the package ``schedulefree`` is not installed.
        TypeError: If a setting has the wrong type, or the optimizer is of another class.
        ValueError: If a setting is out of range, the optimizer has made steps, or has an option
            that has no counterpart.

    Example:
        >>> weights = torch.nn.Parameter(torch.ones(1))
        >>> type(make_schedule_free(SGD([weights], lr=1.0))).__name__
        'SGDScheduleFree'
    """
    check_settings(warmup_steps, r, weight_lr_power)
    if is_schedule_free(optimizer):
        optimizer.train()  # type: ignore[attr-defined]
        return optimizer
    kind = type(optimizer)
    if kind not in (SGD, AdamW, Adam):
        raise TypeError(
            f"optimizer={kind.__name__} cannot be made schedule-free; accepted are {_ACCEPTED}"
        )
    if optimizer.state:
        raise ValueError("the optimizer has made steps; make it schedule-free before the first")
    for option in ("amsgrad", "maximize", "dampening", "nesterov"):
        if any(group.get(option) for group in optimizer.param_groups):
            raise ValueError(f"{option} of {kind.__name__} has no schedule-free counterpart")
    if kind is Adam and any(group["weight_decay"] for group in optimizer.param_groups):
        raise ValueError(
            "weight_decay of Adam is not that of its schedule-free counterpart, which decays "
            "weights as AdamW does; use AdamW"
        )
    require_package()
    from schedulefree import AdamWScheduleFree, SGDScheduleFree

    groups = [_options_of(group, kind) for group in optimizer.param_groups]
    made = (SGDScheduleFree if kind is SGD else AdamWScheduleFree)(
        groups, warmup_steps=warmup_steps, r=r, weight_lr_power=weight_lr_power
    )
    made.train()
    return made


def _options_of(group: Mapping[str, Any], kind: type[Optimizer]) -> dict[str, Any]:
    """What a parameter group keeps."""
    names = ("params", "lr", "weight_decay", *(() if kind is SGD else ("betas", "eps")))
    options = {name: group[name] for name in names}
    if kind is SGD:
        options["momentum"] = group["momentum"] or 0.9
    return options


@contextmanager
def averaged_weights(optimizers: Sequence[Optimizer]) -> Iterator[list[torch.Tensor]]:
    """Let a model hold the average, which is what to evaluate and to keep.

    Args:
        optimizers: The optimizers; those that are not schedule-free are left alone.

    Yields:
        The weights being trained, one for each parameter of the optimizers; they come back
        bit by bit.

    Example:
        >>> weights = torch.nn.Parameter(torch.zeros(1))
        >>> optimizer = make_schedule_free(SGD([weights], lr=1.0))
        >>> for _ in range(2):
        ...     weights.grad = torch.ones(1)
        ...     optimizer.step()
        >>> with averaged_weights([optimizer]):
        ...     weights.data  # the mean of -1 and -2
        tensor([-1.5000])
    """
    switched = [optimizer for optimizer in optimizers if is_schedule_free(optimizer)]
    parameters = [p for o in switched for group in o.param_groups for p in group["params"]]
    kept = [parameter.detach().clone() for parameter in parameters]
    for optimizer in switched:
        optimizer.eval()  # type: ignore[attr-defined]
    try:
        yield kept
    finally:
        weights_put_back(switched, kept)


def weights_put_back(optimizers: Sequence[Optimizer], kept: Sequence[torch.Tensor]) -> None:
    """Let a model hold the weights being trained.

    Args:
        optimizers: Schedule-free optimizers.
        kept: The weights, one for each of their parameters.

    Raises:
        ValueError: If there are more or fewer weights than parameters.

    Example:
        >>> weights = torch.nn.Parameter(torch.zeros(1))
        >>> optimizer = make_schedule_free(SGD([weights], lr=1.0))
        >>> weights_put_back([optimizer], [torch.ones(1)])
        >>> weights.data
        tensor([1.])
    """
    parameters = [p for o in optimizers for group in o.param_groups for p in group["params"]]
    with torch.no_grad():
        for parameter, value in zip(parameters, kept, strict=True):
            parameter.copy_(value)
    for optimizer in optimizers:
        # Not by its own `train`, which would compute the weights anew, to rounding.
        for group in optimizer.param_groups:
            group["train_mode"] = True
