"""When an average of weights starts and is updated, and how fast it forgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from composer.core.event import Event
from composer.core.time import Time, TimeUnit
from composer.utils.checks import check_number

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["DEFAULT_HALF_LIFE", "EMASchedule"]

DEFAULT_HALF_LIFE = "1000ba"


@dataclass(frozen=True)
class EMASchedule:
    """The times of an average.

    Args:
        start: When it starts.
        interval: How often it is updated.
        decay: The share of the old average that stays at an update.

    Example:
        >>> EMASchedule.parse("2ep", None, "0dur", None).update_event.value
        'epoch_end'
    """

    start: Time[Any]
    interval: Time[Any]
    decay: float

    @classmethod
    def parse(
        cls,
        half_life: Any,
        smoothing: float | None,
        ema_start: Any,
        update_interval: Any,
    ) -> EMASchedule:
        """Read what the user wrote.

        Args:
            half_life: After this time the share of older weights is a half.
            smoothing: The share of the old average that stays at an update.
            ema_start: When the average starts.
            update_interval: How often it is updated.

        Returns:
            The schedule.

        Raises:
            TypeError: If ``smoothing`` is not a number.
            ValueError: If both or neither of half life and smoothing are given, or a time is out of
                range or in another unit.

        Example:
            >>> EMASchedule.parse("10ba", None, "0dur", "5ba").decay == 0.5**0.5
            True
        """
        if smoothing is None and half_life is None:
            raise ValueError("half_life and smoothing are both None; give one of them")
        given = None if update_interval is None else _recurring("update_interval", update_interval)
        start = _start_time(ema_start)
        if smoothing is None:
            half = _recurring("half_life", half_life)
            interval = Time(1, half.unit) if given is None else given
            if interval.unit is not half.unit:
                raise ValueError(
                    f"update_interval={update_interval!r} and half_life={half_life!r} must have "
                    f"the same unit"
                )
            return cls(start, interval, 2.0 ** (-interval.value / half.value))
        if half_life not in (None, DEFAULT_HALF_LIFE):
            raise ValueError(
                f"half_life={half_life!r} and smoothing={smoothing!r} exclude each other; give one"
            )
        check_number("smoothing", smoothing, low=0.0, open_low=True, high=1.0, open_high=True)
        return cls(start, given or Time(1, TimeUnit.BATCH), float(smoothing))

    @property
    def update_event(self) -> Event:
        """The event at which updates can be due."""
        return Event.BATCH_END if self.interval.unit is TimeUnit.BATCH else Event.EPOCH_END

    def is_due(self, state: State, started: bool) -> bool:
        """Say whether the average is to be started or updated.

        Args:
            state: The state of the run.
            started: Whether there is an average already.

        Returns:
            Whether it is.

        Example:
            >>> from composer.core.timestamp import Timestamp
            >>> from types import SimpleNamespace
            >>> schedule = EMASchedule.parse("10ba", None, "4ba", "5ba")
            >>> schedule.is_due(SimpleNamespace(timestamp=Timestamp(batch=4)), started=False)
            True
        """
        return self.is_update_due(state) if started else self.has_started(state)

    def has_started(self, state: State) -> bool:
        """Say whether the start is reached.

        Args:
            state: The state of the run.

        Returns:
            Whether it is; false while the length of the run is unknown and the start is a share.

        Example:
            >>> from types import SimpleNamespace
            >>> state = SimpleNamespace(get_elapsed_duration=lambda: None)
            >>> EMASchedule.parse("2ep", None, "0dur", None).has_started(state)
            False
        """
        if self.start.unit is TimeUnit.DURATION:
            elapsed = state.get_elapsed_duration()
            return elapsed is not None and elapsed.value >= self.start.value
        return state.timestamp.count(self.start.unit) >= self.start.value

    def is_update_due(self, state: State) -> bool:
        """Say whether an update is due.

        Args:
            state: The state of the run.

        Returns:
            Whether the counter is a multiple of the interval.

        Example:
            >>> from composer.core.timestamp import Timestamp
            >>> from types import SimpleNamespace
            >>> schedule = EMASchedule.parse("10ba", None, "0dur", "5ba")
            >>> schedule.is_update_due(SimpleNamespace(timestamp=Timestamp(batch=10)))
            True
        """
        return state.timestamp.count(self.interval.unit) % self.interval.value == 0


def _recurring(name: str, value: Any) -> Time[Any]:
    time = Time.from_input(value)
    if time.unit not in (TimeUnit.BATCH, TimeUnit.EPOCH) or time.value <= 0:
        raise ValueError(
            f"{name}={value!r} must be a positive number of batches ('10ba') or epochs ('1ep')"
        )
    return time


def _start_time(value: Any) -> Time[Any]:
    time = Time.from_input(value)
    units = (TimeUnit.DURATION, TimeUnit.BATCH, TimeUnit.EPOCH)
    too_late = time.unit is TimeUnit.DURATION and time.value > 1
    if time.unit not in units or time.value < 0 or too_late:
        raise ValueError(
            f"ema_start={value!r} must be a share of the run ('0.1dur', at most '1dur'), or a "
            f"number of batches ('10ba') or epochs ('1ep')"
        )
    return time
