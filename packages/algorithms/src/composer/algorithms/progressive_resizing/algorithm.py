"""Progressive resizing as a method of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from composer.algorithms._checks import require_tensor
from composer.algorithms._curriculum import lead_loader
from composer.algorithms._state import replace_in_batch
from composer.algorithms.progressive_resizing.functional import (
    MODES,
    check_curriculum,
    pinned_scale,
    resize_batch,
    scale_at,
)
from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.utils.batches import batch_get
from composer.utils.checks import check_bool, check_choice, check_integer
from composer.utils.curriculum import release_loader

if TYPE_CHECKING:
    import torch

    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["ProgressiveResizing"]


class ProgressiveResizing(Algorithm):
    """Start training on small images and let them grow to full size.

    Args:
        mode: ``"resize"`` (bilinear) or ``"crop"`` (a random part).
        initial_scale: Scale at the start.
        finetune_fraction: The last share of the run, at full size.
        delay_fraction: The first share of the run, at the initial scale.
        size_increment: Widths are multiples of this, below full size.
        resize_targets: Whether targets, of the images' size, change with them.
        input_key: Where the images are in a batch.
        target_key: Where the targets are in a batch.
        antialias: Whether to smooth before interpolating.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If one is out of range, or the two fractions leave no time to grow.

    Example:
        >>> ProgressiveResizing(initial_scale=0.5, delay_fraction=0.3).initial_scale
        0.5
    """

    events: ClassVar[frozenset[Event]] = frozenset(
        {Event.FIT_START, Event.AFTER_DATALOADER, Event.FIT_END}
    )
    kind: ClassVar[str] = "data"
    cost: ClassVar[str] = "an interpolation per batch; small images are cheaper"
    source: ClassVar[str] = "Howard, fast.ai's entry to DAWNBench (2018)"

    def __init__(
        self,
        mode: str = "resize",
        initial_scale: float = 0.5,
        finetune_fraction: float = 0.2,
        delay_fraction: float = 0.5,
        size_increment: int = 4,
        resize_targets: bool = False,
        input_key: Any = 0,
        target_key: Any = 1,
        antialias: bool = False,
    ) -> None:
        check_choice("mode", mode, MODES)
        check_curriculum(initial_scale, finetune_fraction, delay_fraction)
        check_integer("size_increment", size_increment, low=1)
        check_bool("resize_targets", resize_targets)
        check_bool("antialias", antialias)
        self.mode = mode
        self.initial_scale = initial_scale
        self.finetune_fraction = finetune_fraction
        self.delay_fraction = delay_fraction
        self.size_increment = size_increment
        self.resize_targets = resize_targets
        self.input_key = input_key
        self.target_key = target_key
        self.antialias = antialias
        self._in_loader = False

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Resize the batch, or tell a loader that listens what size its images are to have.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Receives height, width and scale.

        Raises:
            ValueError: If the length of the run is unknown.

        Example:
            >>> ProgressiveResizing().match(Event.AFTER_DATALOADER, None)
            True
        """
        if event is Event.FIT_END:
            release_loader(state.train_dataloader, "image_scale")
            return
        if event is Event.FIT_START:
            self._in_loader = lead_loader(state, "image_scale", self._scale)
            return
        elapsed = state.get_elapsed_duration()
        if elapsed is None:
            raise ValueError("ProgressiveResizing needs to know how long the run is: max_duration")
        name = type(self).__name__
        input = require_tensor(name, "input", batch_get(state.batch, self.input_key))
        scale = self._scale(elapsed.value)
        if not self._in_loader:
            scale = pinned_scale(input.shape[-1], scale, self.size_increment)
            input = _resized(self, state, input, scale)
        if logger.destinations:
            logger.log_metrics(
                {
                    "progressive_resizing/height": input.shape[-2],
                    "progressive_resizing/width": input.shape[-1],
                    "progressive_resizing/scale_factor": scale,
                }
            )

    def _scale(self, elapsed: float) -> float:
        return scale_at(elapsed, self.initial_scale, self.finetune_fraction, self.delay_fraction)


def _resized(
    method: ProgressiveResizing, state: State, input: torch.Tensor, scale: float
) -> torch.Tensor:
    """Resize what is in the batch; returns the new images."""
    target = batch_get(state.batch, method.target_key)
    if method.resize_targets:
        require_tensor(type(method).__name__, "target", target)
    new_input, new_target = resize_batch(
        input, target, scale, method.mode, method.resize_targets, method.antialias
    )
    if new_input is not input:
        replace_in_batch(state, method.input_key, new_input)
    if new_target is not target:
        replace_in_batch(state, method.target_key, new_target)
    return new_input
