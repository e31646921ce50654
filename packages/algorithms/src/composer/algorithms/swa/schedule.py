"""When weights are averaged: what the user wrote, read once, and asked at events."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from composer.algorithms._progress import elapsed_share
from composer.algorithms.warnings import NoEffectWarning, NotIntendedUseWarning
from composer.core.event import Event
from composer.core.time import Time, TimeUnit

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["SWASchedule"]

_UNITS = (TimeUnit.DURATION, TimeUnit.EPOCH, TimeUnit.BATCH)


@dataclass(frozen=True)
class SWASchedule:
    """The times of an average.

    Args:
        start: From when on weights are averaged.
        end: Until when.
        interval: How often.
        written: The three as the user wrote them, for messages.

    Example:
        >>> SWASchedule.parse("0.7dur", "0.97dur", "1ep").update_event.value
        'epoch_end'
    """

    start: Time[Any]
    end: Time[Any]
    interval: Time[Any]
    written: tuple[str, str, str]

    @classmethod
    def parse(cls, swa_start: Any, swa_end: Any, update_interval: Any) -> SWASchedule:
        """Read what the user wrote.

        Args:
            swa_start: From when on weights are averaged.
            swa_end: Until when.
            update_interval: How often.

        Returns:
            The schedule.

        Raises:
            TypeError: If one of them is no time.
            ValueError: If the units do not fit, or a time is out of range.

        Example:
            >>> SWASchedule.parse("3ep", "5ep", "10ba").interval
            Time(10, TimeUnit.BATCH)
        """
        start = _moment("swa_start", swa_start)
        end = _moment("swa_end", swa_end)
        if start.unit is not end.unit:
            raise ValueError(
                f"swa_start={swa_start!r} and swa_end={swa_end!r} must have the same unit"
            )
        if not start.value < end.value:
            raise ValueError(f"swa_start={swa_start!r} must be before swa_end={swa_end!r}")
        interval = _time("update_interval", update_interval)
        if interval.unit not in (TimeUnit.BATCH, TimeUnit.EPOCH) or interval.value <= 0:
            raise ValueError(
                f"update_interval={update_interval!r} must be a positive number of batches "
                f"('10ba') or epochs ('1ep')"
            )
        return cls(start, end, interval, (str(swa_start), str(swa_end), str(update_interval)))

    @property
    def update_event(self) -> Event:
        """The event at which updates can be due."""
        return Event.BATCH_END if self.interval.unit is TimeUnit.BATCH else Event.EPOCH_END

    def has_started(self, state: State) -> bool:
        """Say whether averaging has started.

        Args:
            state: The state of the run.

        Returns:
            Whether it has; false while the length of the run is unknown and the start is a share.

        Example:
            >>> from types import SimpleNamespace
            >>> from composer.core.timestamp import Timestamp
            >>> schedule = SWASchedule.parse("3ba", "5ba", "1ba")
            >>> schedule.has_started(SimpleNamespace(timestamp=Timestamp(batch=3)))
            True
        """
        return _now(self.start.unit, state) >= self.start.value - _HAIR

    def is_in_window(self, state: State) -> bool:
        """Say whether weights of this moment belong to the average.

        Args:
            state: The state of the run.

        Returns:
            Whether averaging has started and its end is not passed.

        Example:
            >>> from types import SimpleNamespace
            >>> from composer.core.timestamp import Timestamp
            >>> schedule = SWASchedule.parse("3ba", "5ba", "1ba")
            >>> schedule.is_in_window(SimpleNamespace(timestamp=Timestamp(batch=6)))
            False
        """
        return self.has_started(state) and _now(self.end.unit, state) <= self.end.value + _HAIR

    def is_over(self, event: Event, state: State) -> bool:
        """Say whether averaging ends.

        Args:
            event: ``BATCH_END`` or ``EPOCH_END``.
            state: The state of the run.

        Returns:
            Whether the end is reached; where an update may still be due at this very moment, at the
            end of an epoch that follows, whether it is passed.

        Example:
            >>> from types import SimpleNamespace
            >>> from composer.core.timestamp import Timestamp
            >>> schedule = SWASchedule.parse("3ba", "5ba", "1ba")
            >>> state = SimpleNamespace(timestamp=Timestamp(batch=5))
            >>> schedule.is_over(Event.BATCH_END, state)
            True
        """
        now = _now(self.end.unit, state)
        if event is self.update_event:
            return now >= self.end.value - _HAIR
        return event is Event.BATCH_END and now > self.end.value + _HAIR

    def ends_with(self, duration: Time[Any] | None) -> bool:
        """Say whether averaging ends when the run does, or later.

        Args:
            duration: The length of the run.

        Returns:
            Whether it does, as far as can be told: times in other units than the run's cannot be
            compared.

        Example:
            >>> SWASchedule.parse("3ep", "5ep", "1ep").ends_with(Time(5, "ep"))
            True
        """
        if self.end.unit is TimeUnit.DURATION:
            return bool(self.end.value >= 1.0)
        if duration is None or duration.unit is not self.end.unit:
            return False
        return bool(self.end.value >= duration.value)

    def num_updates(self, duration: Time[Any] | None) -> int | None:
        """Return how many sets of weights will be averaged.

        Args:
            duration: The length of the run.

        Returns:
            The number; ``None`` if it cannot be told, since units differ.

        Example:
            >>> SWASchedule.parse("0.7dur", "0.97dur", "1ep").num_updates(Time(10, "ep"))
            3
            >>> SWASchedule.parse("0.7dur", "0.97dur", "1ep").num_updates(Time(3, "ep"))
            0
        """
        if duration is None or duration.unit is not self.interval.unit:
            return None
        if self.end.unit not in (TimeUnit.DURATION, duration.unit):
            return None
        scale = duration.value if self.end.unit is TimeUnit.DURATION else 1
        first = max(1, -int(-(self.start.value * scale - _HAIR) // 1))
        last = min(int(self.end.value * scale + _HAIR), duration.value)
        return max(0, (last - first) // self.interval.value + 1)

    def warn_of_times(self, duration: Time[Any] | None, *, has_statistics: bool) -> None:
        """Warn of times that leave nothing to average, or none for statistics to settle.

        Args:
            duration: The length of the run.
            has_statistics: Whether the model keeps statistics of batches.

        Example:
            >>> schedule = SWASchedule.parse("3ep", "5ep", "1ep")
            >>> schedule.warn_of_times(Time(6, "ep"), has_statistics=True)
        """
        start, end, interval = self.written
        number = self.num_updates(duration)
        if number is not None and number < 2:
            warnings.warn(
                f"SWA has {number} sets of weights to average between "
                f"swa_start={start!r} and swa_end={end!r} of a run of "
                f"{duration!s}, so it has no effect; update more often than "
                f"update_interval={interval!r}, or start earlier",
                NoEffectWarning,
                stacklevel=2,
            )
        if has_statistics and self.ends_with(duration):
            warnings.warn(
                f"swa_end={end!r} is the end of the run of {duration!s}, which leaves no "
                f"batch in which the model's batch statistics could become those of the average; "
                f"end earlier, or run some batches in training mode afterwards",
                NotIntendedUseWarning,
                stacklevel=2,
            )


# A share is a quotient of counts and may be a hair beside the number that it stands for.
_HAIR = 1e-9


def _now(unit: TimeUnit, state: State) -> float:
    if unit is TimeUnit.DURATION:
        elapsed = elapsed_share(state)
        return 0.0 if elapsed is None else elapsed
    return float(state.timestamp.count(unit))


def _time(name: str, value: Any) -> Time[Any]:
    try:
        return Time.from_input(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}={value!r}: {error}") from None


def _moment(name: str, value: Any) -> Time[Any]:
    time = _time(name, value)
    too_late = time.unit is TimeUnit.DURATION and time.value > 1
    if time.unit not in _UNITS or time.value < 0 or too_late:
        raise ValueError(
            f"{name}={value!r} must be a share of the run ('0.7dur', at most '1dur'), or a number "
            f"of epochs ('70ep') or batches ('7000ba')"
        )
    return time
