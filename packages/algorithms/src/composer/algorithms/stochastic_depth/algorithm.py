"""Stochastic depth as a method of training."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from composer.algorithms._progress import elapsed_share
from composer.algorithms.stochastic_depth.functional import (
    apply_stochastic_depth,
    check_settings,
    set_progress,
)
from composer.algorithms.stochastic_depth.layers import StochasticBlock
from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.core.time import Time, TimeUnit
from composer.utils.module_surgery import count_module_instances

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["StochasticDepth"]

log = logging.getLogger(__name__)

_UNITS = (TimeUnit.DURATION, TimeUnit.EPOCH, TimeUnit.BATCH, TimeUnit.SAMPLE, TimeUnit.TOKEN)
# The rate follows the clock, which a checkpoint sets.
_CLOCK = frozenset({Event.AFTER_LOAD, Event.FIT_START, Event.BATCH_START})


class StochasticDepth(Algorithm):
    """Leave out the branches of residual blocks at random in training.

    Args:
        target_layer_name: Which blocks: ``"ResNetBottleneck"``, ``"ResNetBasicBlock"``, or a name
            that was given to :func:`~composer.algorithms.stochastic_depth.register_residual_block`.
        stochastic_method: Whether a ``"block"`` draws once per (micro)batch, or each ``"sample"``
            draws for itself.
        drop_rate: Probability that the branch is left out, from 0 to below 1; of the last block
            where it is spread linearly.
        drop_distribution: ``"uniform"``, or ``"linear"`` in the block's place in the network.
        drop_warmup: Over which time the rates rise from zero: a share of the run as a number or
            ``"0.1dur"``, or a time in epochs, batches, samples or tokens.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a name is unknown, or a number or time out of range.

    Example:
        >>> StochasticDepth("ResNetBottleneck", drop_rate=0.1).find_unused_parameters
        True
    """

    events: ClassVar[frozenset[Event]] = _CLOCK | {Event.INIT}
    kind: ClassVar[str] = "surgery"
    source: ClassVar[str] = "Huang et al., Deep Networks with Stochastic Depth, arXiv 1603.09382"
    cost: ClassVar[str] = "saves the branches that are left out, per batch; nothing per sample"

    def __init__(
        self,
        target_layer_name: str,
        stochastic_method: str = "block",
        drop_rate: float = 0.2,
        drop_distribution: str = "linear",
        drop_warmup: float | Time[Any] | str = 0.0,
    ) -> None:
        check_settings(target_layer_name, stochastic_method, drop_rate, drop_distribution)
        self._warmup = _warmup_time(drop_warmup)
        self.target_layer_name = target_layer_name
        self.stochastic_method = stochastic_method
        self.drop_rate = drop_rate
        self.drop_distribution = drop_distribution
        self.drop_warmup = str(drop_warmup) if isinstance(drop_warmup, Time) else drop_warmup
        self._progress = 1.0

    @property
    def find_unused_parameters(self) -> bool:
        """Whether parameters may have no gradients: those of a block that its batch left out."""
        return self.stochastic_method == "block"

    @staticmethod
    def required_on_load() -> bool:
        """Whether a checkpoint trained with the method can only be loaded with it.

        Returns:
            True: in evaluation the branches are weighed by how often they were there.

        Example:
            >>> StochasticDepth.required_on_load()
            True
        """
        return True

    def match(self, event: Event, state: State) -> bool:
        """Say whether the method acts now.

        Args:
            event: The event that fires.
            state: The state of the run.

        Returns:
            Whether the run is set up, or the warm-up has moved on.

        Example:
            >>> StochasticDepth("ResNetBottleneck").match(Event.BATCH_START, None)
            False
        """
        if event in _CLOCK:
            return bool(self._warmup.value) and _progress(self._warmup, state) != self._progress
        return event is Event.INIT

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Make the blocks stochastic, or move on with the warm-up.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Receives the number of blocks, and the rate during the warm-up.

        Example:
            >>> StochasticDepth("ResNetBottleneck").match(Event.INIT, None)
            True
        """
        self._progress = _progress(self._warmup, state)
        if event is Event.INIT:
            apply_stochastic_depth(
                state.model,
                self.target_layer_name,
                stochastic_method=self.stochastic_method,
                drop_rate=self.drop_rate,
                drop_distribution=self.drop_distribution,
            )
            count = count_module_instances(state.model, StochasticBlock)
            log.info("StochasticDepth: %d blocks", count)
            logger.log_hyperparameters({"stochastic_depth/num_stochastic_layers": count})
        else:
            logger.log_metrics({"stochastic_depth/drop_rate": self._progress * self.drop_rate})
        set_progress(state.model, self._progress)


def _warmup_time(value: Any) -> Time[Any]:
    try:
        time = Time.from_input(value, TimeUnit.DURATION)
    except (TypeError, ValueError) as error:
        raise type(error)(f"drop_warmup={value!r}: {error}") from None
    too_late = time.unit is TimeUnit.DURATION and time.value > 1
    if time.unit not in _UNITS or time.value < 0 or too_late:
        raise ValueError(
            f"drop_warmup={value!r} must be a share of the run from 0 to 1 (0.1 or '0.1dur'), or a "
            f"time in epochs ('1ep'), batches ('100ba'), samples ('1000sp') or tokens ('1e6tok')"
        )
    return time


def _progress(warmup: Time[Any], state: State) -> float:
    """How much of the warm-up is done; none while the length of the run is unknown."""
    if not warmup.value:
        return 1.0
    if warmup.unit is TimeUnit.DURATION:
        now: float = elapsed_share(state) or 0.0
    else:
        now = state.timestamp.count(warmup.unit)
    return float(min(now / warmup.value, 1.0))
