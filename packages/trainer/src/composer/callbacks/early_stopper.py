"""Stop when a metric has not improved for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from composer.callbacks.stopping import MetricStopper
from composer.core.time import Time, TimeUnit, ensure_time
from composer.core.timestamp import Timestamp

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["EarlyStopper"]


class EarlyStopper(MetricStopper):
    """Stop training when a metric has not improved for longer than ``patience``.

    Evaluation metrics are looked at after each evaluation, train metrics after each epoch, or after
    each batch if ``patience`` is in batches. What was reached and when is saved in checkpoints; a
    run that was stopped stays stopped when it is resumed, unless the settings now say otherwise.

    Args:
        monitor: The metric's name.
        dataloader_label: The label of the evaluator, or of the train dataloader (``"train"``).
        comp: Which way is better: ``"greater"``, ``"less"``, or a function of the new and the best
            value. If it is not given, what the metric declares counts, then its name.
        min_delta: How much better a value must be to count.
        patience: How long to wait for the next improvement, in epochs (an int) or batches.

    Raises:
        ValueError: If ``patience`` is in another unit or negative, ``min_delta`` is negative, or
            ``comp`` is unknown.

    Example:
        >>> EarlyStopper("MulticlassAccuracy", "eval", patience="500ba").patience
        Time(500, TimeUnit.BATCH)
    """

    best: torch.Tensor | None
    best_occurred: Timestamp | None

    def __init__(
        self,
        monitor: str,
        dataloader_label: str,
        comp: str | Callable[[Any, Any], Any] | None = None,
        min_delta: float = 0.0,
        patience: int | str | Time[Any] = 1,
    ) -> None:
        super().__init__(monitor, dataloader_label, comp)
        if min_delta < 0:
            raise ValueError(f"min_delta must not be negative, got {min_delta!r}")
        self.min_delta = min_delta
        self.patience = ensure_time(patience, TimeUnit.EPOCH)
        if self.patience.unit not in (TimeUnit.EPOCH, TimeUnit.BATCH) or self.patience.value < 0:
            raise ValueError(
                f"patience must be zero or more epochs or batches, got {str(self.patience)!r}"
            )
        self.every_batch = self.patience.unit is TimeUnit.BATCH
        self.best = None
        self.best_occurred = None

    def check(self, value: torch.Tensor, state: State) -> None:
        """Take note of an improvement, or stop when the last one is too long ago.

        Args:
            value: The metric.
            state: The training state.

        Example:
            >>> from types import SimpleNamespace
            >>> stopper = EarlyStopper("MulticlassAccuracy", "eval")
            >>> stopper.check(torch.tensor(0.5), SimpleNamespace(timestamp=Timestamp(epoch=1)))
            >>> stopper.best
            tensor(0.5000)
        """
        if self.best is None or self.best_occurred is None or self._improves(value):
            self.best, self.best_occurred = value, state.timestamp
            return
        unit = self.patience.unit
        if state.timestamp.get(unit) - self.best_occurred.get(unit) > self.patience:
            self.stop(value, state)

    def rule(self) -> str:
        """Say for how long what was reached was not passed.

        Returns:
            The settings and their values, and what was reached.

        Example:
            >>> EarlyStopper("MulticlassAccuracy", "eval", patience="500ba").rule()
            'patience=500ba, min_delta=0'
        """
        reached = "" if self.best is None else f", best {self.best.item():g}"
        return f"patience={self.patience!s}, min_delta={self.min_delta:g}{reached}"

    def _improves(self, value: torch.Tensor) -> bool:
        best = self.best
        assert best is not None
        if torch.isnan(best):
            return not torch.isnan(value)
        better = bool(self.comp_func(value, best))
        return better and abs(value.item() - best.item()) > self.min_delta

    def init(self, state: State, logger: Logger) -> None:
        """Forget what another run left behind.

        Args:
            state: The training state.
            logger: Not used.

        Example:
            >>> EarlyStopper("MulticlassAccuracy", "eval").init(None, None)
        """
        super().init(state, logger)
        self.best = None
        self.best_occurred = None

    def state_dict(self) -> dict[str, Any]:
        """Return the best value, when it occurred, and whether the run was stopped.

        Returns:
            Plain numbers under ``best`` and ``best_occurred``, ``None`` before the first look; and
            ``stopped`` with the last value if it stopped the run.

        Example:
            >>> EarlyStopper("MulticlassAccuracy", "eval").state_dict()
            {'best': None, 'best_occurred': None}
        """
        return {
            "best": None if self.best is None else self.best.item(),
            "best_occurred": None
            if self.best_occurred is None
            else self.best_occurred.state_dict(),
            **super().state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the best value, when it occurred, and whether the run was stopped.

        Args:
            state: What :meth:`state_dict` returned.

        Example:
            >>> stopper = EarlyStopper("MulticlassAccuracy", "eval")
            >>> stopper.load_state_dict({"best": 0.5, "best_occurred": {"epoch": 1}})
            >>> stopper.best
            tensor(0.5000, dtype=torch.float64)
        """
        super().load_state_dict(state)
        best, occurred = state.get("best"), state.get("best_occurred")
        self.best = None if best is None else torch.tensor(best, dtype=torch.float64)
        self.best_occurred = None
        if occurred is not None:
            self.best_occurred = Timestamp()
            self.best_occurred.load_state_dict(occurred)
