"""Log the learning rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from composer.core.callback import Callback

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["LRMonitor"]


class LRMonitor(Callback):
    """Log the learning rate of every parameter group after each batch.

    The keys are ``lr-<Optimizer>/group<i>``. The value logged at batch ``n`` is the one that the
    next batch, whose count from 0 is ``n``, trains with.

    Example:
        >>> import torch
        >>> from types import SimpleNamespace
        >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
        >>> logger = SimpleNamespace(log_metrics=print)
        >>> LRMonitor().batch_end(SimpleNamespace(optimizers=[optimizer]), logger)
        {'lr-SGD/group0': 0.1}
    """

    def batch_end(self, state: State, logger: Logger) -> None:
        """Log the learning rates.

        Args:
            state: The training state.
            logger: Where they go.

        Example:
            >>> from types import SimpleNamespace
            >>> LRMonitor().batch_end(
            ...     SimpleNamespace(optimizers=[]), SimpleNamespace(log_metrics=print)
            ... )
            {}
        """
        logger.log_metrics(
            {
                f"lr-{type(optimizer).__name__}/group{index}": group["lr"]
                for optimizer in state.optimizers
                for index, group in enumerate(optimizer.param_groups)
            }
        )
