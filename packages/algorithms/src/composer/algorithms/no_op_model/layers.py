"""A model that costs nothing, to see what everything around it costs."""

from __future__ import annotations

from typing import Any

import torch

from composer.algorithms.no_op_model.functional import no_op_outputs
from composer.core.model import ComposerModel

__all__ = ["NoOpModelClass"]


class NoOpModelClass(ComposerModel):
    """One parameter times the targets.

    Args:
        original_model: The model in whose place it stands; its metrics are not kept, since there is
            nothing to measure.

    Example:
        >>> model = NoOpModelClass(torch.nn.Linear(2, 2))
        >>> batch = (torch.zeros(3, 2), torch.tensor([0, 1, 1]))
        >>> model.loss(model(batch), batch).shape
        torch.Size([])
    """

    def __init__(self, original_model: torch.nn.Module) -> None:
        super().__init__()
        first = next(original_model.parameters(), None)
        device = torch.device("cpu") if first is None else first.device
        self.weights = torch.nn.Parameter(torch.ones((), device=device))

    def forward(self, batch: Any) -> torch.Tensor:
        """Multiply the targets by the parameter.

        Args:
            batch: Inputs and targets.

        Returns:
            The product.

        Example:
            >>> NoOpModelClass(torch.nn.Identity())((None, torch.tensor([2]))).tolist()
            [2.0]
        """
        return no_op_outputs(batch[1], self.weights)

    def loss(self, outputs: torch.Tensor, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Average the squared difference from the targets.

        Args:
            outputs: What :meth:`forward` returned.
            batch: Inputs and targets.
            *args: Not used.
            **kwargs: Not used.

        Returns:
            The mean.

        Example:
            >>> model = NoOpModelClass(torch.nn.Identity())
            >>> model.loss(torch.tensor([3.0]), (None, torch.tensor([1])))
            tensor(4.)
        """
        return torch.nn.functional.mse_loss(outputs, batch[1].to(outputs.dtype))
