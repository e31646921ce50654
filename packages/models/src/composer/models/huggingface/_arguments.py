"""Checks of what users hand to this part of the library, before anything is built or read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from composer.models._tasks import check_metrics

__all__ = ["check_tokenizer", "metrics_by_name"]


def check_tokenizer(tokenizer: Any) -> None:
    """Refuse what cannot be kept in a checkpoint as a tokenizer is.

    Args:
        tokenizer: A tokenizer or processor, or ``None``.

    Raises:
        TypeError: If it has no ``save_pretrained``.

    Example:
        >>> check_tokenizer(5)
        Traceback (most recent call last):
        TypeError: tokenizer=5 must be a tokenizer or processor of transformers, ...
    """
    if tokenizer is not None and not callable(getattr(tokenizer, "save_pretrained", None)):
        raise TypeError(
            f"tokenizer={tokenizer!r} must be a tokenizer or processor of transformers, such as "
            f"AutoTokenizer.from_pretrained(...) returns"
        )


def metrics_by_name(argument: str, metrics: Any) -> dict[str, Any]:
    """Name metrics, by the mapping that they were given in or by their classes.

    Args:
        argument: The argument's name, for errors.
        metrics: A sequence or a mapping of metrics, or ``None``.

    Returns:
        Name to metric.

    Raises:
        TypeError: If it is neither, or a metric lacks a method.
        ValueError: If two metrics have one name.

    Example:
        >>> metrics_by_name("metrics", 5)
        Traceback (most recent call last):
        TypeError: metrics=5 must be a sequence of metrics or a mapping of names to metrics
    """
    named: dict[str, Any] = {}
    if isinstance(metrics, Mapping) or callable(getattr(metrics, "items", None)):
        named = dict(metrics.items())
    elif metrics is None or (isinstance(metrics, Iterable) and not isinstance(metrics, str)):
        for metric in metrics or ():
            name = type(metric).__name__
            if name in named:
                raise ValueError(
                    f"{argument} holds two metrics of the class {name}; give a mapping of names to "
                    f"metrics to tell them apart"
                )
            named[name] = metric
    else:
        raise TypeError(
            f"{argument}={metrics!r} must be a sequence of metrics or a mapping of names to metrics"
        )
    check_metrics(**{argument: named})
    return named
