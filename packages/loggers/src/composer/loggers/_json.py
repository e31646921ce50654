"""Values of any kind as JSON, which knows neither tensors nor numbers that are not finite."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from composer.loggers._text import format_value

__all__ = ["to_json", "to_json_deep"]


def to_json(value: Any, max_elements: int | None = None) -> Any:
    """Turn a value that JSON does not know into what it does; for ``json.dumps(default=...)``.

    Args:
        value: The value.
        max_elements: Tensors and arrays with more elements are told by their shape.

    Returns:
        Numbers and lists of them, or text; nothing is raised.

    Example:
        >>> to_json(torch.tensor([1, 2])), to_json(1j)
        ([1, 2], '1j')
    """
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        if max_elements is not None and math.prod(value.shape) > max_elements:
            return f"{type(value).__name__} of shape {tuple(value.shape)}"
        with contextlib.suppress(Exception):  # A tensor without data, or a sparse one.
            return value.tolist()
    return list(value) if isinstance(value, (set, frozenset)) else format_value(value)


def to_json_deep(
    value: Any,
    max_elements: int | None = None,
    *,
    non_finite: Callable[[float], Any] = str,
) -> Any:
    """Turn a whole structure into what JSON knows.

    Args:
        value: The structure.
        max_elements: As for :func:`to_json`.
        non_finite: What becomes of ``nan`` and infinities.

    Returns:
        The same of dictionaries, lists, text and finite numbers.

    Example:
        >>> to_json_deep({1: (float("nan"), torch.tensor(2.0))})
        {'1': ['nan', 2.0]}
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else non_finite(value)
    if isinstance(value, dict):
        return {
            str(key): to_json_deep(one, max_elements, non_finite=non_finite)
            for key, one in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [to_json_deep(one, max_elements, non_finite=non_finite) for one in value]
    return to_json_deep(to_json(value, max_elements), max_elements, non_finite=non_finite)
