"""Label smoothing as a method of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from composer.algorithms._checks import require_tensor
from composer.algorithms._state import replace_in_batch
from composer.algorithms.label_smoothing.functional import smooth_labels
from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.utils.batches import batch_get
from composer.utils.checks import check_number

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["LabelSmoothing"]


class LabelSmoothing(Algorithm):
    """Train on labels of which a share is spread over all classes.

    The labels are smoothed just before the loss and put back just after it, so metrics see them as
    they were.

    Args:
        smoothing: The share, from 0 (off) to 1.
        target_key: Where the labels are in a batch.

    Raises:
        TypeError: If ``smoothing`` is not a number.
        ValueError: If ``smoothing`` is out of range.

    Example:
        >>> LabelSmoothing(0.2)
        LabelSmoothing(smoothing=0.2, target_key=1)
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.BEFORE_LOSS, Event.AFTER_LOSS})
    kind: ClassVar[str] = "labels"
    cost: ClassVar[str] = "dense targets"
    source: ClassVar[str] = "Szegedy et al., Rethinking Inception (2015), arXiv 1512.00567"

    def __init__(self, smoothing: float = 0.1, target_key: Any = 1) -> None:
        check_number("smoothing", smoothing, low=0.0, high=1.0)
        self.smoothing = smoothing
        self.target_key = target_key
        self.original_labels: Any = None

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Smooth the labels, or put them back.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Unused.

        Example:
            >>> import torch
            >>> from types import SimpleNamespace
            >>> state = SimpleNamespace(batch=(None, torch.tensor([1])), outputs=torch.zeros(1, 2))
            >>> method = LabelSmoothing(0.2)
            >>> method.apply(Event.BEFORE_LOSS, state, None)
            >>> state.batch[1]
            tensor([[0.1000, 0.9000]])
            >>> method.apply(Event.AFTER_LOSS, state, None)
            >>> state.batch[1]
            tensor([1])
        """
        del logger
        if event is Event.AFTER_LOSS:
            replace_in_batch(state, self.target_key, self.original_labels)
            self.original_labels = None
            return
        labels = require_tensor("LabelSmoothing", "target", batch_get(state.batch, self.target_key))
        outputs = require_tensor("LabelSmoothing", "output", state.outputs)
        self.original_labels = labels
        smoothed = smooth_labels(outputs, labels, self.smoothing)
        replace_in_batch(state, self.target_key, smoothed)
