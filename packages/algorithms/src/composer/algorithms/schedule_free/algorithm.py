"""Training without a schedule, as a method of training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from composer.algorithms._state import refuse_second
from composer.algorithms.schedule_free.functional import (
    averaged_weights,
    check_settings,
    is_schedule_free,
    make_schedule_free,
    require_package,
    weights_put_back,
)
from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.utils.iteration import ensure_tuple

if TYPE_CHECKING:
    import torch

    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["ScheduleFree"]

_TWICE = "the optimizer keeps an average of its own, and each would take the other's for weights"


class ScheduleFree(Algorithm):
    """Replace the optimizer by one that averages its steps and needs no schedule.

    During evaluation and prediction, and while a checkpoint is written, the model holds the
    average; at all other times, after ``fit`` too, the weights at which gradients are taken. A
    checkpoint has both, and a run that resumes goes on exactly.

    Args:
        warmup_steps: Over how many steps the learning rate rises to its value.
        r: The average weighs step ``t`` by ``t ** r``.
        weight_lr_power: The average weighs a step by its learning rate to this power.

    Raises:
        MissingConditionalImportError: If the package ``schedulefree`` is not installed.
        TypeError: If a setting has the wrong type.
        ValueError: If a setting is out of range.

    Example:
        >>> ScheduleFree(warmup_steps=100).warmup_steps
        100
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.INIT, Event.AFTER_LOAD})
    excludes: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "ema": _TWICE,
            "swa": _TWICE,
            "sam": "one replaces the optimizer and the other wraps it",
        }
    )
    kind: ClassVar[str] = "optimizer"
    cost: ClassVar[str] = "one more copy of the weights"
    source: ClassVar[str] = "Defazio et al., The Road Less Scheduled (2024), arXiv 2405.15682"

    def __init__(self, warmup_steps: int = 0, r: float = 0.0, weight_lr_power: float = 2.0) -> None:
        check_settings(warmup_steps, r, weight_lr_power)
        require_package()
        self.warmup_steps = warmup_steps
        self.r = r
        self.weight_lr_power = weight_lr_power
        self._trained: list[torch.Tensor] | None = None

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Replace the optimizers, or put loaded weights in their places.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Not used.

        Raises:
            TypeError: If an optimizer is of a class that has no counterpart.
            ValueError: If an optimizer has an option that has none, or has made steps, or the run
                has another one of these.

        Example:
            >>> ScheduleFree().match(Event.INIT, None)
            True
        """
        del logger
        if event is Event.INIT:
            refuse_second(self, state)
            self._trained = None
            state.optimizers = [
                make_schedule_free(o, self.warmup_steps, self.r, self.weight_lr_power)
                for o in ensure_tuple(state.optimizers)
            ]
        else:
            for group in (g for o in ensure_tuple(state.optimizers) for g in o.param_groups):
                # A checkpoint has brought the settings that it was made with.
                group.update({k: v for k, v in self.arguments().items() if k in group})
            if self._trained is not None:
                weights_put_back(ensure_tuple(state.optimizers), self._trained)
                self._trained = None

    def evaluating(self, state: State) -> AbstractContextManager[None]:
        """Return a context in which the model holds the average.

        Args:
            state: The state of the run.

        Returns:
            The context; it brings the weights being trained back, also after an error.

        Example:
            >>> from types import SimpleNamespace
            >>> with ScheduleFree().evaluating(SimpleNamespace(optimizers=[])):
            ...     pass
        """
        return self._averaged(state)

    def saving(self, state: State) -> AbstractContextManager[None]:
        """Return a context in which the model holds the average.

        Args:
            state: The state of the run.

        Returns:
            The context; inside it, :meth:`state_dict` has the weights being trained.

        Example:
            >>> from types import SimpleNamespace
            >>> with ScheduleFree().saving(SimpleNamespace(optimizers=[])):
            ...     pass
        """
        return self._averaged(state)

    @contextmanager
    def _averaged(self, state: State) -> Iterator[None]:
        # A checkpoint may be written during an evaluation.
        if self._trained is not None:
            yield
            return
        with averaged_weights(ensure_tuple(state.optimizers)) as self._trained:
            try:
                yield
            finally:
                self._trained = None

    def state_dict(self) -> dict[str, Any]:
        """Return the weights being trained, where the model holds the average.

        Returns:
            ``training_weights``, in the order of the optimizers' parameters, as in every
            checkpoint; nothing at other times.

        Example:
            >>> ScheduleFree().state_dict()
            {}
        """
        return {} if self._trained is None else {"training_weights": self._trained}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned; the weights are put in place after loading.

        Args:
            state: The state.

        Example:
            >>> ScheduleFree().load_state_dict({})
        """
        self._trained = state.get("training_weights")

    @classmethod
    def resume_without(cls, saved: Mapping[str, Any], state: State) -> None:
        """Put the weights being trained into a model that a checkpoint gave the average.

        Args:
            saved: What :meth:`state_dict` returned inside :meth:`saving`.
            state: The state of a run with a schedule-free optimizer of its own.

        Example:
            >>> from types import SimpleNamespace
            >>> ScheduleFree.resume_without({}, SimpleNamespace(optimizers=[]))
        """
        optimizers = ensure_tuple(state.optimizers)
        if "training_weights" in saved and all(is_schedule_free(o) for o in optimizers):
            weights_put_back(optimizers, saved["training_weights"])
