"""Time as a value with a unit: ``"10ep"``, ``"500ba"``, ``"1h30m"``.

Durations, intervals and schedules are all written this way. Two times compare and add only when
their units agree; everything else raises, since a silent conversion would be a guess.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from composer.core.serializable import Serializable
from composer.utils.string_enum import StringEnum

if TYPE_CHECKING:
    from composer.core.timestamp import Timestamp

__all__ = ["Time", "TimeUnit", "Timestamp", "ensure_time", "stretched"]


class TimeUnit(StringEnum):
    """A unit of training time.

    Example:
        >>> TimeUnit("ep") is TimeUnit.EPOCH
        True
    """

    ITERATION = "iter"
    EPOCH = "ep"
    BATCH = "ba"
    SAMPLE = "sp"
    TOKEN = "tok"
    DURATION = "dur"
    SECOND = "sec"


TValue = TypeVar("TValue", int, float)

_NUMBER_THEN_UNIT = re.compile(
    r"^\s*([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(iter|ep|ba|sp|tok|dur|sec)\s*$", re.IGNORECASE
)
_WALL_CLOCK = re.compile(r"^\s*(?:(\d+)\s*h)?\s*(?:(\d+)\s*m)?\s*(?:(\d+)\s*s)?\s*$", re.IGNORECASE)
_EXAMPLES = (
    "'10ep' (epochs), '500ba' (batches), '5000sp' (samples), '1e6tok' (tokens), '0.5dur' (share of "
    "the run), '100sec', '90m', '24h' or '1h30m' (wall clock)"
)


def _bad_time_string(text: str) -> ValueError:
    return ValueError(f"{text!r} is not a time string. Right ones look like: {_EXAMPLES}.")


class Time(Generic[TValue], Serializable):
    """An amount of training time.

    Values are whole numbers in every unit except ``dur``, whose value is a fraction of the run.
    A time is immutable. Arithmetic needs equal units (numbers take the time's own unit); a product
    with a number or a ``dur`` keeps the unit and truncates; the quotient of two times of one unit
    is a ``dur``.

    Args:
        value: The amount, an int for every unit but ``dur``.
        unit: The unit, as :class:`TimeUnit` or its value.

    Raises:
        TypeError: If ``value`` has the wrong type for ``unit``.
        ValueError: If ``unit`` is unknown.

    Example:
        >>> Time(5, "ep")
        Time(5, TimeUnit.EPOCH)
        >>> Time.from_timestring("1h30m")
        Time(5400, TimeUnit.SECOND)
        >>> Time(3, "ba") + "2ba" == "5ba"
        True
        >>> Time(1, "ba") / Time(4, "ba")
        Time(0.25, TimeUnit.DURATION)
    """

    __slots__ = ("_unit", "_value")

    _value: TValue
    _unit: TimeUnit

    def __init__(self, value: TValue, unit: str | TimeUnit) -> None:
        unit = TimeUnit(unit)
        if unit is TimeUnit.DURATION:
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise TypeError(f"a time in 'dur' takes a number, not {value!r}")
            value = float(value)  # type: ignore[assignment]
            if not math.isfinite(value):
                raise ValueError(f"a time must be finite, not {value!r}")
        elif not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(
                f"a time in {unit.value!r} takes an int, not {value!r} of type "
                f"{type(value).__name__}; only 'dur' takes fractions"
            )
        self._value = value
        self._unit = unit

    @property
    def value(self) -> TValue:
        """The amount."""
        return self._value

    @property
    def unit(self) -> TimeUnit:
        """The unit."""
        return self._unit

    # ---- constructors -------------------------------------------------------------------------

    @classmethod
    def from_iteration(cls, iteration: int) -> Time[int]:
        """Make a time in iterations.

        Args:
            iteration: How many.

        Returns:
            The time.

        Example:
            >>> Time.from_iteration(2)
            Time(2, TimeUnit.ITERATION)
        """
        return Time(iteration, TimeUnit.ITERATION)

    @classmethod
    def from_epoch(cls, epoch: int) -> Time[int]:
        """Make a time in epochs.

        Args:
            epoch: How many.

        Returns:
            The time.

        Example:
            >>> Time.from_epoch(2)
            Time(2, TimeUnit.EPOCH)
        """
        return Time(epoch, TimeUnit.EPOCH)

    @classmethod
    def from_batch(cls, batch: int) -> Time[int]:
        """Make a time in batches.

        Args:
            batch: How many.

        Returns:
            The time.

        Example:
            >>> Time.from_batch(2)
            Time(2, TimeUnit.BATCH)
        """
        return Time(batch, TimeUnit.BATCH)

    @classmethod
    def from_sample(cls, sample: int) -> Time[int]:
        """Make a time in samples.

        Args:
            sample: How many.

        Returns:
            The time.

        Example:
            >>> Time.from_sample(2)
            Time(2, TimeUnit.SAMPLE)
        """
        return Time(sample, TimeUnit.SAMPLE)

    @classmethod
    def from_token(cls, token: int) -> Time[int]:
        """Make a time in tokens.

        Args:
            token: How many.

        Returns:
            The time.

        Example:
            >>> Time.from_token(2)
            Time(2, TimeUnit.TOKEN)
        """
        return Time(token, TimeUnit.TOKEN)

    @classmethod
    def from_duration(cls, duration: float) -> Time[float]:
        """Make a time as a fraction of the run.

        Args:
            duration: The fraction, usually between 0 and 1.

        Returns:
            The time.

        Example:
            >>> Time.from_duration(0.5)
            Time(0.5, TimeUnit.DURATION)
        """
        return Time(float(duration), TimeUnit.DURATION)

    @classmethod
    def from_timedelta(cls, timestring: str) -> Time[int]:
        """Make a time in seconds from hours, minutes and seconds, each of any size.

        Args:
            timestring: Any non-empty subset of ``XhYmZs``, such as ``"24h"`` or ``"90m"``.

        Returns:
            The time in seconds.

        Raises:
            ValueError: If the string does not look like that.

        Example:
            >>> Time.from_timedelta("1h30m")
            Time(5400, TimeUnit.SECOND)
        """
        match = _WALL_CLOCK.match(timestring)
        if match is None or not any(match.groups()):
            raise _bad_time_string(timestring)
        hours, minutes, seconds = (int(g) if g else 0 for g in match.groups())
        return Time(hours * 3600 + minutes * 60 + seconds, TimeUnit.SECOND)

    @classmethod
    def from_timestring(cls, timestring: str) -> Time[Any]:
        """Parse a time string.

        Args:
            timestring: A number followed by a unit, case-insensitive, blanks between tolerated,
                scientific notation allowed when whole (``"3e4tok"``); or a wall-clock string
                such as ``"1h30m"``.

        Returns:
            The time.

        Raises:
            ValueError: If the string is not a time.
            TypeError: If a unit that counts things gets a fraction.

        Example:
            >>> Time.from_timestring("3e4tok")
            Time(30000, TimeUnit.TOKEN)
        """
        if not isinstance(timestring, str):
            raise TypeError(f"a time string must be a str, not {timestring!r}")
        match = _NUMBER_THEN_UNIT.match(timestring)
        if match is None:
            return cls.from_timedelta(timestring)
        text, unit = match.group(1), TimeUnit(match.group(2).lower())
        if unit is TimeUnit.DURATION:
            return Time(float(text), unit)
        try:
            return Time(int(text), unit)
        except ValueError:
            number = float(text)
        if not number.is_integer():
            raise TypeError(
                f"{timestring!r} asks for a fraction of a unit that is counted whole; write an "
                f"integer, or a share of the run such as '0.5dur'"
            )
        return Time(int(number), unit)

    @classmethod
    def from_input(
        cls, i: str | int | float | Time[Any], default_int_unit: TimeUnit | str | None = None
    ) -> Time[Any]:
        """Turn what a user wrote into a time.

        Args:
            i: A time (returned as it is), a time string, or a number.
            default_int_unit: The unit a bare number takes.

        Returns:
            The time.

        Raises:
            ValueError: If a bare number is given without a default unit, or a string is no time.

        Example:
            >>> Time.from_input(3, "ep")
            Time(3, TimeUnit.EPOCH)
        """
        if isinstance(i, Time):
            return i
        if isinstance(i, str):
            return cls.from_timestring(i)
        if isinstance(i, (int, float)) and not isinstance(i, bool):
            if default_int_unit is None:
                raise ValueError(f"{i!r} has no unit; write a time string such as {_EXAMPLES}")
            return Time(i, default_int_unit)
        raise TypeError(f"cannot make a time of {i!r}; write a time string such as {_EXAMPLES}")

    # ---- text ---------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"Time({self._value!r}, {type(self._unit).__name__}.{self._unit.name})"

    def __str__(self) -> str:
        return f"{self._value}{self._unit.value}"

    def to_timestring(self) -> str:
        """Return the time as a string that :meth:`from_timestring` reads.

        Returns:
            For instance ``"5ep"``.

        Example:
            >>> Time(5, "ep").to_timestring()
            '5ep'
        """
        return str(self)

    # ---- comparison ---------------------------------------------------------------------------

    def _other(self, other: object) -> Any:
        """The other side as a bare number in this time's unit, or ``NotImplemented``."""
        if isinstance(other, Time):
            if other._unit is not self._unit:
                raise RuntimeError(
                    f"cannot combine {self!s} with {other!s}: units {self._unit.value!r} and "
                    f"{other._unit.value!r} differ"
                )
            return other._value
        if isinstance(other, (int, float)):
            return other
        if isinstance(other, str):
            return self._other(Time.from_timestring(other))
        return NotImplemented

    def __eq__(self, other: object) -> bool:
        value = self._other(other)
        return NotImplemented if value is NotImplemented else self._value == value

    def __lt__(self, other: int | float | Time[Any] | str) -> bool:
        value = self._other(other)
        return NotImplemented if value is NotImplemented else self._value < value

    def __le__(self, other: int | float | Time[Any] | str) -> bool:
        value = self._other(other)
        return NotImplemented if value is NotImplemented else self._value <= value

    def __gt__(self, other: int | float | Time[Any] | str) -> bool:
        value = self._other(other)
        return NotImplemented if value is NotImplemented else self._value > value

    def __ge__(self, other: int | float | Time[Any] | str) -> bool:
        value = self._other(other)
        return NotImplemented if value is NotImplemented else self._value >= value

    def __hash__(self) -> int:
        return hash((self._value, self._unit.value))

    # ---- arithmetic ---------------------------------------------------------------------------

    def _same_unit(self, value: Any) -> Time[Any]:
        return Time(value if self._unit is TimeUnit.DURATION else int(value), self._unit)

    def __add__(self, other: int | float | Time[Any] | str) -> Time[TValue]:
        value = self._other(other)
        return NotImplemented if value is NotImplemented else self._same_unit(self._value + value)

    __radd__ = __add__

    def __sub__(self, other: int | float | Time[Any] | str) -> Time[TValue]:
        value = self._other(other)
        return NotImplemented if value is NotImplemented else self._same_unit(self._value - value)

    def __rsub__(self, other: int | float | Time[Any] | str) -> Time[TValue]:
        value = self._other(other)
        return NotImplemented if value is NotImplemented else self._same_unit(value - self._value)

    def __neg__(self) -> Time[TValue]:
        return self._same_unit(-self._value)

    def __int__(self) -> int:
        return int(self._value)

    def __float__(self) -> float:
        return float(self._value)

    def __truediv__(self, other: int | float | Time[Any] | str) -> Time[Any]:
        if isinstance(other, (int, float)):
            return self._same_unit(self._value / other)
        value = self._other(other)
        if value is NotImplemented:
            return NotImplemented
        return Time(self._value / value, TimeUnit.DURATION)

    def __mod__(self, other: int | float | Time[Any] | str) -> Time[TValue]:
        value = self._other(other)
        return NotImplemented if value is NotImplemented else self._same_unit(self._value % value)

    def __mul__(self, other: int | float | Time[Any] | str) -> Time[Any]:
        if isinstance(other, str):
            other = Time.from_timestring(other)
        if isinstance(other, Time):
            if TimeUnit.DURATION not in (self._unit, other._unit):
                raise RuntimeError(
                    f"cannot multiply {self!s} by {other!s}: one side must be a number or in 'dur'"
                )
            unit = other._unit if self._unit is TimeUnit.DURATION else self._unit
            product = self._value * other._value
            return Time(product if unit is TimeUnit.DURATION else int(product), unit)
        if isinstance(other, (int, float)):
            return self._same_unit(self._value * other)
        return NotImplemented

    __rmul__ = __mul__

    # ---- saving -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return value and unit as plain types.

        Returns:
            The keys ``value`` and ``unit``.

        Example:
            >>> Time(5, "ep").state_dict()
            {'value': 5, 'unit': 'ep'}
        """
        return {"value": self._value, "unit": self._unit.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Refuse: a time is immutable.

        Args:
            state: What :meth:`state_dict` returned; rebuild with ``Time(**state)``.

        Raises:
            TypeError: Always.

        Example:
            >>> Time(**Time(5, "ep").state_dict()) == "5ep"
            True
        """
        raise TypeError(f"a Time does not change; make a new one with Time(**{state!r})")

    def __getstate__(self) -> dict[str, Any]:
        return self.state_dict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._value = state["value"]
        self._unit = TimeUnit(state["unit"])


def ensure_time(maybe_time: Time[Any] | str | int, int_unit: TimeUnit | str) -> Time[Any]:
    """Turn an int, a time string or a time into a time.

    Args:
        maybe_time: What the user wrote.
        int_unit: The unit a bare int takes.

    Returns:
        The time.

    Example:
        >>> ensure_time(3, "ep")
        Time(3, TimeUnit.EPOCH)
    """
    return Time.from_input(maybe_time, int_unit)


def __getattr__(name: str) -> Any:
    # Scripts import Timestamp from here too; it lives in its own module, which needs this one.
    if name == "Timestamp":
        from composer.core.timestamp import Timestamp

        return Timestamp
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def stretched(time: Time[Any], ratio: float) -> Time[Any]:
    """Return a time that is a multiple of another, in whole units where that one is.

    Args:
        time: The time.
        ratio: The factor.

    Returns:
        The multiple, truncated; a product that is whole but for rounding is not truncated to the
        number below.

    Example:
        >>> stretched(Time(90, "ep"), 0.7)
        Time(63, TimeUnit.EPOCH)
    """
    product = time.value * ratio
    return Time(product if isinstance(time.value, float) else int(product + 1e-9), time.unit)
