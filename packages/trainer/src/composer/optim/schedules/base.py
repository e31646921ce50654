"""The contract of a schedule, and how a schedule reads the clock.

A schedule answers one question: by what factor is the initial learning rate multiplied now? It is
asked after the timestamp has advanced, so that batch ``k`` (counted from 0) trains at ``f(k)``.
Everything that turns a user's time argument into a number of batches, samples or tokens lives here,
so that the schedules themselves are formulas.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from composer.core.time import Time, TimeUnit

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = [
    "ComposerScheduler",
    "check_flag",
    "check_number",
    "elapsed",
    "parse_time",
    "progress",
    "resolve_time",
    "run_length",
]

# A product such as 0.29 * 100 lies a hair below the whole number that was meant.
_ROUNDING = 1e-9


class ComposerScheduler(ABC):
    """A function of the training state that gives the learning rate's multiplier.

    Subclasses implement ``__call__``. A plain function of the state can stand in for one wherever
    the schedule is not scaled.

    Example:
        >>> from composer.optim import preview_schedule
        >>> class Halve(ComposerScheduler):
        ...     def __call__(self, state, ssr=1.0):
        ...         return 0.5 ** state.timestamp.batch.value
        >>> preview_schedule(Halve(), "3ba")
        [1.0, 0.5, 0.25]
    """

    @abstractmethod
    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor on each parameter group's initial learning rate.

        Args:
            state: The training state; its timestamp, max duration and loader length are read. The
                max duration is already scaled by ``ssr``.
            ssr: The scale schedule ratio: absolute times of the schedule are multiplied by it.

        Returns:
            The multiplier.
        """


def check_number(argument: str, value: Any, *, zero: bool = True) -> float:
    """Refuse what would make a learning rate negative, infinite or no number at all.

    Args:
        argument: The argument's name, for the error.
        value: Its value.
        zero: Whether zero makes sense.

    Returns:
        The value.

    Raises:
        TypeError: If it is not a number.
        ValueError: If it is not finite, is negative, or is zero where it may not be.

    Example:
        >>> check_number("alpha", 2.0)
        2.0
    """
    least = "zero or more" if zero else "more than zero"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{argument} must be a number, {least}, got {value!r}")
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise ValueError(f"{argument} must be a finite number, {least}, got {value!r}")
    return value  # type: ignore[return-value]


def check_flag(argument: str, value: Any) -> bool:
    """Refuse what is not true or false, such as the string ``"false"``.

    Args:
        argument: The argument's name, for the error.
        value: Its value.

    Returns:
        The value.

    Raises:
        TypeError: If it is not a boolean.

    Example:
        >>> check_flag("scale_warmup", True)
        True
    """
    if not isinstance(value, bool):
        raise TypeError(f"{argument} must be True or False, got {value!r}")
    return value


def parse_time(argument: str, value: str | Time[Any], *, zero: bool = False) -> Time[Any]:
    """Turn a schedule's time argument into a time, refusing what a schedule cannot use.

    Args:
        argument: The argument's name, for the error.
        value: A time string or a time.
        zero: Whether a length of zero makes sense.

    Returns:
        The time.

    Raises:
        TypeError: If ``value`` is neither a string nor a time.
        ValueError: If it is no time, is in seconds, is negative, or is zero where it may not be.

    Example:
        >>> parse_time("t_max", "10ep")
        Time(10, TimeUnit.EPOCH)
    """
    if isinstance(value, str):
        time: Time[Any] = Time.from_timestring(value)
    elif isinstance(value, Time):
        time = value
    else:
        raise TypeError(
            f"{argument} must be a time string such as '10ep', '500ba' or '0.5dur', or a Time; "
            f"got {value!r}, which has no unit"
        )
    if time.unit is TimeUnit.SECOND:
        raise ValueError(
            f"{argument}={str(time)!r} is wall-clock time, on which a schedule cannot depend: two "
            "runs would train differently. Use epochs (ep), batches (ba), samples (sp), tokens "
            "(tok) or a share of the run (dur)"
        )
    if time.value < 0 or (time.value == 0 and not zero):
        least = "zero or more" if zero else "more than zero"
        raise ValueError(f"{argument} must be {least}, got {str(time)!r}")
    return time


