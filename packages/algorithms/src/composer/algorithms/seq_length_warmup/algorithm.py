"""Growing sequences as a method of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from composer.algorithms._curriculum import lead_loader
from composer.algorithms._nlp.sequences import check_keys
from composer.algorithms._progress import elapsed_share
from composer.algorithms.seq_length_warmup.functional import (
    check_warmup,
    sequence_length_at,
    shorten,
)
from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.utils.checks import check_bool
from composer.utils.curriculum import release_loader

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["SeqLengthWarmup"]


class SeqLengthWarmup(Algorithm):
    """Train on short sequences first, and let them grow.

    Args:
        duration: Share of the run in which they grow, from 0 to 1.
        min_seq_length: Length at the start.
        max_seq_length: Length after ``duration``; longer sequences are always cut to it.
        step_size: Lengths in between are multiples of it.
        truncate: Whether to drop what is beyond the length; else it goes into further rows.
        preserve_end_of_sequence: Whether a cut sample keeps its last token, which needs the member
            ``attention_mask``.
        keys: Members of the batch that hold sequences; by default all whose second dimension is
            that of ``input_ids``, ``inputs_embeds`` or ``attention_mask``, the first of them that
            there is, or in a batch without these, the one that most of them share.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a number is out of range, or an end is to be kept that is not cut off.

    Example:
        >>> SeqLengthWarmup(duration=0.5, max_seq_length=128).max_seq_length
        128
    """

    events: ClassVar[frozenset[Event]] = frozenset(
        {Event.FIT_START, Event.AFTER_DATALOADER, Event.FIT_END}
    )
    kind: ClassVar[str] = "data"
    cost: ClassVar[str] = "none; short sequences are cheaper"
    source: ClassVar[str] = "Li et al., Curriculum Learning (2021), arXiv 2108.06084"

    def __init__(
        self,
        duration: float = 0.3,
        min_seq_length: int = 8,
        max_seq_length: int = 1024,
        step_size: int = 8,
        truncate: bool = True,
        preserve_end_of_sequence: bool = False,
        keys: Sequence[Any] | None = None,
    ) -> None:
        check_warmup(duration, min_seq_length, max_seq_length, step_size)
        check_bool("truncate", truncate)
        check_bool("preserve_end_of_sequence", preserve_end_of_sequence)
        check_keys(keys)
        if preserve_end_of_sequence and not truncate:
            raise ValueError(
                "preserve_end_of_sequence=True is for truncate=True; with truncate=False no token "
                "is cut off"
            )
        self.duration = duration
        self.min_seq_length = min_seq_length
        self.max_seq_length = max_seq_length
        self.step_size = step_size
        self.truncate = truncate
        self.preserve_end_of_sequence = preserve_end_of_sequence
        self.keys = keys

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Shorten the batch.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Receives the length, and the number of rows.

        Raises:
            TypeError: If the batch is no mapping.
            ValueError: If the length of the run is unknown or cannot be followed by the loader; if
                the batch holds no sequences, or has no ``attention_mask`` where ends are kept; or
                if it has something per sample that cannot be given to rows of two samples.

        Example:
            >>> SeqLengthWarmup().match(Event.AFTER_DATALOADER, None)
            True
        """
        if event is Event.FIT_END:
            release_loader(state.train_dataloader, "sequence_length")
            return
        fraction = elapsed_share(state)
        if fraction is None:
            raise ValueError("SeqLengthWarmup needs to know how long the run is: max_duration")
        if event is Event.FIT_START:
            # Its batches may then be as short as they will be cut to.
            lead_loader(state, "sequence_length", self._length_at, inside_epochs=True)
            return
        length = self._length_at(fraction)
        state.batch, key = shorten(
            state.batch, length, self.truncate, self.preserve_end_of_sequence, self.keys
        )
        if logger.destinations:
            rows, now = state.batch[key].shape[:2]
            logger.log_metrics(
                {"seq_length_warmup/curr_seq_len": now, "seq_length_warmup/curr_bs": rows}
            )

    def _length_at(self, fraction: float) -> int:
        return sequence_length_at(
            fraction, self.duration, self.min_seq_length, self.max_seq_length, self.step_size
        )
