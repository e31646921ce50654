"""MixUp as a method of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from composer.algorithms._augment.mixing import LabelMixer, MixingAlgorithm, draw_permutation
from composer.algorithms._checks import require_tensor
from composer.algorithms._state import replace_in_batch
from composer.algorithms.mixup.functional import mixup_batch
from composer.core.event import Event
from composer.utils.batches import batch_get
from composer.utils.checks import check_bool, check_number

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["MixUp"]


class MixUp(MixingAlgorithm):
    """Train on convex mixtures of pairs of samples and of their labels.

    Samples are mixed before the forward pass of each microbatch, labels before the loss. The labels
    that are mixed are those in the batch just before the loss, so whatever changed them earlier,
    such as label smoothing or another mixing method, counts for both partners.

    Args:
        alpha: Parameter of the Beta distribution from which the mixing share is drawn; 0 is off.
        interpolate_loss: Mix the losses on both labels instead of the labels, which leaves labels
            as they are but evaluates the loss twice.
        input_key: Where the samples are in a batch.
        target_key: Where the labels are in a batch.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If ``alpha`` is negative.

    Example:
        >>> MixUp(alpha=0.4)
        MixUp(alpha=0.4, interpolate_loss=False, input_key=0, target_key=1)
    """

    kind: ClassVar[str] = "data"
    cost: ClassVar[str] = "a copy of the batch; a second loss with interpolate_loss"
    source: ClassVar[str] = "Zhang et al., mixup (2017), arXiv 1710.09412"

    def __init__(
        self,
        alpha: float = 0.2,
        interpolate_loss: bool = False,
        input_key: Any = 0,
        target_key: Any = 1,
    ) -> None:
        check_number("alpha", alpha, low=0.0)
        check_bool("interpolate_loss", interpolate_loss)
        self.alpha = alpha
        self.interpolate_loss = interpolate_loss
        self.input_key = input_key
        self.target_key = target_key
        self.mixing = 0.0
        self._indices = torch.empty(0, dtype=torch.int64)
        self._labels = LabelMixer("MixUp", target_key, interpolate_loss)

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Mix samples, labels or losses.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Unused.

        Example:
            >>> from types import SimpleNamespace
            >>> state = SimpleNamespace(batch=(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])))
            >>> MixUp().apply(Event.BEFORE_FORWARD, state, None)
            >>> state.batch[0].shape
            torch.Size([4, 2])
        """
        del logger
        if event is Event.BEFORE_LOSS:
            self._labels.before_loss(state, self._indices, 1 - self.mixing)
            return
        if event is Event.BEFORE_BACKWARD:
            self._labels.before_backward(state, 1 - self.mixing)
            return
        input = require_tensor("MixUp", "input", batch_get(state.batch, self.input_key))
        target = require_tensor("MixUp", "target", batch_get(state.batch, self.target_key))
        self._indices = draw_permutation(input.shape[0], input.device)
        mixed, _, self.mixing = mixup_batch(input, target, alpha=self.alpha, indices=self._indices)
        replace_in_batch(state, self.input_key, mixed)