def _whole(value: float) -> int:
    return math.floor(value + _ROUNDING)


def _batches_per_epoch(state: State, what: str) -> int:
    length = state.dataloader_len
    if length is None:
        raise ValueError(
            f"{what} is in epochs, but the train dataloader has no length. Use a dataloader with "
            "a length, give another unit such as batches ('500ba') or samples ('10000sp'), or set "
            "train_subset_num_batches to the number of batches of an epoch"
        )
    return int(length)


def run_length(state: State) -> Time[Any]:
    """Return the max duration, epochs expressed in batches.

    Args:
        state: The training state.

    Returns:
        The length of the run in batches, samples, tokens or iterations.

    Raises:
        ValueError: If the max duration is not set, is not countable, or is in epochs of unknown
            length.

    Example:
        >>> from types import SimpleNamespace
        >>> run_length(SimpleNamespace(max_duration=Time(2, "ep"), dataloader_len=Time(10, "ba")))
        Time(20, TimeUnit.BATCH)
    """
    whole = state.max_duration
    if whole is None:
        raise ValueError(
            "a schedule needs to know how long the run is: set max_duration, or the duration of fit"
        )
    if whole.unit is TimeUnit.EPOCH:
        length = _batches_per_epoch(state, f"max_duration={str(whole)!r}")
        return Time(whole.value * length, TimeUnit.BATCH)
    if whole.unit is TimeUnit.SECOND:
        raise ValueError(
            f"max_duration={str(whole)!r} is wall-clock time, so a share of the run (such as "
            "t_max='1dur') is not known beforehand: give the schedule epochs or batches"
        )
    return whole


def resolve_time(argument: str, time: Time[Any], state: State, ssr: float = 1.0) -> Time[Any]:
    """Express a schedule's time in a unit that the timestamp counts within an epoch.

    A share of the run is taken of the (already scaled) max duration; any other time is multiplied
    by ``ssr``. Epochs become batches first, so that scaling does not round whole epochs away.

    Args:
        argument: The argument's name, for the error.
        time: The time to express.
        state: The training state.
        ssr: The scale schedule ratio.

    Returns:
        A time in batches, samples, tokens or iterations, truncated to a whole number.

    Raises:
        ValueError: If epochs are needed and the dataloader has no length.

    Example:
        >>> from types import SimpleNamespace
        >>> state = SimpleNamespace(max_duration=Time(2, "ep"), dataloader_len=Time(10, "ba"))
        >>> resolve_time("t_max", Time(0.25, "dur"), state)
        Time(5, TimeUnit.BATCH)
        >>> resolve_time("t_max", Time(3, "ep"), state, ssr=0.5)
        Time(15, TimeUnit.BATCH)
    """
    unit = time.unit
    if unit is TimeUnit.DURATION:
        whole = run_length(state)
        return Time(_whole(time.value * whole.value), whole.unit)
    if unit is TimeUnit.EPOCH:
        length = _batches_per_epoch(state, f"{argument}={str(time)!r}")
        return Time(_whole(time.value * length * ssr), TimeUnit.BATCH)
    return time if ssr == 1.0 else Time(_whole(time.value * ssr), unit)


def elapsed(state: State, unit: TimeUnit) -> int:
    """Return how far training is.

    Args:
        state: The training state.
        unit: The unit to count in.

    Returns:
        The timestamp's counter.

    Example:
        >>> from types import SimpleNamespace
        >>> from composer.core.timestamp import Timestamp
        >>> elapsed(SimpleNamespace(timestamp=Timestamp(batch=3)), TimeUnit.BATCH)
        3
    """
    return int(state.timestamp.count(unit))


def progress(done: float, total: float) -> float:
    """Return the share that is done, never outside 0 to 1.

    Args:
        done: What is done.
        total: The whole; nothing to do counts as done.

    Returns:
        The share.

    Example:
        >>> progress(15, 10), progress(5, 10), progress(0, 0)
        (1.0, 0.5, 1.0)
    """
    if total <= 0:
        return 1.0
    return min(1.0, max(0.0, done / total))
