"""Optimizers that take turns, each with a loss of its own: two networks trained against each other.

An :class:`OptimizerStep` says which of the model's methods compute its outputs and its loss, how
often it takes part, and by which schedules. In a batch the steps run one after the other, each as
a whole batch of its own (forward, loss, backward, update, with all events), while the parameters
of the others stand still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from composer.trainer.nonfinite import NonFiniteAction
from composer.trainer.step import BatchStep
from composer.utils.counts import is_count

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = [
    "AlternatingStep",
    "OptimizerStep",
    "check_turns",
    "follow_optimizers",
    "split_optimizers",
]


@dataclass(frozen=True)
class OptimizerStep:
    """One optimizer's turn in a batch.

    Args:
        optimizer: The optimizer, over a part of the model's parameters.
        name: Under which its losses are logged: ``loss/train/<name>/total``.
        forward: Name of the model's method that computes the outputs from a batch.
        loss: Name of the model's method that computes the loss from outputs and batch.
        every: Every how many batches it takes part.
        schedulers: Its learning rate schedules, as the trainer takes them.

    Raises:
        TypeError: If ``optimizer`` is no optimizer.
        ValueError: If ``every`` is not a positive whole number, or the name is empty.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> critic = torch.optim.SGD([weight], lr=0.1)
        >>> OptimizerStep(critic, name="critic", loss="critic_loss", every=2).every
        2
    """

    optimizer: torch.optim.Optimizer
    name: str
    forward: str = "forward"
    loss: str = "loss"
    every: int = 1
    schedulers: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            raise TypeError(f"optimizer must be a torch.optim.Optimizer, not {self.optimizer!r}")
        if not is_count(self.every):
            raise ValueError(f"every must be a positive whole number, not {self.every!r}")
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"name must be a non-empty string, not {self.name!r}")

    def check(self, model: torch.nn.Module) -> None:
        """Refuse methods that the model does not have.

        Args:
            model: The model.

        Raises:
            ValueError: If one is missing.

        Example:
            >>> model = torch.nn.Linear(1, 1)
            >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            >>> OptimizerStep(optimizer, name="a", loss="forward").check(model)
        """
        for argument, method in (("forward", self.forward), ("loss", self.loss)):
            if not callable(getattr(model, method, None)):
                raise ValueError(
                    f"the OptimizerStep {self.name!r} has {argument}={method!r}, but "
                    f"{type(model).__name__} has no method of that name"
                )


def split_optimizers(given: Sequence[Any]) -> tuple[list[Any], list[OptimizerStep]]:
    """Tell optimizers that step together from those that take turns.

    Args:
        given: Optimizers or optimizer steps.

    Returns:
        The optimizers, and the steps if they take turns.

    Raises:
        TypeError: If both kinds are mixed.
        ValueError: If two steps have one name.

    Example:
        >>> split_optimizers([])
        ([], [])
    """
    steps = [item for item in given if isinstance(item, OptimizerStep)]
    if not steps:
        return list(given), []
    if len(steps) < len(given):
        raise TypeError(
            "optimizers mixes OptimizerStep with plain optimizers; wrap each one as "
            "`OptimizerStep(optimizer, name=...)`, or none"
        )
    names = [step.name for step in steps]
    if len(set(names)) < len(names):
        raise ValueError(f"the names of the optimizer steps must differ: {names}")
    return [step.optimizer for step in steps], steps


def check_turns(steps: Sequence[OptimizerStep], policy: NonFiniteAction | None) -> None:
    """Refuse what a batch of several updates cannot undo.

    Args:
        steps: The steps that take turns.
        policy: What to do about a loss that is not finite.

    Raises:
        ValueError: If a batch is to be passed over, some of whose turns have updated already.

    Example:
        >>> check_turns([], NonFiniteAction.SKIP)
    """
    if steps and policy in (NonFiniteAction.SKIP, NonFiniteAction.REWIND):
        raise ValueError(
            f"on_nonfinite_loss={policy.value!r} passes over a whole batch, and where optimizers "
            f"take turns the first has stepped when the second finds a loss that is not finite; "
            f"use on_nonfinite_loss='stop'"
        )


def follow_optimizers(
    steps: Sequence[OptimizerStep], optimizers: Sequence[torch.optim.Optimizer]
) -> list[OptimizerStep]:
    """Let turns use the optimizers that methods put around or in the place of theirs.

    Args:
        steps: The turns.
        optimizers: The run's optimizers, in the same order.

    Returns:
        The turns.

    Example:
        >>> follow_optimizers([], [])
        []
    """
    if not steps:
        return []
    return [replace(step, optimizer=o) for step, o in zip(steps, optimizers, strict=True)]


class AlternatingStep:
    """Trains on one batch with several optimizers in turn.

    Args:
        state: The state of the run.
        steps: Whose turn it is, in this order.
        make: Makes the training step of one of them.

    Example:
        >>> from composer.core.engine import Engine
        >>> from composer.core.logger import Logger
        >>> from composer.core.data_spec import DataSpec
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> from composer.models import ComposerClassifier
        >>> from composer.trainer.step import TrainStep
        >>> model = ComposerClassifier(torch.nn.Linear(2, 3), num_classes=3)
        >>> body = OptimizerStep(torch.optim.SGD([model.module.weight], lr=0.1), name="body")
        >>> head = OptimizerStep(torch.optim.SGD([model.module.bias], lr=0.1), name="head")
        >>> optimizers = [body.optimizer, head.optimizer]
        >>> state = State(model, 0, "r", DeviceCPU(), optimizers=optimizers)
        >>> engine = Engine(state, Logger(state))
        >>> def make(turn):
        ...     return TrainStep(state, engine, DataSpec([]), optimizers=[turn.optimizer])
        >>> state.batch = (torch.ones(4, 2), torch.zeros(4, dtype=torch.long))
        >>> sorted(AlternatingStep(state, [body, head], make).run(4))
        ['body/total', 'head/total', 'total']
    """

    def __init__(
        self,
        state: State,
        steps: Sequence[OptimizerStep],
        make: Callable[[OptimizerStep], BatchStep],
    ) -> None:
        self._state = state
        self._turns = [(step, make(step)) for step in steps]
        self._own = {
            step.name: {id(p) for group in step.optimizer.param_groups for p in group["params"]}
            for step in steps
        }

    def run(self, num_samples: int | float) -> dict[str, torch.Tensor]:
        """Train on the state's batch.

        Args:
            num_samples: Its number of samples on this rank.

        Returns:
            ``<name>/<loss>`` to value, and ``total``: the sum of all turns' totals.
        """
        state = self._state
        batch = int(state.timestamp.batch)
        losses: dict[str, torch.Tensor] = {}
        totals: list[torch.Tensor] = []
        applied, skipped = [], []
        for step, turn in self._turns:
            due = batch % step.every == 0
            if due:
                with self._others_stand_still(step):
                    found = turn.run(num_samples)
                losses.update({f"{step.name}/{name}": value for name, value in found.items()})
                totals.append(found["total"])
            applied.append(due and state.step_applied)
            skipped.append(due and not state.step_applied)
        state.optimizers_applied, state.optimizers_skipped = applied, skipped
        state.step_applied = any(applied) or not totals
        if totals:
            losses["total"] = torch.stack(totals).sum()
        return losses

    @contextmanager
    def _others_stand_still(self, step: OptimizerStep) -> Iterator[None]:
        """Spare the gradients of what this turn does not update."""
        own = self._own[step.name]
        others = [p for p in self._state.model.parameters() if id(p) not in own and p.requires_grad]
        for parameter in others:
            parameter.requires_grad_(False)
            parameter.grad = None  # of another turn, and no business of what clips or watches now
        try:
            yield
        finally:
            for parameter in others:
                parameter.requires_grad_(True)
