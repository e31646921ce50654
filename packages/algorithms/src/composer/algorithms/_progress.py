"""How far a run is, as finely as is known: for methods that change little by little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from composer.core.event import Event
from composer.core.time import Time, TimeUnit

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["begins_anew", "elapsed_share"]


def begins_anew(event: Event, state: State) -> bool:
    """Say whether a run is at its very beginning, also after its clock was set to zero.

    Args:
        event: The event that fires.
        state: The state of the run.

    Returns:
        Whether this is ``FIT_START`` before the first batch.

    Example:
        >>> from types import SimpleNamespace
        >>> from composer.core.timestamp import Timestamp
        >>> begins_anew(Event.FIT_START, SimpleNamespace(timestamp=Timestamp()))
        True
    """
    return event is Event.FIT_START and int(state.timestamp.batch) == 0


def elapsed_share(state: State) -> float | None:
    """Return the share of the run that is done.

    A run that is measured in epochs is followed inside an epoch too, where the loader has a length;
    it is a function of the clock alone, so a run that resumes is where it was.

    Args:
        state: The state of the run.

    Returns:
        The share, 0 at the start and 1 at the end; ``None`` while the length of the run is unknown.

    Example:
        >>> from types import SimpleNamespace
        >>> from composer.core.time import Time
        >>> from composer.core.timestamp import Timestamp
        >>> state = SimpleNamespace(
        ...     max_duration=Time(2, "ep"),
        ...     timestamp=Timestamp(epoch=1, batch=6, batch_in_epoch=2),
        ...     dataloader_len=Time(4, "ba"),
        ...     settings={},
        ... )
        >>> elapsed_share(state)
        0.75
    """
    total: Any = state.max_duration
    if total is None:
        return None
    share = _share_of(total, state)
    intended = state.settings.get("max_duration")
    if share >= 1.0 and intended is not None:
        # A run that is stopped ends now, but is no farther than it was: it may be continued.
        share = min(share, _share_of(Time.from_timestring(intended), state))
    return share


def _share_of(total: Time[Any], state: State) -> float:
    clock = state.timestamp
    if not total.value:
        return 1.0
    done: float = clock.count(total.unit)
    if total.unit is TimeUnit.EPOCH and state.dataloader_len is not None:
        # A loader may hold more than it says, which is still the same epoch.
        done += min(int(clock.batch_in_epoch) / state.dataloader_len.value, 1.0)
    return done / total.value
