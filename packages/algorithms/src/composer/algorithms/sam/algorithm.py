"""Sharpness-aware minimisation as a method of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from composer.algorithms._state import refuse_second
from composer.algorithms.sam.functional import SAMOptimizer
from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.core.scaler import needs_closure
from composer.utils.checks import check_integer, check_number
from composer.utils.iteration import ensure_tuple

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["SAM"]


class SAM(Algorithm):
    """Step by the gradient of the worst neighbour, which leads to flat minima.

    Args:
        rho: Radius of the neighbourhood.
        epsilon: Added to the norm of the gradients.
        interval: Every how many steps; the others are plain.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a number is out of range.

    Example:
        >>> SAM(rho=0.1, interval=10)
        SAM(rho=0.1, epsilon=1e-12, interval=10)
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.INIT})
    kind: ClassVar[str] = "optimizer"
    cost: ClassVar[str] = "a second forward and backward pass every interval"
    source: ClassVar[str] = "Foret et al., Sharpness-Aware Minimization (2020), arXiv 2010.01412"

    def __init__(self, rho: float = 0.05, epsilon: float = 1e-12, interval: int = 1) -> None:
        check_number("rho", rho, low=0.0)
        check_number("epsilon", epsilon, low=0.0)
        check_integer("interval", interval, low=1)
        self.rho = rho
        self.epsilon = epsilon
        self.interval = interval
        self._wrapped: list[SAMOptimizer] = []

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Wrap the optimizers.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Not used.

        Raises:
            TypeError: If an optimizer evaluates the loss itself.
            ValueError: If the run has another ``SAM``.

        Example:
            >>> import torch
            >>> from types import SimpleNamespace
            >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
            >>> state = SimpleNamespace(optimizers=[optimizer], algorithms=[])
            >>> SAM().apply(Event.INIT, state, None)
            >>> state.optimizers[0].base_optimizer is optimizer
            True
        """
        del event, logger
        refuse_second(self, state)
        for optimizer in ensure_tuple(state.optimizers):
            if needs_closure(optimizer):
                raise TypeError(
                    f"SAM evaluates the loss twice around an optimizer's step, and "
                    f"{type(optimizer).__name__} evaluates it itself; use another optimizer"
                )
        self._wrapped = [
            SAMOptimizer(optimizer, self.rho, self.epsilon, self.interval)
            for optimizer in ensure_tuple(state.optimizers)
        ]
        state.optimizers = list(self._wrapped)

    def state_dict(self) -> dict[str, Any]:
        """Return how many steps were made, by which the interval counts.

        Returns:
            The number for each optimizer.

        Example:
            >>> SAM().state_dict()
            {'num_steps': []}
        """
        return {"num_steps": [optimizer.num_steps for optimizer in self._wrapped]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on counting.

        Args:
            state: What :meth:`state_dict` returned.

        Example:
            >>> SAM().load_state_dict({"num_steps": []})
        """
        for optimizer, count in zip(self._wrapped, state["num_steps"], strict=False):
            optimizer.num_steps = count
