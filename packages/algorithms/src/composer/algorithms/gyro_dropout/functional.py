"""Gyro dropout as surgery on models."""

from __future__ import annotations

import warnings

import torch

from composer.algorithms.gyro_dropout.layers import GyroDropoutLayer, check_settings
from composer.algorithms.warnings import NoEffectWarning
from composer.utils.checks import check_integer
from composer.utils.module_surgery import count_module_instances, replace_module_classes

__all__ = ["apply_gyro_dropout", "replace_dropouts"]


def apply_gyro_dropout(
    model: torch.nn.Module,
    iters_per_epoch: int,
    max_epoch: int,
    p: float | None = 0.5,
    sigma: int = 256,
    tau: int = 16,
) -> None:
    """Replace every ``torch.nn.Dropout`` by gyro dropout, in place.

    The layers count their own forward passes in training. To go on exactly after a restart, keep
    ``seed`` and ``step`` of each.

    Args:
        model: The model.
        iters_per_epoch: Number of training forward passes per epoch.
        max_epoch: Number of epochs.
        p: Probability that a neuron is dropped; ``None`` for what each layer has.
        sigma: Number of masks.
        tau: Number of masks in use at a time.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a number is out of range.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.1))
        >>> apply_gyro_dropout(model, iters_per_epoch=100, max_epoch=10, p=None)
        >>> model[1]
        GyroDropoutLayer(p=0.1, sigma=256, tau=16)
    """
    check_settings(p, sigma, tau)
    check_integer("iters_per_epoch", iters_per_epoch, low=1)
    check_integer("max_epoch", max_epoch, low=1)
    replace_dropouts(model, p, sigma, tau, length=(iters_per_epoch, max_epoch))


def replace_dropouts(
    model: torch.nn.Module,
    p: float | None,
    sigma: int,
    tau: int,
    *,
    length: tuple[int | None, int | None] = (None, None),
) -> list[GyroDropoutLayer]:
    """Replace every ``torch.nn.Dropout``, in place.

    Args:
        model: The model.
        p: Probability that a neuron is dropped; ``None`` for what each layer has.
        sigma: Number of masks.
        tau: Number of masks in use at a time.
        length: Forward passes per epoch and epochs, if the layers count by themselves.

    Returns:
        All layers of gyro dropout that the model now has, in its order.

    Example:
        >>> len(replace_dropouts(torch.nn.Sequential(torch.nn.Dropout()), 0.5, 4, 2))
        1
    """

    def replace(module: torch.nn.Module, index: int) -> torch.nn.Module | None:
        del index
        assert isinstance(module, torch.nn.Dropout)
        # A subclass may compute something else. What drops all or nothing does so in any way.
        if type(module) is not torch.nn.Dropout or (p is None and module.p in (0.0, 1.0)):
            return None
        rate = module.p if p is None else p
        return GyroDropoutLayer(*length, p=rate, sigma=sigma, tau=tau)

    replace_module_classes(model, {torch.nn.Dropout: replace})
    if not count_module_instances(model, GyroDropoutLayer):
        warnings.warn(
            "GyroDropout found no torch.nn.Dropout that it could replace",
            NoEffectWarning,
            stacklevel=3,
        )
    return [module for module in model.modules() if isinstance(module, GyroDropoutLayer)]
