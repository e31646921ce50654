"""The schedules, one family to a file."""

from __future__ import annotations

from composer.optim.schedules.base import ComposerScheduler
from composer.optim.schedules.constant import ConstantScheduler, ConstantWithWarmupScheduler
from composer.optim.schedules.cosine import (
    CosineAnnealingScheduler,
    CosineAnnealingWarmRestartsScheduler,
    CosineAnnealingWithWarmupScheduler,
)
from composer.optim.schedules.exponential import ExponentialScheduler
from composer.optim.schedules.linear import LinearScheduler, LinearWithWarmupScheduler
from composer.optim.schedules.polynomial import (
    PolynomialScheduler,
    PolynomialWithWarmupScheduler,
)
from composer.optim.schedules.step import (
    MultiStepScheduler,
    MultiStepWithWarmupScheduler,
    StepScheduler,
)

__all__ = [
    "ComposerScheduler",
    "ConstantScheduler",
    "ConstantWithWarmupScheduler",
    "CosineAnnealingScheduler",
    "CosineAnnealingWarmRestartsScheduler",
    "CosineAnnealingWithWarmupScheduler",
    "ExponentialScheduler",
    "LinearScheduler",
    "LinearWithWarmupScheduler",
    "MultiStepScheduler",
    "MultiStepWithWarmupScheduler",
    "PolynomialScheduler",
    "PolynomialWithWarmupScheduler",
    "StepScheduler",
]
