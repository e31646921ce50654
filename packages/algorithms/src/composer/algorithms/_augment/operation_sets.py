"""Sets of operations by name, and a choice among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from composer.algorithms._augment import operations
from composer.utils.checks import check_choice, check_number

__all__ = ["AUGMENTATION_SETS", "Operation", "check_severity", "choose", "operations_of"]

#: From an image and a level to an image of the same kind and size.
Operation = Callable[[Any, float], Any]

_SAFE: tuple[Operation, ...] = (
    operations.autocontrast,
    operations.equalize,
    operations.posterize,
    operations.rotate,
    operations.solarize,
    operations.shear_x,
    operations.shear_y,
    operations.translate_x,
    operations.translate_y,
)

#: ``safe`` leaves out what tests of robustness, such as ImageNet-C, do to images themselves.
AUGMENTATION_SETS: Mapping[str, tuple[Operation, ...]] = MappingProxyType(
    {
        "all": (
            *_SAFE,
            operations.color,
            operations.contrast,
            operations.brightness,
            operations.sharpness,
        ),
        "safe": _SAFE,
        "original": (
            *_SAFE,
            operations.color_original,
            operations.contrast_original,
            operations.brightness_original,
            operations.sharpness_original,
        ),
    }
)


def operations_of(augmentation_set: str | Sequence[Operation]) -> tuple[Operation, ...]:
    """Turn what a user gave into operations.

    Args:
        augmentation_set: The name of a set, or functions of image and level.

    Returns:
        The operations.

    Raises:
        TypeError: If it is neither.
        ValueError: If no set has that name, or there is no operation.

    Example:
        >>> len(operations_of("all")), len(operations_of("safe"))
        (13, 9)
    """
    if isinstance(augmentation_set, str):
        check_choice("augmentation_set", augmentation_set, AUGMENTATION_SETS)
        return AUGMENTATION_SETS[augmentation_set]
    given = augmentation_set if isinstance(augmentation_set, (list, tuple)) else None
    if given is None or not all(map(callable, given)):
        raise TypeError(
            f"augmentation_set={augmentation_set!r} must be one of {tuple(AUGMENTATION_SETS)}, or "
            f"a list of functions (image, level) -> image"
        )
    if not given:
        raise ValueError("augmentation_set=[] must hold at least one operation")
    return tuple(given)


def check_severity(severity: float) -> None:
    """Refuse a severity that is no level of the operations.

    Args:
        severity: The severity.

    Raises:
        TypeError: If it is no number.
        ValueError: If it is not from 0 to 10.

    Example:
        >>> check_severity(3)
    """
    check_number("severity", severity, low=0.0, high=operations.MAX_LEVEL)


def choose(among: Sequence[Operation]) -> Operation:
    """Draw one of the operations.

    Args:
        among: The operations.

    Returns:
        One of them.

    Example:
        >>> choose([operations.rotate]).__name__
        'rotate'
    """
    return among[int(torch.randint(len(among), ()))]
