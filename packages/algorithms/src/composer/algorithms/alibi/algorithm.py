"""Attention with linear biases as a method of training."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar

from composer.algorithms._nlp.sequences import sequence_members, split_rows
from composer.algorithms.alibi.functional import apply_alibi
from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.utils.checks import check_integer, check_number

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["Alibi"]

log = logging.getLogger(__name__)


class Alibi(Algorithm):
    """Replace positions by biases of attention, and train on shorter sequences than are used later.

    Args:
        max_sequence_length: The longest sequence that the model will see.
        train_sequence_length_scaling: By how much training sequences are shortened, into more rows
            of the same tokens; with 1 they are left as they are.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a number is out of range.

    Example:
        >>> Alibi(max_sequence_length=1024).train_sequence_length_scaling
        0.25
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.INIT, Event.AFTER_DATALOADER})
    kind: ClassVar[str] = "surgery"
    cost: ClassVar[str] = "attention with a mask of numbers per head; shorter sequences are cheaper"
    source: ClassVar[str] = "Press et al., Train Short, Test Long (2021), arXiv 2108.12409"

    def __init__(
        self, max_sequence_length: int, train_sequence_length_scaling: float = 0.25
    ) -> None:
        check_integer("max_sequence_length", max_sequence_length, low=1)
        check_number(
            "train_sequence_length_scaling",
            train_sequence_length_scaling,
            low=0.0,
            high=1.0,
            open_low=True,
        )
        self.max_sequence_length = max_sequence_length
        self.train_sequence_length_scaling = train_sequence_length_scaling

    @staticmethod
    def required_on_load() -> bool:
        """Say that checkpoints need the method.

        Returns:
            True.

        Example:
            >>> Alibi.required_on_load()
            True
        """
        return True

    def match(self, event: Event, state: State) -> bool:
        """Say whether the method acts now.

        Args:
            event: The event that fires.
            state: The state of the run.

        Returns:
            Whether the run is set up, or there is a batch to shorten.

        Example:
            >>> Alibi(64, train_sequence_length_scaling=1).match(Event.AFTER_DATALOADER, None)
            False
        """
        del state
        shortens = event is Event.AFTER_DATALOADER and self.train_sequence_length_scaling < 1
        return shortens or event is Event.INIT

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Change the model, or shorten a batch.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Receives the longest sequence.

        Raises:
            TypeError: If a batch is no mapping.
            ValueError: If the model is not known, or a batch holds no sequences.

        Example:
            >>> Alibi(64).match(Event.AFTER_DATALOADER, None)
            True
        """
        if event is Event.INIT:
            apply_alibi(state.model, self.max_sequence_length, optimizers=state.optimizers)
            log.info("Alibi: sequences of up to %d tokens", self.max_sequence_length)
            logger.log_hyperparameters({"alibi/max_sequence_length": self.max_sequence_length})
        else:
            length, keys = sequence_members("Alibi", state.batch)
            shorter = max(1, int(length * self.train_sequence_length_scaling))
            state.batch = split_rows("Alibi", state.batch, keys, shorter)
