"""Stop when a metric is good enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from composer.callbacks.stopping import MetricStopper

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["ThresholdStopper"]


class ThresholdStopper(MetricStopper):
    """Stop training as soon as a metric passes ``threshold``.

    Evaluation metrics are looked at after each evaluation, train metrics after each epoch. A run
    that was stopped stays stopped when it is resumed, unless ``threshold`` or ``comp`` now says
    otherwise.

    Args:
        monitor: The metric's name.
        dataloader_label: The label of the evaluator, or of the train dataloader (``"train"``).
        threshold: What is to be passed; reaching it exactly does not stop.
        comp: Which way is better: ``"greater"``, ``"less"``, or a function of the value and the
            threshold. If it is not given, what the metric declares counts, then its name.
        stop_on_batch: Whether to look at a train metric after every batch.

    Raises:
        ValueError: If ``comp`` is unknown.

    Example:
        >>> stopper = ThresholdStopper("MulticlassAccuracy", "eval", 0.9)
        >>> stopper.comp_func(0.91, stopper.threshold)
        True
    """

    def __init__(
        self,
        monitor: str,
        dataloader_label: str,
        threshold: float,
        *,
        comp: str | Callable[[Any, Any], Any] | None = None,
        stop_on_batch: bool = False,
    ) -> None:
        super().__init__(monitor, dataloader_label, comp)
        self.threshold = threshold
        self.stop_on_batch = stop_on_batch
        self.every_batch = stop_on_batch

    def rule(self) -> str:
        """Say which threshold was passed.

        Returns:
            The setting and its value.

        Example:
            >>> ThresholdStopper("Perplexity", "eval", 12).rule()
            'threshold=12'
        """
        return f"threshold={self.threshold:g}"

    def check(self, value: torch.Tensor, state: State) -> None:
        """Stop if the value passes the threshold.

        Args:
            value: The metric.
            state: The training state.

        Example:
            >>> from types import SimpleNamespace
            >>> state = SimpleNamespace(stop_training=lambda: print("stopped"))
            >>> ThresholdStopper("MulticlassAccuracy", "eval", 0.9).check(torch.tensor(0.95), state)
            stopped
        """
        # In the metric's own precision: 0.9 in single precision lies below 0.9 in double.
        dtype = value.dtype if value.is_floating_point() else torch.float64
        if bool(self.comp_func(value, torch.tensor(self.threshold, dtype=dtype))):
            self.stop(value, state)
