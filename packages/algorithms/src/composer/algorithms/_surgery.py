"""What surgeries share: a layer that becomes one of another class and stays the same otherwise."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from composer.algorithms.warnings import NoEffectWarning
from composer.core.precision import Precision
from composer.utils.module_surgery import (
    check_surgery,
    count_module_instances,
    replace_module_classes,
)

__all__ = ["narrow_norms", "recast", "to_autocast"]

M = TypeVar("M", bound=nn.Module)

# Precisions under which autocast is on, with a type of its own.
_NARROW = ("amp_fp16", "amp_bf16")


def recast(module: nn.Module, cls: type[M], **attributes: Any) -> M:
    """Make a module of another class that shares everything with a module.

    Parameters, buffers, children, hooks, names and mode are those of the module, so optimizers and
    checkpoints notice nothing.

    Args:
        module: The module.
        cls: A class that works with the module's attributes.
        **attributes: What it needs besides.

    Returns:
        The new module.

    Example:
        >>> class Doubled(nn.Linear):
        ...     def forward(self, x):
        ...         return 2 * super().forward(x)
        >>> plain = nn.Linear(2, 2)
        >>> recast(plain, Doubled).weight is plain.weight
        True
    """
    twin: Any = cls.__new__(cls)
    twin.__dict__.update(module.__dict__)
    for name in ("_parameters", "_buffers", "_modules"):
        twin.__dict__[name] = dict(module.__dict__[name])
    for name, value in attributes.items():
        setattr(twin, name, value)
    return twin


def to_autocast(*tensors: torch.Tensor | None) -> list[torch.Tensor | None]:
    """Turn tensors into the type that autocast computes in, if it is on.

    Args:
        *tensors: The tensors, the first of which tells the device; ``None`` stays.

    Returns:
        The tensors, as they are where autocast is off or they are not floating.

    Example:
        >>> with torch.autocast("cpu", torch.bfloat16):
        ...     to_autocast(torch.ones(1), None)
        [tensor([1.], dtype=torch.bfloat16), None]
    """
    first = tensors[0]
    assert first is not None
    kind = first.device.type
    if not torch.is_autocast_enabled(kind):
        return list(tensors)
    dtype = torch.get_autocast_dtype(kind)
    return [
        tensor.to(dtype) if tensor is not None and tensor.is_floating_point() else tensor
        for tensor in tensors
    ]


def narrow_norms(
    model: nn.Module,
    plain: type[nn.Module],
    narrow: type[nn.Module],
    *,
    owner: str,
    precision: Any | None,
    optimizers: Optimizer | Sequence[Optimizer] | None,
) -> None:
    """Recast all normalisations of a class, where mixed precision makes a difference.

    Args:
        model: The model, changed in place.
        plain: The class; its subclasses may compute something else and are left alone.
        narrow: What they become.
        owner: The method that asks, for warnings.
        precision: The precision of training, or ``None`` if it is unknown.
        optimizers: Optimizers to bring up to date.

    Raises:
        TypeError: If the model or an optimizer is none, or the precision no name.
        ValueError: If there is no such precision.

    Example:
        >>> class Narrow(nn.LayerNorm):
        ...     pass
        >>> model = nn.Sequential(nn.LayerNorm(2))
        >>> narrow_norms(
        ...     model, nn.LayerNorm, Narrow, owner="Some", precision=None, optimizers=None
        ... )
        >>> type(model[0]).__name__
        'Narrow'
    """
    check_surgery(model, optimizers)
    value = _precision_value(precision)
    if value is not None and value not in _NARROW:
        warnings.warn(
            f"{owner} does nothing with precision={value!r}; it is for {' and '.join(_NARROW)}",
            NoEffectWarning,
            stacklevel=3,
        )
        return

    def replace(module: nn.Module, index: int) -> nn.Module | None:
        del index
        return recast(module, narrow) if type(module) is plain else None

    replace_module_classes(model, {plain: replace}, optimizers=optimizers)
    if not count_module_instances(model, narrow):
        warnings.warn(
            f"{owner} found no {plain.__name__} to replace", NoEffectWarning, stacklevel=3
        )


def _precision_value(precision: Any | None) -> str | None:
    if precision is None:
        return None
    try:
        return Precision(precision).value
    except (TypeError, ValueError):
        names = [one.value for one in Precision]
        kind = ValueError if isinstance(precision, str) else TypeError
        raise kind(f"precision={precision!r} must be one of {names}, or None") from None
