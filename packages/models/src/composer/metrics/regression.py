"""Metrics of predictions that are numbers."""

from __future__ import annotations

import torch

from composer.metrics.base import Metric

__all__ = ["MeanSquaredError"]


class MeanSquaredError(Metric):
    """The mean of the squared differences over all elements.

    Args:
        dist_sync_on_step: Whether calling the metric sums over ranks.

    Example:
        >>> metric = MeanSquaredError()
        >>> metric.update(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
        >>> metric.compute()
        tensor(2.)
    """

    sum_squares: torch.Tensor
    total: torch.Tensor

    def __init__(self, dist_sync_on_step: bool = False) -> None:
        super().__init__(dist_sync_on_step)
        self.add_state("sum_squares", torch.tensor(0.0, dtype=torch.float64))
        self.add_state("total", torch.tensor(0))

    @torch.no_grad()
    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None:
        """Add a batch.

        Args:
            preds: Predictions of any shape.
            target: True values of the same shape.

        Raises:
            ValueError: If the shapes differ.

        Example:
            >>> metric = MeanSquaredError()
            >>> metric.update(torch.zeros(2, 3), torch.ones(2, 3))
            >>> metric.total
            tensor(6)
        """
        if preds.shape != target.shape:
            raise ValueError(
                f"preds of shape {tuple(preds.shape)} must have the shape of target, "
                f"{tuple(target.shape)}"
            )
        self.sum_squares += (preds.float() - target.float()).square().sum()
        self.total += target.numel()

    def result(self, **totals: torch.Tensor) -> torch.Tensor:
        """Divide the sum of squares by the number of elements.

        Args:
            **totals: ``sum_squares`` and ``total``.

        Returns:
            The mean.

        Example:
            >>> metric = MeanSquaredError()
            >>> metric.result(sum_squares=torch.tensor(6.0), total=torch.tensor(4))
            tensor(1.5000)
        """
        return (totals["sum_squares"] / totals["total"]).float()
