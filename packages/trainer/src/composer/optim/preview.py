"""See a schedule before training with it.

Whether a warm-up ends where it should is a question about numbers, and a run is an expensive way to
ask it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from composer.core.time import Time, TimeUnit, ensure_time
from composer.core.timestamp import Timestamp

__all__ = ["preview_schedule"]


@dataclass
class _Clock:
    """The three things that a schedule reads of the training state."""

    timestamp: Timestamp
    max_duration: Time[Any]
    dataloader_len: Time[int] | None


def preview_schedule(
    scheduler: Callable[..., float],
    max_duration: str | int | Time[Any],
    *,
    batches_per_epoch: int | None = None,
    ssr: float = 1.0,
) -> list[float]:
    """Return the multiplier that each batch of a run trains with.

    Args:
        scheduler: The schedule, or any function of the training state.
        max_duration: The length of the run, before scaling; an int means epochs.
        batches_per_epoch: The length of the dataloader; needed for anything in epochs.
        ssr: The scale schedule ratio; it shortens or stretches the run as well.

    Returns:
        One multiplier for each batch.

    Raises:
        ValueError: If the run is not in epochs or batches, or epochs have no length.

    Example:
        >>> from composer.optim import LinearScheduler
        >>> preview_schedule(LinearScheduler(), "1ep", batches_per_epoch=4)
        [1.0, 0.75, 0.5, 0.25]
    """
    whole = ensure_time(max_duration, TimeUnit.EPOCH)
    if whole.unit not in (TimeUnit.EPOCH, TimeUnit.BATCH):
        raise ValueError(f"max_duration must be in epochs or batches here, got {str(whole)!r}")
    if whole.unit is TimeUnit.EPOCH and batches_per_epoch is None:
        raise ValueError(f"max_duration={str(whole)!r} is in epochs: give batches_per_epoch")
    if ssr != 1.0:
        whole = whole * ssr
    length = None if batches_per_epoch is None else Time(batches_per_epoch, TimeUnit.BATCH)
    clock = _Clock(Timestamp(), whole, length)
    num_batches = whole.value * (batches_per_epoch or 1 if whole.unit is TimeUnit.EPOCH else 1)
    factors = []
    for batch in range(num_batches):
        clock.timestamp = Timestamp(
            batch=batch, epoch=0 if length is None else batch // length.value
        )
        state = cast(Any, clock)
        factors.append(float(scheduler(state) if ssr == 1.0 else scheduler(state, ssr)))
    return factors
