"""Gradient clipping as a method of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from composer.algorithms.gradient_clipping.functional import (
    apply_gradient_clipping,
    check_settings,
)
from composer.core.algorithm import Algorithm
from composer.core.event import Event

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["GradientClipping"]


class GradientClipping(Algorithm):
    """Clip the gradients of the whole batch, after unscaling and before the update.

    Args:
        clipping_type: ``"norm"``, ``"value"`` or ``"adaptive"``; see
            :func:`apply_gradient_clipping`.
        clipping_threshold: The threshold.

    Raises:
        TypeError: If the threshold is not a number.
        ValueError: If the type is unknown or the threshold is not greater than 0.

    Example:
        >>> GradientClipping("norm", 1.0)
        GradientClipping(clipping_type='norm', clipping_threshold=1.0)
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.AFTER_TRAIN_BATCH})
    kind: ClassVar[str] = "gradients"
    cost: ClassVar[str] = "a pass over the gradients"
    source: ClassVar[str] = (
        "value: Mikolov (2012); norm: Pascanu et al. (2013), arXiv 1211.5063; "
        "adaptive: Brock et al. (2021), arXiv 2102.06171"
    )

    def __init__(self, clipping_type: str, clipping_threshold: float) -> None:
        check_settings(clipping_type, clipping_threshold)
        self.clipping_type = clipping_type
        self.clipping_threshold = clipping_threshold

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Clip.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Unused.

        Example:
            >>> import torch
            >>> from types import SimpleNamespace
            >>> model = torch.nn.Linear(1, 1, bias=False)
            >>> model.weight.grad = torch.tensor([[-3.0]])
            >>> state = SimpleNamespace(model=model)
            >>> GradientClipping("value", 1.0).apply(Event.AFTER_TRAIN_BATCH, state, None)
            >>> model.weight.grad
            tensor([[-1.]])
        """
        del event, logger
        apply_gradient_clipping(state.model, self.clipping_type, self.clipping_threshold)
