"""ColOut as a method of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from composer.algorithms._augment.datasets import TransformAlgorithm
from composer.algorithms._checks import require_tensor
from composer.algorithms._state import replace_in_batch
from composer.algorithms.colout.functional import ColOutTransform, drop_lines
from composer.core.event import Event
from composer.utils.batches import batch_get
from composer.utils.checks import check_bool

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["ColOut"]


class ColOut(TransformAlgorithm):
    """Train on images without some of their rows and columns.

    Args:
        p_row: Share of the rows that is dropped.
        p_col: Share of the columns that is dropped.
        batch: Whether all images of a batch lose the same rows and columns, on the way from the
            loader to the model. Else each image loses its own, before it becomes a tensor: the
            training loader is given a copy of its data set that does so.
        resize_target: ``"auto"`` drops the same of targets that have a value for every pixel,
            ``True`` demands such targets, ``False`` leaves targets alone. Without ``batch`` no
            target is ever changed.
        input_key: Where the images are in a batch.
        target_key: Where the target is in a batch.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a value is out of range, or ``resize_target=True`` without ``batch``.

    Example:
        >>> ColOut(p_row=0.2, resize_target=False).match(Event.FIT_START, None)
        False
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.AFTER_DATALOADER, Event.FIT_START})
    cost: ClassVar[str] = "a gather per batch; smaller images are cheaper"
    source: ClassVar[str] = "MosaicML, ColOut (2021)"

    def __init__(
        self,
        p_row: float = 0.15,
        p_col: float = 0.15,
        batch: bool = True,
        resize_target: bool | str = "auto",
        input_key: Any = 0,
        target_key: Any = 1,
    ) -> None:
        self._transform = ColOutTransform(p_row, p_col, resize_target)
        check_bool("batch", batch)
        if resize_target is True and not batch:
            raise ValueError(
                "resize_target=True needs batch=True: a transform of single images does not see "
                "their targets. Use batch=True, or resize_target='auto' or False"
            )
        self.p_row = p_row
        self.p_col = p_col
        self.batch = batch
        self.resize_target = resize_target
        self.input_key = input_key
        self.target_key = target_key

    def match(self, event: Event, state: State) -> bool:
        """Say whether the method acts now.

        Args:
            event: The event that fires.
            state: The state of the run.

        Returns:
            Whether it is the event of batches, or of single samples.

        Example:
            >>> ColOut(batch=False).match(Event.FIT_START, None)
            True
        """
        del state
        return event is (Event.AFTER_DATALOADER if self.batch else Event.FIT_START)

    def transform(self) -> ColOutTransform:
        """Return the transform that is put into the training data, without ``batch``.

        Returns:
            The transform of one image.

        Example:
            >>> ColOut(batch=False, p_row=0.5).transform().p_row
            0.5
        """
        return self._transform

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Drop rows and columns, or put the transform that does into the training data.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Unused.

        Raises:
            TypeError: If images or target are of a kind that cannot be treated, or nothing in the
                training loader takes a transform.
            ValueError: If targets do not fit, or the training loader is evaluated on too.

        Example:
            >>> import torch
            >>> from types import SimpleNamespace
            >>> state = SimpleNamespace(batch=(torch.ones(2, 3, 8, 8), torch.tensor([0, 1])))
            >>> ColOut(p_row=0.5, p_col=0.25).apply(Event.AFTER_DATALOADER, state, None)
            >>> state.batch[0].shape
            torch.Size([2, 3, 4, 6])
        """
        if not self.batch:
            super().apply(event, state, logger)
            return
        images = require_tensor("ColOut", "input", batch_get(state.batch, self.input_key))
        target = None if self.resize_target is False else batch_get(state.batch, self.target_key)
        images, new = drop_lines(images, target, self.p_row, self.p_col, self.resize_target)
        replace_in_batch(state, self.input_key, images)
        if new is not target:
            replace_in_batch(state, self.target_key, new)
