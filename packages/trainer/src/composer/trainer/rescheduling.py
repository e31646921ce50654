"""A torch schedule that the script changed, brought to where the run is.

Torch's schedulers compute a rate from the one before, so that changing a setting of one in the
middle changes some of its future and nothing of its past. What the script asks for is the rate that
its schedule has here. Therefore a scheduler that was changed begins again, as the script made it,
and takes as many steps as the run has taken.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from composer.utils.tensors import clone_tensors

__all__ = ["TorchSchedule", "begin_again", "leaves", "let_go", "parts"]

# What a cyclic schedule keeps in its optimizer's groups.
_CYCLIC = ("max_lr", "min_lr", "max_momentum", "base_momentum")


def parts(scheduler: LRScheduler) -> list[LRScheduler]:
    """Return the schedulers that a scheduler of torch is made of.

    Args:
        scheduler: Any of torch's.

    Returns:
        Those of a ``SequentialLR`` or a ``ChainedScheduler``; none for others.

    Example:
        >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
        >>> parts(torch.optim.lr_scheduler.StepLR(optimizer, 1))
        []
    """
    return list(getattr(scheduler, "_schedulers", ()))


def leaves(scheduler: LRScheduler) -> Iterator[LRScheduler]:
    """Yield the schedulers that compute rates themselves, in the order in which they were made.

    Args:
        scheduler: Any of torch's.

    Yields:
        The scheduler itself, or those that it is made of.

    Example:
        >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
        >>> chain = [torch.optim.lr_scheduler.StepLR(optimizer, n) for n in (1, 2)]
        >>> chained = torch.optim.lr_scheduler.ChainedScheduler(chain)
        >>> [leaf.step_size for leaf in leaves(chained)]
        [1, 2]
    """
    inner = parts(scheduler)
    if not inner:
        yield scheduler
    for part in inner:
        yield from leaves(part)


@dataclass(frozen=True, eq=False)
class TorchSchedule:
    """A scheduler of torch, and its state as the script made it.

    Attributes:
        scheduler: The scheduler, whose own state may be a checkpoint's by now.
        fresh: Its ``state_dict`` before that.

    Example:
        >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
        >>> made = TorchSchedule.of(torch.optim.lr_scheduler.StepLR(optimizer, 30))
        >>> made.fresh["step_size"]
        30
    """

    scheduler: LRScheduler
    fresh: dict[str, Any]

    @classmethod
    def of(cls, scheduler: LRScheduler) -> TorchSchedule:
        """Take down a scheduler's state.

        Args:
            scheduler: As the script made it.

        Returns:
            Both.
        """
        return cls(scheduler, clone_tensors(scheduler.state_dict()))

    def parts(self) -> list[TorchSchedule]:
        """Return what the scheduler is made of, each with its part of the state.

        Returns:
            The parts; changing their ``fresh`` changes this one's.
        """
        states = self.fresh.get("_schedulers", ())
        return [TorchSchedule(*pair) for pair in zip(parts(self.scheduler), states, strict=True)]


def begin_again(schedules: Sequence[TorchSchedule], num_steps: int | None = None) -> None:
    """Let the schedulers of one optimizer begin again, and bring them to where the run is.

    Args:
        schedules: All of torch's that drive one optimizer, in the order in which they step.
        num_steps: How many steps each takes; by default as many as it has taken already.

    Raises:
        ValueError: If a schedule is over before that.

    Example:
        >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
        >>> schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
        >>> begin_again([TorchSchedule.of(schedule)], 2)
        >>> round(optimizer.param_groups[0]["lr"], 6)
        0.001
    """
    groups = schedules[0].scheduler.optimizer.param_groups
    counts = [_place(s.scheduler) if num_steps is None else num_steps for s in schedules]
    for group in groups:
        _set_rate(group, group["initial_lr"])
    with warnings.catch_warnings():
        # Torch would have the optimizer step in between, as it did in the run that is continued.
        warnings.simplefilter("ignore", UserWarning)
        for schedule in schedules:
            schedule.scheduler.load_state_dict(clone_tensors(schedule.fresh))
            for leaf in leaves(schedule.scheduler):
                if hasattr(leaf, "base_lrs"):
                    leaf.base_lrs = [group["initial_lr"] for group in groups]
                if leaf.last_epoch == 0:  # the others of a sequence have not begun
                    leaf.last_epoch = -1
                    leaf._initial_step()
        for step in range(max(counts)):
            for schedule, count in zip(schedules, counts, strict=True):
                if step < count:
                    _step(schedule.scheduler, count)


def _step(scheduler: LRScheduler, count: int) -> None:
    try:
        scheduler.step()
    except ValueError as error:
        raise ValueError(
            f"the {type(scheduler).__name__} of this script cannot take the {count} steps that the "
            f"run has taken: {error}"
        ) from error


def _place(scheduler: LRScheduler) -> int:
    """How many steps a scheduler has taken."""
    own = getattr(scheduler, "last_epoch", None)  # a ChainedScheduler does not count
    return max(map(_place, parts(scheduler)), default=0) if own is None else int(own)


def _set_rate(group: dict[str, Any], rate: Any) -> None:
    if isinstance(group["lr"], torch.Tensor):  # a compiled or capturable step holds on to it
        group["lr"].copy_(torch.as_tensor(rate))
    else:
        group["lr"] = rate


def let_go(
    optimizer: torch.optim.Optimizer, asked: Sequence[Mapping[str, Any]], *, scheduled: bool
) -> None:
    """Give an optimizer back what schedules moved that are there no more.

    Args:
        optimizer: The optimizer.
        asked: Per group, the options that the script asks for.
        scheduled: Whether other schedules drive it now, which set its rate.

    Example:
        >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
        >>> optimizer.param_groups[0].update(lr=0.01, initial_lr=0.1)
        >>> let_go(optimizer, [{"lr": 0.1}], scheduled=False)
        >>> optimizer.param_groups[0]["lr"]
        0.1
    """
    for group, options in zip(optimizer.param_groups, asked, strict=False):
        if not scheduled and "initial_lr" in group:
            _set_rate(group, group.pop("initial_lr"))
        if "base_momentum" in group and "base_momentum" not in options:
            group.update({k: options[k] for k in ("momentum", "betas") if k in options})
        for key in _CYCLIC:
            if key not in options:
                group.pop(key, None)
