"""From schedules to torch: compiling ours, scaling torch's own.

The trainer steps torch schedulers and nothing else. A schedule of ours becomes a ``LambdaLR`` that
asks it again after every advance of the timestamp; a torch scheduler is used as it is, and
stretched in place when the run is scaled.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LRScheduler,
    MultiStepLR,
    StepLR,
)

from composer.optim.schedules import (
    ComposerScheduler,
    ConstantScheduler,
    ConstantWithWarmupScheduler,
    CosineAnnealingScheduler,
    CosineAnnealingWarmRestartsScheduler,
    CosineAnnealingWithWarmupScheduler,
    ExponentialScheduler,
    LinearScheduler,
    LinearWithWarmupScheduler,
    MultiStepScheduler,
    MultiStepWithWarmupScheduler,
    PolynomialScheduler,
    PolynomialWithWarmupScheduler,
    StepScheduler,
)

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from composer.core.state import State

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
    "compile_composer_scheduler",
    "scale_pytorch_scheduler",
]


def compile_composer_scheduler(
    scheduler: ComposerScheduler | Callable[[State], float],
    state: State,
    ssr: float = 1.0,
    *,
    optimizer: Optimizer | None = None,
) -> LRScheduler:
    """Turn a schedule into a torch scheduler for one of the state's optimizers.

    The schedule is asked once right away, so that one that does not fit the run fails here. If a
    factor is not a finite number, that is an error at any time. The max duration on the state must
    already be scaled by ``ssr``. Step the result after the timestamp has advanced.

    Args:
        scheduler: The schedule, or a function of the state alone if ``ssr`` is 1.
        state: The training state, with its optimizers, max duration and dataloader.
        ssr: The scale schedule ratio.
        optimizer: The optimizer to drive; may be left out if there is one only.

    Returns:
        A ``LambdaLR``.

    Raises:
        TypeError: If ``scheduler`` cannot be called, or takes no ratio and ``ssr`` is not 1.
        ValueError: If it is not clear which optimizer is meant, the ratio is not positive, or the
            schedule does not fit the run.

    Example:
        >>> import torch
        >>> from types import SimpleNamespace
        >>> from composer.core.time import Time
        >>> from composer.core.timestamp import Timestamp
        >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
        >>> state = SimpleNamespace(optimizers=[optimizer], timestamp=Timestamp(batch=2),
        ...                         max_duration=Time(4, "ba"), dataloader_len=None)
        >>> compile_composer_scheduler(LinearScheduler(), state).get_last_lr()
        [0.05]
    """
    if not callable(scheduler):
        raise TypeError(f"a scheduler must be callable on the state, got {scheduler!r}")
    if optimizer is None:
        if len(state.optimizers) != 1:
            raise ValueError(
                f"a schedule drives exactly one optimizer, but the state has "
                f"{len(state.optimizers)}; say which with `optimizer`"
            )
        optimizer = state.optimizers[0]
    _check_ratio(ssr)
    if ssr != 1.0 and not isinstance(scheduler, ComposerScheduler):
        try:
            inspect.signature(scheduler).bind(state, ssr)
        except TypeError:
            raise TypeError(
                f"scale_schedule_ratio={ssr:g} needs a scheduler that takes (state, ssr); "
                f"{scheduler!r} takes the state alone"
            ) from None

    def factor(_step: int) -> float:
        try:
            value = scheduler(state) if ssr == 1.0 else scheduler(state, ssr)  # type: ignore[call-arg]
        except OverflowError:
            value = math.inf
        try:
            finite = math.isfinite(value)
        except (TypeError, ValueError, OverflowError):
            finite = False
        if not finite:
            name = getattr(scheduler, "__qualname__", type(scheduler).__qualname__)
            raise ValueError(
                f"the schedule {name} gives the factor {value!r} at batch "
                f"{int(state.timestamp.batch)}; a learning rate needs a finite number"
            )
        return value

    return LambdaLR(optimizer, factor)


def _check_ratio(ssr: float) -> None:
    if not (ssr > 0 and math.isfinite(ssr)):
        raise ValueError(f"scale_schedule_ratio must be finite and more than zero, got {ssr!r}")


def scale_pytorch_scheduler(scheduler: LRScheduler, ssr: float) -> None:
    """Stretch or shrink one of torch's own schedulers in place.

    Args:
        scheduler: A ``StepLR``, ``MultiStepLR``, ``CosineAnnealingLR``,
            ``CosineAnnealingWarmRestarts`` or ``ExponentialLR`` that has not been stepped.
        ssr: The ratio; 2 makes the schedule take twice as long.

    Raises:
        ValueError: If the scheduler is of another kind, the ratio is not positive, or a length
            becomes zero.

    Example:
        >>> import torch
        >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
        >>> scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10)
        >>> scale_pytorch_scheduler(scheduler, 0.5)
        >>> scheduler.step_size
        5
    """
    _check_ratio(ssr)

    def scaled(argument: str, length: int) -> int:
        new = int(length * ssr + 1e-9)
        if new == 0:
            raise ValueError(
                f"scale_schedule_ratio={ssr:g} turns {argument}={length} of "
                f"{type(scheduler).__name__} into 0"
            )
        return new

    if isinstance(scheduler, StepLR):
        scheduler.step_size = scaled("step_size", scheduler.step_size)
    elif isinstance(scheduler, MultiStepLR):
        milestones: Counter[int] = Counter()
        for milestone, times in scheduler.milestones.items():
            milestones[int(milestone * ssr + 1e-9)] += times
        scheduler.milestones = milestones
    elif isinstance(scheduler, CosineAnnealingLR):
        scheduler.T_max = scaled("T_max", int(scheduler.T_max))
    elif isinstance(scheduler, CosineAnnealingWarmRestarts):
        scheduler.T_0 = scheduler.T_i = scaled("T_0", scheduler.T_0)
    elif isinstance(scheduler, ExponentialLR):
        scheduler.gamma = scheduler.gamma ** (1.0 / ssr)
    else:
        raise ValueError(
            f"scale_schedule_ratio={ssr:g} cannot scale a {type(scheduler).__name__}: supported "
            "are StepLR, MultiStepLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, "
            "ExponentialLR and the schedulers of composer.optim"
        )
