"""An evaluation set: a loader, a label, the metrics to keep, and when to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from composer.core.data_spec import DataSpec, ensure_data_spec
from composer.core.event import Event
from composer.core.intervals import create_interval_scheduler
from composer.core.time import Time
from composer.core.types import Batch
from composer.utils.counts import is_count

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["Evaluator", "ensure_evaluator", "evaluation_interval"]


def evaluation_interval(
    interval: str | int | Time[Any] | Callable[[State, Event], bool],
) -> Callable[[State, Event], bool]:
    """Turn a user's evaluation interval into a function; the end of ``fit`` is always due.

    Args:
        interval: An int (epochs; 0 turns evaluation off), a time string, a time, or a function.

    Returns:
        The function of state and event.

    Example:
        >>> evaluation_interval("5ba").interval
        Time(5, TimeUnit.BATCH)
    """
    return create_interval_scheduler(
        interval, checkpoint_events=False, final_events={Event.FIT_END}
    )


class Evaluator:
    """An evaluation set.

    Args:
        label: Name of the set; its metrics are logged under ``metrics/<label>/``.
        dataloader: An iterable, a ``DataSpec``, or a dictionary of its arguments.
        metric_names: Patterns, searched without regard to case in the names of the model's
            metrics; ``None`` keeps all metrics.
        subset_num_batches: At most this many batches; ``None`` or -1 for all.
        eval_interval: When to run during training; ``None`` takes the trainer's.
        device_eval_microbatch_size: Samples per forward pass; the whole batch by default;
            ``"auto"`` finds the largest that fits into memory.

    Raises:
        ValueError: If the label is empty or a size is not positive.

    Example:
        >>> evaluator = Evaluator(label="val", dataloader=[], eval_interval="2ep")
        >>> evaluator.label
        'val'
    """

    label: str
    dataloader: DataSpec
    metric_names: list[str] | None
    subset_num_batches: int | None
    device_eval_microbatch_size: int | None
    #: Whether that size is found automatically.
    auto_microbatching: bool

    def __init__(
        self,
        *,
        label: str,
        dataloader: DataSpec | Iterable[Batch] | dict[str, Any],
        metric_names: list[str] | None = None,
        subset_num_batches: int | None = None,
        eval_interval: int | str | Time[Any] | Callable[[State, Event], bool] | None = None,
        device_eval_microbatch_size: int | str | float | None = None,
    ) -> None:
        if not isinstance(label, str) or not label:
            raise ValueError(f"label must be a non-empty string, not {label!r}")
        if isinstance(metric_names, str):
            raise TypeError(f"metric_names must be a list of strings, not {metric_names!r}")
        if subset_num_batches not in (None, -1) and not is_count(subset_num_batches):
            raise ValueError(
                f"subset_num_batches must be a positive whole number, or -1 for all, not "
                f"{subset_num_batches!r}"
            )
        if device_eval_microbatch_size not in (None, "auto") and not is_count(
            device_eval_microbatch_size
        ):
            raise ValueError(
                f"device_eval_microbatch_size must be a positive whole number of samples, or "
                f"'auto', not {device_eval_microbatch_size!r}"
            )
        self.label = label
        self.dataloader = ensure_data_spec(dataloader)
        self.metric_names = metric_names
        self.subset_num_batches = None if subset_num_batches == -1 else subset_num_batches
        self.auto_microbatching = device_eval_microbatch_size == "auto"
        self.device_eval_microbatch_size = (
            None if self.auto_microbatching else device_eval_microbatch_size  # type: ignore[assignment]
        )
        self._eval_interval: Callable[[State, Event], bool] | None = None
        if eval_interval is not None:
            self.eval_interval = eval_interval

    @property
    def eval_interval(self) -> Callable[[State, Event], bool] | None:
        """When to run during training; ``None`` until it is set here or by the trainer."""
        return self._eval_interval

    @eval_interval.setter
    def eval_interval(
        self, interval: int | str | Time[Any] | Callable[[State, Event], bool] | None
    ) -> None:
        self._eval_interval = None if interval is None else evaluation_interval(interval)


def ensure_evaluator(
    evaluator: Evaluator | DataSpec | Iterable[Batch] | dict[str, Any],
    default_metric_names: list[str],
) -> Evaluator:
    """Turn what a user gave into an ``Evaluator``.

    Args:
        evaluator: An evaluator (returned as it is), or anything that makes a ``DataSpec``; it gets
            the label ``eval``.
        default_metric_names: The metric names for what is not yet an evaluator.

    Returns:
        The evaluator.

    Example:
        >>> ensure_evaluator([], ["Accuracy"]).label
        'eval'
    """
    if isinstance(evaluator, Evaluator):
        return evaluator
    return Evaluator(label="eval", dataloader=evaluator, metric_names=default_metric_names)
