"""Warm-up: a straight line from zero that any schedule can be put behind.

It is a wrapper and not a second version of each schedule: it owns the ramp and the checks that the
ramp and the schedule fit each other, and leaves the rest to the formula it is given.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from composer.core.time import Time, TimeUnit
from composer.optim.schedules.base import (
    ComposerScheduler,
    check_flag,
    check_number,
    elapsed,
    parse_time,
    resolve_time,
    run_length,
)

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["WarmUp"]


class WarmUp(ComposerScheduler):
    """A line from 0 to ``alpha`` during the warm-up, then ``alpha``.

    Args:
        t_warmup: How long the warm-up takes.
        alpha: The multiplier at its end.
        scale_warmup: Whether the scale schedule ratio also applies to ``t_warmup``. A share of the
            run (``dur``) follows the scaled run in any case.

    Raises:
        TypeError: If ``alpha`` is not a number, or ``scale_warmup`` not a boolean.
        ValueError: If ``alpha`` is negative or not finite, or ``t_warmup`` is in seconds.

    Example:
        >>> from composer.optim import preview_schedule
        >>> preview_schedule(WarmUp("4ba"), "6ba")
        [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    """

    def __init__(
        self, t_warmup: str | Time[Any], alpha: float = 1.0, scale_warmup: bool = False
    ) -> None:
        self.t_warmup = parse_time("t_warmup", t_warmup, zero=True)
        self.alpha = check_number("alpha", alpha)
        self.scale_warmup = check_flag("scale_warmup", scale_warmup)
        self._said_zero = False

    def length(self, state: State, ssr: float = 1.0) -> Time[Any]:
        """Return how long the warm-up takes in this run.

        Args:
            state: The training state.
            ssr: The scale schedule ratio.

        Returns:
            The length in a counted unit. A warm-up that rounds to nothing is warned of once.

        Example:
            >>> from types import SimpleNamespace
            >>> state = SimpleNamespace(max_duration=Time(20, "ba"), dataloader_len=None)
            >>> WarmUp("0.2dur").length(state)
            Time(4, TimeUnit.BATCH)
        """
        scale = ssr if self.scale_warmup else 1.0
        length = resolve_time("t_warmup", self.t_warmup, state, scale)
        if length.value == 0 and self.t_warmup.value != 0 and not self._said_zero:
            self._said_zero = True
            warnings.warn(
                f"t_warmup={str(self.t_warmup)!r} comes out as {length} in this run, so there is "
                "no warm-up. Give a longer one, or '0ba' if none is wanted",
                UserWarning,
                stacklevel=2,
            )
        return length

    def length_before(
        self, t_max: Time[Any], state: State, ssr: float = 1.0, *, argument: str = "t_max"
    ) -> tuple[Time[Any], Time[Any]]:
        """Return the warm-up's length and the schedule's end, checked against each other.

        Args:
            t_max: When the schedule behind the warm-up ends.
            state: The training state.
            ssr: The scale schedule ratio.
            argument: The name of ``t_max``, for the errors.

        Returns:
            Both, in one counted unit.

        Raises:
            ValueError: If the units differ, or the run goes on beyond ``t_max``.

        Example:
            >>> from types import SimpleNamespace
            >>> state = SimpleNamespace(max_duration=Time(20, "ba"), dataloader_len=None)
            >>> WarmUp("4ba").length_before(Time(1.0, "dur"), state)
            (Time(4, TimeUnit.BATCH), Time(20, TimeUnit.BATCH))
        """
        warmup = self.length(state, ssr)
        end = resolve_time(argument, t_max, state, ssr)
        if warmup.unit is not end.unit:
            raise ValueError(
                f"t_warmup={str(self.t_warmup)!r} comes out in {warmup.unit.value!r} and "
                f"{argument}={str(t_max)!r} in {end.unit.value!r}: give both in the same unit"
            )
        deadline = state.max_duration
        if deadline is None or deadline.unit is TimeUnit.SECOND:
            return warmup, end
        whole = run_length(state)
        if whole.unit is end.unit and whole.value > end.value:
            scaled = "" if ssr == 1.0 else f" (scaled by {ssr:g})"
            raise ValueError(
                f"{argument}={str(t_max)!r} ends the schedule at {end}{scaled}, before the run "
                f"ends at {whole}: make {argument} as long as max_duration, for instance '1dur'"
            )
        return warmup, end

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        warmup = self.length(state, ssr)
        return self.factor(elapsed(state, warmup.unit), warmup.value)

    def factor(self, done: int, warmup: int) -> float:
        """Return the multiplier of the ramp.

        Args:
            done: How much of the run is done.
            warmup: How long the warm-up is, in the same unit.

        Returns:
            The multiplier, ``alpha`` from the end of the warm-up on.

        Example:
            >>> WarmUp("4ba", alpha=2.0).factor(1, 4)
            0.5
        """
        return self.alpha if done >= warmup else self.alpha * (done / warmup)
