"""The training clock: how many epochs, batches, samples, tokens and seconds have passed.

A timestamp is immutable; each advance makes a new one, so a reference taken at one event still says
the same at the next. Counters are kept as bare ints, since one is made per training step, and are
turned into :class:`~composer.core.time.Time` when somebody asks.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from composer.core.serializable import Serializable
from composer.core.time import Time, TimeUnit

__all__ = ["Timestamp"]

_COUNTERS: dict[str, TimeUnit] = {
    "iteration": TimeUnit.ITERATION,
    "epoch": TimeUnit.EPOCH,
    "batch": TimeUnit.BATCH,
    "sample": TimeUnit.SAMPLE,
    "token": TimeUnit.TOKEN,
    "epoch_in_iteration": TimeUnit.EPOCH,
    "token_in_iteration": TimeUnit.TOKEN,
    "batch_in_epoch": TimeUnit.BATCH,
    "sample_in_epoch": TimeUnit.SAMPLE,
    "token_in_epoch": TimeUnit.TOKEN,
}
_CLOCKS = ("total_wct", "iteration_wct", "epoch_wct", "batch_wct")
_FIELDS = (*_COUNTERS, *_CLOCKS)
_SLOTS = tuple(f"_{name}" for name in _FIELDS)

_COUNT_OF_UNIT: dict[TimeUnit, Callable[[Timestamp], int | float]] = {
    TimeUnit.ITERATION: attrgetter("_iteration"),
    TimeUnit.EPOCH: attrgetter("_epoch"),
    TimeUnit.BATCH: attrgetter("_batch"),
    TimeUnit.SAMPLE: attrgetter("_sample"),
    TimeUnit.TOKEN: attrgetter("_token"),
    TimeUnit.SECOND: attrgetter("_total_wct"),
}


def _as_count(name: str, value: int | Time[int]) -> int:
    unit = _COUNTERS[name]
    count = Time.from_input(value, unit)
    if count.unit is not unit:
        raise ValueError(f"{name} counts in {unit.value!r}, not in {count.unit.value!r}: {value!s}")
    if count.value < 0:
        raise ValueError(f"{name} cannot be negative: {value!s}")
    return int(count.value)


def _as_seconds(value: datetime.timedelta | float | None) -> float:
    if value is None:
        return 0.0
    return value.total_seconds() if isinstance(value, datetime.timedelta) else float(value)


class Timestamp(Serializable):
    """A point on the clock of a run.

    Counters move only after the optimizer's update. Samples and tokens are counted over all ranks;
    the wall clock is rank zero's and does not run during evaluation.

    Args:
        iteration: Finished iterations.
        epoch: Finished epochs.
        batch: Finished batches.
        sample: Samples trained on, over all ranks.
        token: Tokens trained on, over all ranks.
        epoch_in_iteration: Epochs finished in the current iteration.
        token_in_iteration: Tokens trained on in the current iteration.
        batch_in_epoch: Batches finished in the current epoch.
        sample_in_epoch: Samples trained on in the current epoch.
        token_in_epoch: Tokens trained on in the current epoch.
        total_wct: Wall-clock time of training so far, without evaluation.
        iteration_wct: Wall-clock time of the current iteration.
        epoch_wct: Wall-clock time of the current epoch.
        batch_wct: Wall-clock time of the last batch.

    Raises:
        ValueError: If a counter is negative or in another unit.

    Example:
        >>> start = Timestamp()
        >>> later = start.to_next_batch(samples=32).to_next_epoch()
        >>> int(later.batch), int(later.epoch), int(later.batch_in_epoch)
        (1, 1, 0)
        >>> later >= "1ep"
        True
    """

    __slots__ = _SLOTS

    _iteration: int
    _epoch: int
    _batch: int
    _sample: int
    _token: int
    _epoch_in_iteration: int
    _token_in_iteration: int
    _batch_in_epoch: int
    _sample_in_epoch: int
    _token_in_epoch: int
    _total_wct: float
    _iteration_wct: float
    _epoch_wct: float
    _batch_wct: float

    def __init__(
        self,
        iteration: int | Time[int] = 0,
        epoch: int | Time[int] = 0,
        batch: int | Time[int] = 0,
        sample: int | Time[int] = 0,
        token: int | Time[int] = 0,
        epoch_in_iteration: int | Time[int] = 0,
        token_in_iteration: int | Time[int] = 0,
        batch_in_epoch: int | Time[int] = 0,
        sample_in_epoch: int | Time[int] = 0,
        token_in_epoch: int | Time[int] = 0,
        total_wct: datetime.timedelta | None = None,
        iteration_wct: datetime.timedelta | None = None,
        epoch_wct: datetime.timedelta | None = None,
        batch_wct: datetime.timedelta | None = None,
    ) -> None:
        self._iteration = _as_count("iteration", iteration)
        self._epoch = _as_count("epoch", epoch)
        self._batch = _as_count("batch", batch)
        self._sample = _as_count("sample", sample)
        self._token = _as_count("token", token)
        self._epoch_in_iteration = _as_count("epoch_in_iteration", epoch_in_iteration)
        self._token_in_iteration = _as_count("token_in_iteration", token_in_iteration)
        self._batch_in_epoch = _as_count("batch_in_epoch", batch_in_epoch)
        self._sample_in_epoch = _as_count("sample_in_epoch", sample_in_epoch)
        self._token_in_epoch = _as_count("token_in_epoch", token_in_epoch)
        self._total_wct = _as_seconds(total_wct)
        self._iteration_wct = _as_seconds(iteration_wct)
        self._epoch_wct = _as_seconds(epoch_wct)
        self._batch_wct = _as_seconds(batch_wct)

    @property
    def iteration(self) -> Time[int]:
        """Finished iterations."""
        return Time(self._iteration, TimeUnit.ITERATION)

    @property
    def epoch(self) -> Time[int]:
        """Finished epochs."""
        return Time(self._epoch, TimeUnit.EPOCH)

    @property
    def batch(self) -> Time[int]:
        """Finished batches."""
        return Time(self._batch, TimeUnit.BATCH)

    @property
    def sample(self) -> Time[int]:
        """Samples trained on, over all ranks."""
        return Time(self._sample, TimeUnit.SAMPLE)

    @property
    def token(self) -> Time[int]:
        """Tokens trained on, over all ranks."""
        return Time(self._token, TimeUnit.TOKEN)

    @property
    def epoch_in_iteration(self) -> Time[int]:
        """Epochs finished in the current iteration."""
        return Time(self._epoch_in_iteration, TimeUnit.EPOCH)

    @property
    def token_in_iteration(self) -> Time[int]:
        """Tokens trained on in the current iteration."""
        return Time(self._token_in_iteration, TimeUnit.TOKEN)

    @property
    def batch_in_epoch(self) -> Time[int]:
        """Batches finished in the current epoch."""
        return Time(self._batch_in_epoch, TimeUnit.BATCH)

    @property
    def sample_in_epoch(self) -> Time[int]:
        """Samples trained on in the current epoch."""
        return Time(self._sample_in_epoch, TimeUnit.SAMPLE)

    @property
    def token_in_epoch(self) -> Time[int]:
        """Tokens trained on in the current epoch."""
        return Time(self._token_in_epoch, TimeUnit.TOKEN)

    @property
    def total_wct(self) -> datetime.timedelta:
        """Wall-clock time of training so far, without evaluation."""
        return datetime.timedelta(seconds=self._total_wct)

    @property
    def iteration_wct(self) -> datetime.timedelta:
        """Wall-clock time of the current iteration."""
        return datetime.timedelta(seconds=self._iteration_wct)

    @property
    def epoch_wct(self) -> datetime.timedelta:
        """Wall-clock time of the current epoch."""
        return datetime.timedelta(seconds=self._epoch_wct)

    @property
    def batch_wct(self) -> datetime.timedelta:
        """Wall-clock time of the last batch."""
        return datetime.timedelta(seconds=self._batch_wct)

    # ---- asking -------------------------------------------------------------------------------

    def get(self, unit: str | TimeUnit) -> Time[int]:
        """Return the counter of a unit.

        Args:
            unit: Any unit but ``dur``; seconds are whole seconds of training.

        Returns:
            The counter.

        Raises:
            ValueError: If the unit is ``dur``, which has no counter.

        Example:
            >>> Timestamp(batch=3).get("ba")
            Time(3, TimeUnit.BATCH)
        """
        unit = TimeUnit(unit)
        return Time(int(self.count(unit)), unit)

    def count(self, unit: TimeUnit) -> int | float:
        """Return the counter of a unit as a bare number (seconds with their fraction).

        Args:
            unit: Any unit but ``dur``.

        Returns:
            The count.

        Raises:
            ValueError: If the unit is ``dur``.

        Example:
            >>> Timestamp(batch=3).count(TimeUnit.BATCH)
            3
        """
        try:
            return _COUNT_OF_UNIT[unit](self)
        except KeyError:
            raise ValueError(
                f"a timestamp has no counter for {unit.value!r}; ask for one of "
                f"{[u.value for u in _COUNT_OF_UNIT]}"
            ) from None

    def _other(self, other: int | float | Time[Any] | str | Timestamp) -> Any:
        if isinstance(other, str):
            other = Time.from_timestring(other)
        return other

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Timestamp):
            return self._values() == other._values()
        if isinstance(other, (Time, str)):
            time = self._other(other)
            return self.get(time.unit) == time
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._values())

    def __lt__(self, other: Time[Any] | str) -> bool:
        time = self._other(other)
        return self.get(time.unit) < time if isinstance(time, Time) else NotImplemented

    def __le__(self, other: Time[Any] | str) -> bool:
        time = self._other(other)
        return self.get(time.unit) <= time if isinstance(time, Time) else NotImplemented

    def __gt__(self, other: Time[Any] | str) -> bool:
        time = self._other(other)
        return self.get(time.unit) > time if isinstance(time, Time) else NotImplemented

    def __ge__(self, other: Time[Any] | str) -> bool:
        time = self._other(other)
        return self.get(time.unit) >= time if isinstance(time, Time) else NotImplemented

    def __repr__(self) -> str:
        shown = ", ".join(f"{n}={v}" for n, v in zip(_FIELDS, self._values(), strict=True) if v)
        return f"Timestamp({shown})"

    def _values(self) -> tuple[int | float, ...]:
        return tuple(getattr(self, slot) for slot in _SLOTS)

    # ---- advancing ----------------------------------------------------------------------------

    def to_next_batch(
        self,
        samples: int | Time[int] = 0,
        tokens: int | Time[int] = 0,
        duration: datetime.timedelta | float | None = None,
    ) -> Timestamp:
        """Return the timestamp one batch later.

        Args:
            samples: Samples of the batch, over all ranks.
            tokens: Tokens of the batch, over all ranks.
            duration: How long the batch took, as a timedelta or in seconds.

        Returns:
            The new timestamp.

        Example:
            >>> Timestamp().to_next_batch(samples=8, duration=0.5).sample
            Time(8, TimeUnit.SAMPLE)
        """
        # One is made per training step: bare ints and floats take the short way.
        if type(samples) is not int:
            samples = _as_count("sample", samples)
        if type(tokens) is not int:
            tokens = _as_count("token", tokens)
        seconds = duration if type(duration) is float else _as_seconds(duration)
        new = _NEW(Timestamp)
        new._iteration = self._iteration
        new._epoch = self._epoch
        new._batch = self._batch + 1
        new._sample = self._sample + samples
        new._token = self._token + tokens
        new._epoch_in_iteration = self._epoch_in_iteration
        new._token_in_iteration = self._token_in_iteration + tokens
        new._batch_in_epoch = self._batch_in_epoch + 1
        new._sample_in_epoch = self._sample_in_epoch + samples
        new._token_in_epoch = self._token_in_epoch + tokens
        new._total_wct = self._total_wct + seconds
        new._iteration_wct = self._iteration_wct + seconds
        new._epoch_wct = self._epoch_wct + seconds
        new._batch_wct = seconds
        return new

    def to_next_epoch(self, duration: datetime.timedelta | float | None = None) -> Timestamp:
        """Return the timestamp at the start of the next epoch.

        Args:
            duration: Time to add to the clock, as a timedelta or in seconds.

        Returns:
            The new timestamp, its in-epoch counters at zero.

        Example:
            >>> Timestamp(batch=3, batch_in_epoch=3).to_next_epoch()
            Timestamp(epoch=1, batch=3, epoch_in_iteration=1)
        """
        new = self._replaced({})
        new._epoch += 1
        new._epoch_in_iteration += 1
        new._batch_in_epoch = new._sample_in_epoch = new._token_in_epoch = 0
        new._epoch_wct = new._batch_wct = 0.0
        seconds = _as_seconds(duration)
        new._total_wct += seconds
        new._iteration_wct += seconds
        return new

    def to_next_iteration(self, duration: datetime.timedelta | float | None = None) -> Timestamp:
        """Return the timestamp at the start of the next iteration.

        Args:
            duration: Time to add to the clock, as a timedelta or in seconds.

        Returns:
            The new timestamp, its in-iteration and in-epoch counters at zero.

        Example:
            >>> Timestamp(epoch=3, epoch_in_iteration=3).to_next_iteration()
            Timestamp(iteration=1, epoch=3)
        """
        new = self._replaced({})
        new._iteration += 1
        new._epoch_in_iteration = new._token_in_iteration = 0
        new._batch_in_epoch = new._sample_in_epoch = new._token_in_epoch = 0
        new._iteration_wct = new._epoch_wct = new._batch_wct = 0.0
        new._total_wct += _as_seconds(duration)
        return new

    def _replaced(self, changes: dict[str, int | float]) -> Timestamp:
        new = _NEW(Timestamp)
        for field, slot in zip(_FIELDS, _SLOTS, strict=True):
            setattr(new, slot, changes[field] if field in changes else getattr(self, slot))
        return new

    def copy(self, **overrides: int | Time[int] | datetime.timedelta | None) -> Timestamp:
        """Return a copy with some fields replaced.

        Args:
            **overrides: Fields of the constructor; ``None`` leaves a field as it is.

        Returns:
            The copy.

        Raises:
            TypeError: If a field is unknown.

        Example:
            >>> Timestamp(batch=3, epoch=1).copy(batch=4)
            Timestamp(epoch=1, batch=4)
        """
        changes: dict[str, int | float] = {}
        for name, value in overrides.items():
            if name not in _FIELDS:
                raise TypeError(f"a timestamp has no field {name!r}; fields: {list(_FIELDS)}")
            if value is None:
                continue
            if name in _COUNTERS:
                changes[name] = _as_count(name, value)  # type: ignore[arg-type]
            else:
                changes[name] = _as_seconds(value)  # type: ignore[arg-type]
        return self._replaced(changes)

    def log_values(self) -> dict[str, int]:
        """Return the counters that a run reports, as ``time/<counter>``.

        Returns:
            Epoch, batch and sample counters, and those of tokens if any were counted.

        Example:
            >>> Timestamp(batch=3).log_values()["time/batch"]
            3
        """
        values = {
            "time/epoch": self._epoch,
            "time/batch": self._batch,
            "time/sample": self._sample,
            "time/batch_in_epoch": self._batch_in_epoch,
            "time/sample_in_epoch": self._sample_in_epoch,
        }
        if self._token:
            values["time/token"] = self._token
            values["time/token_in_epoch"] = self._token_in_epoch
        return values

    # ---- saving -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return all fields as plain numbers (clocks in seconds).

        Returns:
            Field name to value.

        Example:
            >>> Timestamp(batch=3).state_dict()["batch"]
            3
        """
        return dict(zip(_FIELDS, self._values(), strict=True))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the fields in place; fields that an older file lacks become zero.

        Args:
            state: What :meth:`state_dict` returned. Times and timedeltas, as other releases of
                the library stored them, are understood too.

        Example:
            >>> t = Timestamp()
            >>> t.load_state_dict({"batch": 3})
            >>> t
            Timestamp(batch=3)
        """
        for name in _COUNTERS:
            setattr(self, f"_{name}", _as_count(name, state.get(name, 0)))
        for name in _CLOCKS:
            setattr(self, f"_{name}", _as_seconds(state.get(name)))

    def __getstate__(self) -> dict[str, Any]:
        return self.state_dict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.load_state_dict(state)


_NEW = Timestamp.__new__
