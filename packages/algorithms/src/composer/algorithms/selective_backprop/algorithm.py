"""Selective backprop as a method of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from composer.algorithms._state import loss_function
from composer.algorithms.selective_backprop.functional import (
    check_loss_function,
    check_schedule,
    check_share,
    sample_by_loss,
    should_selective_backprop,
)
from composer.algorithms.selective_backprop.ranking import Ranking, first_tensor
from composer.algorithms.selective_backprop.thinning import LEAST, Thinning
from composer.core.algorithm import Algorithm, Phase
from composer.core.event import Event
from composer.utils.batches import batch_get

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["SelectiveBackprop"]


class SelectiveBackprop(Algorithm):
    """In part of the run, train on a share of every batch, preferring samples of high loss.

    An extra forward pass ranks the samples: without gradients, in the precision of training, in
    parts no larger than a microbatch, and without a trace in the statistics of normalisation layers
    or in the random state. It runs before other methods that change the batch. Everything in the
    batch with one entry per sample is thinned out alike, tensors as well as lists. Whether that can
    be done and the loss can tell samples apart is tried on the first batch, long before the
    selection starts.

    Args:
        start: Share of the run at which selection starts.
        end: Share of the run at which it ends.
        keep: The share of each batch to keep, at least two samples; 1 is off.
        scale_factor: Scale at which images are ranked; below 1 ranking is cheaper.
        interrupt: Every batch of this number is left alone; 0 leaves none alone.
        input_key: Where the samples are in a batch.
        target_key: Where the labels are in a batch.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If one is out of range.

    Example:
        >>> SelectiveBackprop(start=0.5, end=0.9, keep=0.5).phase.name
        'FIRST'
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.INIT, Event.AFTER_DATALOADER})
    kind: ClassVar[str] = "data"
    cost: ClassVar[str] = "a forward pass per batch; saves the backward pass of what is left out"
    source: ClassVar[str] = "Jiang et al., Focusing on the Biggest Losers (2019), arXiv 1910.00762"
    phase: ClassVar[Phase] = Phase.FIRST

    def __init__(
        self,
        start: float = 0.5,
        end: float = 0.9,
        keep: float = 0.5,
        scale_factor: float = 1.0,
        interrupt: int = 2,
        input_key: Any = 0,
        target_key: Any = 1,
    ) -> None:
        check_schedule(start, end, interrupt)
        check_share(keep, scale_factor)
        self.start = start
        self.end = end
        self.keep = keep
        self.scale_factor = scale_factor
        self.interrupt = interrupt
        self.input_key = input_key
        self.target_key = target_key
        # How batches are thinned out, once it was tried on the first one.
        self._thinning: Thinning | None = None
        self._ranking = Ranking(input_key, target_key, scale_factor)

    def match(self, event: Event, state: State) -> bool:
        """Say whether the method acts now.

        Args:
            event: The event that fires.
            state: The state of the run.

        Returns:
            Whether the model or the first batch is to be checked, or a batch to be thinned out.

        Raises:
            ValueError: If the length of the run is unknown.

        Example:
            >>> SelectiveBackprop().match(Event.INIT, None)
            True
        """
        if event not in self.events or self.keep == 1:
            return False
        return event is Event.INIT or self._thinning is None or self._is_due(state)

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Check the loss, or thin out the batch.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Unused.

        Raises:
            TypeError: If the loss cannot give one value per sample, or a member of the batch cannot
                be thinned out.
            ValueError: If members of the batch do not have as many entries as there are samples.

        Example:
            >>> SelectiveBackprop(keep=1.0).match(Event.AFTER_DATALOADER, None)
            False
        """
        del logger
        if event is Event.INIT:
            self._thinning = None
            self._ranking = Ranking(self.input_key, self.target_key, self.scale_factor)
            check_loss_function(loss_function(state))
            return
        num_samples = len(first_tensor(batch_get(state.batch, self.target_key)))
        if self._thinning is None:
            self._thinning = Thinning((self.input_key, self.target_key))
            few = self._thinning.trial(state.batch, num_samples)
            self._ranking.losses(state, few, min(num_samples, LEAST), self._thinning)
        if num_samples > LEAST and self._is_due(state):
            losses = self._ranking.losses(state, state.batch, num_samples, self._thinning)
            chosen = sample_by_loss(losses, self.keep, least=LEAST)
            state.batch = self._thinning.select(state.batch, chosen, num_samples)

    def _is_due(self, state: State) -> bool:
        elapsed = state.get_elapsed_duration()
        if elapsed is None:
            raise ValueError("SelectiveBackprop needs to know how long the run is: max_duration")
        index = int(state.timestamp.batch_in_epoch)
        return should_selective_backprop(elapsed.value, index, self.start, self.end, self.interrupt)
