"""Metrics of dense prediction, over the pixels of all batches together.

Regions are counted over the whole set before they are compared, so the result does not depend on
how the set was cut into batches.
"""

from __future__ import annotations

import torch

from composer.loss.targets import check_for_index_targets, counted
from composer.metrics._ranges import check_classes
from composer.metrics.base import Metric
from composer.utils.checks import check_integer

__all__ = ["Dice", "MIoU"]


class _Regions(Metric):
    """Counts, per class, the pixels predicted, true, and both."""

    predicted: torch.Tensor
    true: torch.Tensor
    overlap: torch.Tensor

    def __init__(self, num_classes: int, ignore_index: int) -> None:
        super().__init__()
        check_integer("num_classes", num_classes, low=1)
        check_integer("ignore_index", ignore_index)
        self.num_classes = num_classes
        self.ignore_index = ignore_index
        for name in ("predicted", "true", "overlap"):
            self.add_state(name, torch.zeros(num_classes, dtype=torch.int64))

    @torch.no_grad()
    def update(self, logits: torch.Tensor, targets: torch.Tensor) -> None:
        """Add a batch.

        Args:
            logits: Scores of shape (N, C, ...).
            targets: Class indices of shape (N, ...), or one value per class of shape (N, C, ...),
                of which the largest is the class.

        Raises:
            TypeError: If targets are no integers where indices are expected.
            ValueError: If the shapes do not fit, or, on the CPU, an index is out of range;
                elsewhere a look at it would make every step wait, and torch says so in its words.

        Example:
            >>> metric = MIoU(num_classes=2)
            >>> metric.update(torch.eye(2).view(1, 2, 2), torch.tensor([[0, 1]]))
            >>> metric.overlap
            tensor([1, 1])
        """
        if logits.ndim < 2 or logits.shape[1] != self.num_classes:
            raise ValueError(
                f"logits of shape {tuple(logits.shape)} must have the shape "
                f"(N, {self.num_classes}, ...)"
            )
        if targets.shape == logits.shape:
            targets = targets.argmax(dim=1)
        classes = logits.argmax(dim=1)
        if targets.shape != classes.shape:
            raise ValueError(
                f"targets of shape {tuple(targets.shape)} do not fit logits of shape "
                f"{tuple(logits.shape)}; accepted is {tuple(classes.shape)}"
            )
        if not check_for_index_targets(targets):
            raise TypeError(f"targets must be integers and not {targets.dtype}")
        counts = counted(targets, self.ignore_index)
        targets, classes = targets[counts].to(torch.int64), classes[counts]
        check_classes("targets", targets, self.num_classes, self.ignore_index)
        self.predicted += classes.bincount(minlength=self.num_classes)
        self.true += targets.bincount(minlength=self.num_classes)
        self.overlap += targets[targets == classes].bincount(minlength=self.num_classes)


class MIoU(_Regions):
    """Mean intersection over union, in percent, over the classes that occur.

    A class that is neither in the targets nor in the predictions does not count.

    Args:
        num_classes: Number of classes.
        ignore_index: Pixels with this target do not count.

    Raises:
        TypeError: If a number is no integer.
        ValueError: If ``num_classes`` is less than 1.

    Example:
        >>> metric = MIoU(num_classes=3)
        >>> scores = torch.tensor([[[1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]])
        >>> metric.update(scores, torch.tensor([[0, 1, 1]]))
        >>> metric.compute()  # 1/2 and 1/2; the third class does not occur
        tensor(50.)
    """

    def __init__(self, num_classes: int, ignore_index: int = -1) -> None:
        super().__init__(num_classes, ignore_index)

    def result(self, **totals: torch.Tensor) -> torch.Tensor:
        """Average over the classes that occur.

        Args:
            **totals: ``predicted``, ``true`` and ``overlap``, one count per class.

        Returns:
            Percent; NaN if no class occurs.

        Example:
            >>> two = torch.tensor([2])
            >>> MIoU(1).result(predicted=two, true=two, overlap=torch.tensor([1]))
            tensor(33.3333)
        """
        union = totals["predicted"] + totals["true"] - totals["overlap"]
        occurs = union > 0
        return 100 * (totals["overlap"][occurs] / union[occurs]).mean()


class Dice(_Regions):
    """Mean Dice score, in percent, over the classes that occur; without class 0, the background.

    Args:
        num_classes: Number of classes, with the background.
        ignore_index: Pixels with this target do not count.

    Raises:
        TypeError: If a number is no integer.
        ValueError: If ``num_classes`` is less than 2.

    Example:
        >>> metric = Dice(num_classes=2)
        >>> scores = torch.tensor([[[0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]])
        >>> metric.update(scores, torch.tensor([[1, 0, 1]]))
        >>> metric.compute()  # 2 * 1 / (2 + 2)
        tensor(50.)
    """

    def __init__(self, num_classes: int, ignore_index: int = -1) -> None:
        # The background and something else.
        check_integer("num_classes", num_classes, low=2)
        super().__init__(num_classes, ignore_index)

    def result(self, **totals: torch.Tensor) -> torch.Tensor:
        """Average over the classes that occur, the background left out.

        Args:
            **totals: ``predicted``, ``true`` and ``overlap``, one count per class.

        Returns:
            Percent; NaN if no class occurs.

        Example:
            >>> n = torch.tensor([9, 2])
            >>> Dice(2).result(predicted=n, true=n, overlap=torch.tensor([8, 1]))
            tensor(50.)
        """
        size = (totals["predicted"] + totals["true"])[1:]
        occurs = size > 0
        return 100 * (2 * totals["overlap"][1:][occurs] / size[occurs]).mean()
