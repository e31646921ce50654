"""What the task classes share: reading the module, the number of classes and the metrics given."""

from __future__ import annotations

import warnings
from typing import Any

import torch

__all__ = [
    "agree_on_num_classes",
    "by_name",
    "check_metrics",
    "check_module",
    "require_num_classes",
]


def check_module(module: Any) -> None:
    """Refuse what is no module.

    Args:
        module: What the user gave.

    Raises:
        TypeError: If it is no ``torch.nn.Module``.

    Example:
        >>> check_module(torch.nn.Identity())
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, not {type(module).__name__}")


def agree_on_num_classes(module: torch.nn.Module, given: int | None) -> int | None:
    """Choose between the module's own number of classes and the one given.

    Args:
        module: The module, which may have ``num_classes``.
        given: What the user gave.

    Returns:
        The module's own, with a warning if another was given; else the given one.

    Example:
        >>> agree_on_num_classes(torch.nn.Identity(), 5)
        5
    """
    own = getattr(module, "num_classes", None)
    if own is None:
        return given
    if given is not None and given != own:
        warnings.warn(
            f"num_classes={given} differs from the module's own num_classes={own}, which is used",
            stacklevel=3,
        )
    return int(own)


def require_num_classes(num_classes: int | None) -> None:
    """Refuse to make metrics of classes of which nobody said how many there are.

    Args:
        num_classes: Their number, if it is known.

    Raises:
        ValueError: If it is not.

    Example:
        >>> require_num_classes(3)
    """
    if num_classes is None:
        raise ValueError(
            "num_classes is needed for the default metrics and the module has no attribute "
            "`num_classes`; give num_classes, or both train_metrics and val_metrics"
        )


def by_name(metrics: Any) -> dict[str, Any]:
    """Name metrics: one is kept under its class name, a mapping keeps its names.

    Args:
        metrics: A metric, or a mapping of names to metrics.

    Returns:
        Name to metric.

    Example:
        >>> from composer.metrics import CrossEntropy
        >>> list(by_name(CrossEntropy()))
        ['CrossEntropy']
    """
    items = getattr(metrics, "items", None)
    return {type(metrics).__name__: metrics} if items is None else dict(items())


def check_metrics(**arguments: Any) -> None:
    """Refuse metrics that lack a method.

    Args:
        **arguments: Argument name to what the user gave.

    Raises:
        TypeError: If one has no ``update``, ``compute`` or ``reset``.

    Example:
        >>> from composer.metrics import CrossEntropy
        >>> check_metrics(train_metrics=CrossEntropy())
    """
    for argument, given in arguments.items():
        for name, metric in by_name(given).items():
            for method in ("update", "compute", "reset"):
                if not callable(getattr(metric, method, None)):
                    raise TypeError(
                        f"{argument}[{name!r}] must be a metric with `update`, `compute` and "
                        f"`reset`; {type(metric).__name__} has no `{method}`"
                    )
