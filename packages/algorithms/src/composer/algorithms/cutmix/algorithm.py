"""CutMix as a method of training."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from composer.algorithms._augment.mixing import LabelMixer, MixingAlgorithm, draw_permutation
from composer.algorithms._checks import require_tensor
from composer.algorithms._state import replace_in_batch
from composer.algorithms.cutmix.functional import are_masks, cutmix_batch, paste_box
from composer.core.event import Event
from composer.utils.batches import batch_get
from composer.utils.checks import check_bool, check_number

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["CutMix"]


class CutMix(MixingAlgorithm):
    """Train on images with a box of another image pasted in, and on labels mixed by area.

    Boxes are pasted before the forward pass of each microbatch, labels mixed before the loss. Masks
    of the images' size get the box pasted instead. The labels that are mixed are those in the batch
    just before the loss, so whatever changed them earlier counts for both partners.

    Args:
        alpha: Parameter of the Beta distribution from which the box's area is drawn; 0 is off.
        interpolate_loss: Mix the losses on both labels instead of the labels, which leaves labels
            as they are but evaluates the loss twice.
        uniform_sampling: Cover every pixel with the same probability, instead of the middle more
            often.
        input_key: Where the images are in a batch.
        target_key: Where the labels are in a batch.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If ``alpha`` is negative.

    Example:
        >>> CutMix(alpha=0.5).exclusive_group is None
        True
    """

    remarks: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            **MixingAlgorithm.remarks,
            "mixup": "each batch is mixed twice; with `interpolate_loss=True` in both it warns, "
            "since the second counts only the own labels of its partners, whose samples the first "
            "has mixed with others",
        }
    )
    kind: ClassVar[str] = "data"
    cost: ClassVar[str] = "a copy of the batch; a second loss with interpolate_loss"
    source: ClassVar[str] = "Yun et al., CutMix (2019), arXiv 1905.04899"

    def __init__(
        self,
        alpha: float = 1.0,
        interpolate_loss: bool = False,
        uniform_sampling: bool = False,
        input_key: Any = 0,
        target_key: Any = 1,
    ) -> None:
        check_number("alpha", alpha, low=0.0)
        check_bool("interpolate_loss", interpolate_loss)
        check_bool("uniform_sampling", uniform_sampling)
        self.alpha = alpha
        self.interpolate_loss = interpolate_loss
        self.uniform_sampling = uniform_sampling
        self.input_key = input_key
        self.target_key = target_key
        self.kept = 1.0
        self._has_masks = False
        self._indices = torch.empty(0, dtype=torch.int64)
        self._labels = LabelMixer("CutMix", target_key, interpolate_loss)

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Mix images, labels or losses.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Unused.

        Example:
            >>> from types import SimpleNamespace
            >>> state = SimpleNamespace(batch=(torch.zeros(2, 3, 8, 8), torch.tensor([0, 1])))
            >>> CutMix().apply(Event.BEFORE_FORWARD, state, None)
            >>> state.batch[0].shape
            torch.Size([2, 3, 8, 8])
        """
        del logger
        if event is Event.BEFORE_FORWARD:
            self._cut(state)
        elif self._has_masks:
            return
        elif event is Event.BEFORE_LOSS:
            self._labels.before_loss(state, self._indices, self.kept)
        else:
            self._labels.before_backward(state, self.kept)

    def _cut(self, state: State) -> None:
        input = require_tensor("CutMix", "input", batch_get(state.batch, self.input_key))
        target = require_tensor("CutMix", "target", batch_get(state.batch, self.target_key))
        self._has_masks = are_masks(input, target)
        if self._has_masks and self.interpolate_loss:
            raise ValueError(
                "CutMix(interpolate_loss=True) cannot work on targets of the images' size, whose "
                "boxes are pasted; use interpolate_loss=False"
            )
        self._indices = draw_permutation(input.shape[0], input.device)
        images, _, self.kept, bbox = cutmix_batch(
            input, target, None, self.alpha, None, self._indices, self.uniform_sampling
        )
        replace_in_batch(state, self.input_key, images)
        if self._has_masks:
            replace_in_batch(state, self.target_key, paste_box(target, self._indices, bbox))
