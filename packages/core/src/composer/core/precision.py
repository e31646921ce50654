"""Numeric precision as a value, and the autocast context that goes with it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from composer.utils.string_enum import StringEnum
from composer.utils.suggestions import did_you_mean

if TYPE_CHECKING:
    from composer.devices.base import Device

__all__ = [
    "Precision",
    "autocast_factory",
    "ensure_precision",
    "get_precision_context",
    "validate_precision",
]


class Precision(StringEnum):
    """Number formats of the forward pass and the loss.

    Example:
        >>> Precision("amp_bf16") is Precision.AMP_BF16
        True
    """

    FP32 = "fp32"
    AMP_FP16 = "amp_fp16"
    AMP_BF16 = "amp_bf16"
    AMP_FP8 = "amp_fp8"


_ALIASES = {"amp": Precision.AMP_FP16, "bf16": Precision.AMP_BF16, "fp16": Precision.AMP_FP16}
_AUTOCAST_DTYPE = {Precision.AMP_FP16: torch.float16, Precision.AMP_BF16: torch.bfloat16}
_NO_CONTEXT = nullcontext()


def ensure_precision(precision: str | Precision) -> Precision:
    """Turn what a user wrote into a precision.

    Args:
        precision: A precision, its name, or one of the short names ``amp``, ``fp16``, ``bf16``.

    Returns:
        The precision.

    Raises:
        ValueError: If the name is unknown.

    Example:
        >>> ensure_precision("bf16") is Precision.AMP_BF16
        True
    """
    if isinstance(precision, Precision):
        return precision
    name = str(precision).lower()
    if name in _ALIASES:
        return _ALIASES[name]
    known = [p.value for p in Precision]
    if name not in known:
        raise ValueError(
            f"unknown precision {precision!r}; known: {[*known, *_ALIASES]}."
            f"{did_you_mean(name, [*known, *_ALIASES])}"
        )
    return Precision(name)


def validate_precision(precision: Precision, device: Device) -> None:
    """Refuse what a device cannot do, before anything is built.

    Args:
        precision: The precision.
        device: The device, which says what it can do.

    Raises:
        NotImplementedError: For ``amp_fp8``.
        ValueError: If the device does not list the precision.

    Example:
        >>> from composer.devices import DeviceCPU
        >>> validate_precision(Precision.AMP_BF16, DeviceCPU())
    """
    if precision is Precision.AMP_FP8:
        raise NotImplementedError(
            "precision='amp_fp8' needs TransformerEngine on a device of capability 8.9 or newer "
            "and comes with a later release; use 'amp_bf16'"
        )
    if precision.value not in device.precisions:
        raise ValueError(
            f"precision={precision.value!r} does not work on device={device.name!r}; use one of "
            f"{sorted(device.precisions)}"
        )


def autocast_factory(
    precision: str | Precision, device_type: str
) -> Callable[[], AbstractContextManager[Any]]:
    """Return a function that makes the context of one forward pass.

    Args:
        precision: The precision.
        device_type: Type of torch device, such as ``"cpu"`` or ``"cuda"``.

    Returns:
        A function without arguments; for ``fp32`` its context does nothing and costs nothing.

    Raises:
        NotImplementedError: For ``amp_fp8``.

    Example:
        >>> with autocast_factory("amp_bf16", "cpu")():
        ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
        torch.bfloat16
    """
    precision = ensure_precision(precision)
    if precision is Precision.FP32:
        return lambda: _NO_CONTEXT
    dtype = _AUTOCAST_DTYPE.get(precision)
    if dtype is None:
        raise NotImplementedError(f"precision={precision.value!r} comes with a later release")
    return lambda: torch.autocast(device_type, dtype=dtype)


def get_precision_context(
    precision: str | Precision,
    precision_config: dict[str, Any] | None = None,
    fp8_autocast_enabled: bool = True,
    *,
    device_type: str | None = None,
) -> AbstractContextManager[Any]:
    """Return the context in which forward pass and loss run.

    Args:
        precision: The precision.
        precision_config: Settings of the FP8 recipe; unused by the other precisions.
        fp8_autocast_enabled: Whether FP8 is on; unused by the other precisions.
        device_type: Type of torch device; by default the current accelerator's, else ``"cpu"``.

    Returns:
        The context manager.

    Example:
        >>> with get_precision_context("fp32"):
        ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
        torch.float32
    """
    del precision_config, fp8_autocast_enabled
    if device_type is None:
        accelerator = torch.accelerator.current_accelerator() if _has_accelerator() else None
        device_type = "cpu" if accelerator is None else accelerator.type
    return autocast_factory(precision, device_type)()


def _has_accelerator() -> bool:
    return torch.accelerator.is_available()
