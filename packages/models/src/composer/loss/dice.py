"""The Dice loss, which compares regions instead of pixels.

A rare class counts as much as a common one, because each class is judged by the overlap of its
region with the true one. After Milletari et al., V-Net (2016), where the regions are summed squared
(``squared_pred``); the plain sums are those of Sudre et al., Generalised Dice overlap (2017).
"""

from __future__ import annotations

import torch
from torch import nn

from composer.loss._reductions import check_reduction
from composer.loss.targets import ensure_targets_one_hot, infer_target_type
from composer.utils.checks import check_bool

__all__ = ["DiceLoss"]

# Keeps an empty region that is predicted empty at a loss of zero instead of 0 / 0.
_SMOOTHING = 1e-5


class DiceLoss(nn.Module):
    """One minus the overlap of predicted and true regions, per sample and class.

    With ``I`` the summed product of prediction and target, and ``P`` and ``T`` their own sums, the
    overlap is ``2 I / (P + T)``, or ``I / (P + T - I)`` with ``jaccard``. It is computed in single
    precision. Pixels whose class index is negative do not count.

    Args:
        sigmoid: Whether to apply a sigmoid to the input first.
        softmax: Whether to apply a softmax over the classes first.
        squared_pred: Whether ``P`` and ``T`` sum squares.
        jaccard: Whether to use the Jaccard index (intersection over union) in place of Dice's.
        batch: Whether a region extends over all samples of the batch.
        ignore_absent_classes: Whether classes that are not in the target do not count.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        TypeError: If a switch is neither true nor false.
        ValueError: If both ``sigmoid`` and ``softmax`` are asked for, or ``reduction`` is unknown.

    Example:
        >>> target = torch.tensor([[[0, 0], [1, 1]]])
        >>> prediction = torch.tensor([[[[1.0, 1.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]]])
        >>> DiceLoss(reduction="none")(prediction, target)  # 1 - 4/5 and 1 - 2/3
        tensor([[0.2000, 0.3333]])
    """

    def __init__(
        self,
        sigmoid: bool = False,
        softmax: bool = False,
        squared_pred: bool = False,
        jaccard: bool = False,
        batch: bool = False,
        ignore_absent_classes: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        for name, value in (
            ("sigmoid", sigmoid),
            ("softmax", softmax),
            ("squared_pred", squared_pred),
            ("jaccard", jaccard),
            ("batch", batch),
            ("ignore_absent_classes", ignore_absent_classes),
        ):
            check_bool(name, value)
        if sigmoid and softmax:
            raise ValueError("sigmoid=True and softmax=True exclude each other; choose one")
        check_reduction(reduction)
        self.sigmoid = sigmoid
        self.softmax = softmax
        self.squared_pred = squared_pred
        self.jaccard = jaccard
        self.batch = batch
        self.ignore_absent_classes = ignore_absent_classes
        self.reduction = reduction

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Compute the loss.

        Args:
            input: Scores or probabilities of shape (N, C, ...).
            target: Integers of shape (N, ...), or one value per class of shape (N, C, ...).

        Returns:
            A scalar; without reduction one value per sample and class, of shape (N, C), or (C,)
            with ``batch``, zero for classes that do not count.

        Raises:
            ValueError: If the shapes do not fit.

        Example:
            >>> loss = DiceLoss(softmax=True)
            >>> logits = torch.full((1, 2, 3), -20.0).index_fill(1, torch.tensor(1), 20.0)
            >>> float(loss(logits, torch.ones(1, 3, dtype=torch.long))) < 1e-6
            True
        """
        counts = None
        if infer_target_type(input, target) == "indices":
            # The larger unsigned types know no comparison.
            target = target.to(torch.int64)
            counts = (target >= 0).unsqueeze(1)
            target = target.clamp(min=0)
        target = ensure_targets_one_hot(input, target)
        if input.dtype != torch.float64:
            input, target = input.float(), target.float()
        if self.sigmoid:
            input = input.sigmoid()
        elif self.softmax:
            input = input.softmax(dim=1)
        if counts is not None:
            input, target = input * counts, target * counts
        predicted, true, overlap = self._sums(input, target)
        if self.jaccard:
            score = (overlap + _SMOOTHING) / (predicted + true - overlap + _SMOOTHING)
        else:
            score = (2 * overlap + _SMOOTHING) / (predicted + true + _SMOOTHING)
        loss = 1 - score
        if not self.ignore_absent_classes:
            return _reduced(loss, self.reduction, loss.numel())
        present = true > 0
        return _reduced(loss * present, self.reduction, present.sum())

    def _sums(
        self, input: torch.Tensor, target: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        dims = [0] * self.batch + list(range(2, input.ndim))

        def total(values: torch.Tensor) -> torch.Tensor:
            # Given no dimensions, torch would sum over all of them.
            return values.sum(dim=dims) if dims else values

        overlap = total(input * target)
        if self.squared_pred:
            return total(input.square()), total(target.square()), overlap
        return total(input), total(target), overlap


def _reduced(loss: torch.Tensor, reduction: str, count: int | torch.Tensor) -> torch.Tensor:
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / count
