"""Which checkpoints of a run are kept: the last, every m-th, and the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from composer.utils.counts import is_count
from composer.utils.suggestions import did_you_mean

__all__ = ["Record", "Retention"]

_MODES = ("max", "min")


@dataclass(frozen=True)
class Record:
    """A checkpoint that a run saved.

    Attributes:
        name: Its name, relative to the folder.
        index: The how-many-th it was, counted from 1 over all processes of the run.
        timestamp: The counters of the run.
        score: The metric at that moment, or ``None`` where there was none.
        own: Whether it bears a name of this run's template. Others compete for the best, but are
            neither counted nor deleted.

    Example:
        >>> Record("ep1.pt", 1).score is None
        True
    """

    name: str
    index: int
    timestamp: Mapping[str, Any] = field(default_factory=dict)
    score: float | None = None
    own: bool = True


@dataclass(frozen=True)
class Retention:
    """What to keep. A checkpoint is kept if any of the rules wants it.

    Args:
        keep_last: How many of the newest; -1 for all.
        keep_every: Every how many saved ones stay for good; ``None`` for none.
        best_metric: Name of the metric by which the best are kept, as logged.
        best_mode: Which way is better; never guessed.
        num_best: How many of the best.
        prefix: What the settings' names begin with, for messages.

    Raises:
        ValueError: If a number is out of range, or a metric is given without its direction.

    Example:
        >>> rules = Retention(keep_last=1, keep_every=2)
        >>> [r.name for r in rules.surplus([Record(n, i + 1) for i, n in enumerate("abcd")])]
        ['a', 'c']
    """

    keep_last: int = -1
    keep_every: int | None = None
    best_metric: str | None = None
    best_mode: str | None = None
    num_best: int = 1
    prefix: str = ""

    def __post_init__(self) -> None:
        p = self.prefix
        if not is_count(self.keep_last, least=-1):
            raise ValueError(
                f"{p}num_checkpoints_to_keep must be a whole number, -1 for all, not "
                f"{self.keep_last!r}"
            )
        if self.keep_every is not None and not is_count(self.keep_every):
            raise ValueError(
                f"{p}keep_every must be a positive whole number or None, not {self.keep_every!r}"
            )
        if not is_count(self.num_best):
            raise ValueError(
                f"{p}num_best_to_keep must be a positive whole number, not {self.num_best!r}"
            )
        if self.best_metric is None:
            if self.best_mode is not None or self.num_best != 1:
                raise ValueError(
                    f"{p}best_mode and {p}num_best_to_keep need {p}best_metric, such as "
                    f"'metrics/eval/MulticlassAccuracy'"
                )
            return
        if self.best_mode not in _MODES:
            raise ValueError(
                f"{p}best_mode must say whether 'max' or 'min' of "
                f"{p}best_metric={self.best_metric!r} is better, not {self.best_mode!r}."
                f"{did_you_mean(str(self.best_mode), _MODES)}"
            )

    def best(self, records: Sequence[Record]) -> list[Record]:
        """Return the best checkpoints.

        Args:
            records: All checkpoints.

        Returns:
            At most ``num_best`` that have a score which is a number, the best first; of equal ones
            the earlier first.
        """
        scored = [r for r in records if r.score is not None and not math.isnan(r.score)]
        sign = -1 if self.best_mode == "max" else 1
        scored.sort(key=lambda r: (sign * (r.score or 0.0), r.index))
        return scored[: self.num_best]

    def surplus(self, records: Sequence[Record], *, elsewhere: bool = False) -> list[Record]:
        """Return the checkpoints that no rule wants.

        The newest is never among them, whatever the rules say, unless it is kept elsewhere too:
        it may be the only good one.

        Args:
            records: All checkpoints, oldest first.
            elsewhere: Whether somebody else keeps the newest.

        Returns:
            Those to be deleted, oldest first.
        """
        if self.keep_last < 0:
            return []
        count = self.keep_last if elsewhere else max(1, self.keep_last)
        counted = [r for r in records if r.own]
        newest = counted[max(0, len(counted) - count) :] if count else ()
        kept = {r.name for r in newest}
        if self.best_metric is not None:
            kept |= {r.name for r in self.best(records)}
        return [
            r
            for r in counted
            if r.name not in kept and not (self.keep_every and r.index % self.keep_every == 0)
        ]
