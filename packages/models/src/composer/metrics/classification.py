"""Metrics of classifiers: accuracy, cross entropy, and the mean of any loss.

All of them weigh samples and not batches, so a small last batch counts for what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from composer.loss.losses import soft_cross_entropy
from composer.loss.targets import infer_target_type
from composer.metrics._ranges import check_classes
from composer.metrics.base import Metric
from composer.utils.checks import check_choice, check_integer

__all__ = ["CrossEntropy", "LossMetric", "MulticlassAccuracy"]

_AVERAGES = ("micro", "macro", "weighted", "none")


class MulticlassAccuracy(Metric):
    """The share of predictions that are right.

    Args:
        num_classes: Number of classes.
        average: ``"micro"``, the share over all samples; ``"macro"``, the plain mean over classes
            that occur in predictions or targets; ``"weighted"``, the mean over classes by their
            number of samples; ``"none"`` or ``None``, one value per class.
        ignore_index: Samples with this target do not count.
        dist_sync_on_step: Whether calling the metric sums over ranks.

    Raises:
        TypeError: If ``num_classes`` or ``ignore_index`` is no integer.
        ValueError: If ``num_classes`` is below 1 or ``average`` is unknown.

    Example:
        >>> metric = MulticlassAccuracy(num_classes=3)
        >>> logits = torch.tensor([[3.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 2.0, 1.0]])
        >>> metric.update(logits, torch.tensor([0, 1, 2]))
        >>> round(float(metric.compute()), 4)
        0.6667
    """

    correct: torch.Tensor
    total: torch.Tensor
    predicted: torch.Tensor

    def __init__(
        self,
        num_classes: int,
        average: str | None = "micro",
        ignore_index: int | None = None,
        dist_sync_on_step: bool = False,
    ) -> None:
        super().__init__(dist_sync_on_step)
        average = "none" if average is None else average
        check_integer("num_classes", num_classes, low=1)
        check_choice("average", average, _AVERAGES)
        if ignore_index is not None:
            check_integer("ignore_index", ignore_index)
        self.num_classes = num_classes
        self.average = average
        self.ignore_index = ignore_index
        shape = () if average == "micro" else (num_classes,)
        self.add_state("correct", torch.zeros(shape, dtype=torch.int64))
        self.add_state("total", torch.zeros(shape, dtype=torch.int64))
        if average == "macro":
            self.add_state("predicted", torch.zeros(shape, dtype=torch.int64))

    @torch.no_grad()
    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None:
        """Add a batch.

        Args:
            preds: Scores of shape (N, C, ...), or integer classes of shape (N, ...).
            target: Integer classes of shape (N, ...), or one value per class, of which the
                largest counts.

        Raises:
            ValueError: If the shapes do not fit each other or ``num_classes``, or, on the CPU, a
                class is out of range; elsewhere a look at it would make every step wait.

        Example:
            >>> metric = MulticlassAccuracy(2)
            >>> metric.update(torch.tensor([[0.1, 0.9]]), torch.tensor([[0.0, 1.0]]))
            >>> metric.compute()
            tensor(1.)
        """
        preds, target = self._as_classes(preds, target)
        if self.ignore_index is not None:
            counted = target != self.ignore_index
            preds, target = preds[counted], target[counted]
        check_classes("target", target, self.num_classes, self.ignore_index)
        hit = preds == target
        if self.average == "micro":
            self.correct += hit.sum()
            self.total += target.numel()
            return
        target = target.reshape(-1)
        self.correct.scatter_add_(0, target, hit.reshape(-1).to(torch.int64))
        self.total.scatter_add_(0, target, torch.ones_like(target))
        if self.average == "macro":
            preds = preds.reshape(-1)
            check_classes("preds", preds, self.num_classes)
            self.predicted.scatter_add_(0, preds, torch.ones_like(preds))

    def result(self, **totals: torch.Tensor) -> torch.Tensor:
        """Turn the counts into the accuracy.

        Args:
            **totals: ``correct`` and ``total``, and for ``"macro"`` also ``predicted``.

        Returns:
            The accuracy: a scalar, or one value per class for ``"none"``.

        Example:
            >>> MulticlassAccuracy(2).result(correct=torch.tensor(1), total=torch.tensor(4))
            tensor(0.2500)
        """
        correct, total = totals["correct"], totals["total"]
        if self.average == "micro":
            return correct / total
        if self.average == "weighted":
            return correct.sum() / total.sum()
        per_class = correct / total.clamp(min=1)
        if self.average == "none":
            return per_class
        seen = (total + totals["predicted"]) > 0
        return (per_class * seen).sum() / seen.sum()

    def _as_classes(
        self, preds: torch.Tensor, target: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        preds = preds.detach()
        if preds.is_floating_point():
            if preds.ndim < 2 or preds.shape[1] != self.num_classes:
                raise ValueError(
                    f"preds of shape {tuple(preds.shape)} must have num_classes="
                    f"{self.num_classes} scores in dimension 1"
                )
            if infer_target_type(preds, target) == "one_hot":
                target = target.argmax(dim=1)
            preds = preds.argmax(dim=1)
        elif preds.shape != target.shape:
            raise ValueError(
                f"preds of shape {tuple(preds.shape)} and target of shape {tuple(target.shape)} "
                f"must agree when preds are classes"
            )
        return preds.to(torch.int64), target.to(torch.int64)


class CrossEntropy(Metric):
    """The mean cross entropy over all samples.

    Args:
        ignore_index: Samples with this target do not count.
        dist_sync_on_step: Whether calling the metric sums over ranks.

    Example:
        >>> metric = CrossEntropy()
        >>> metric.update(torch.zeros(3, 4), torch.tensor([0, 1, 2]))
        >>> round(float(metric.compute()), 4)  # log(4)
        1.3863
    """

    sum_loss: torch.Tensor
    total: torch.Tensor

    def __init__(self, ignore_index: int = -100, dist_sync_on_step: bool = False) -> None:
        super().__init__(dist_sync_on_step)
        check_integer("ignore_index", ignore_index)
        self.ignore_index = ignore_index
        self.add_state("sum_loss", torch.tensor(0.0, dtype=torch.float64))
        self.add_state("total", torch.tensor(0.0, dtype=torch.float64))

    @torch.no_grad()
    def update(self, preds: torch.Tensor, targets: torch.Tensor) -> None:
        """Add a batch.

        Args:
            preds: Logits of shape (N, C, ...).
            targets: Integers of shape (N, ...), or probabilities of shape (N, C, ...), whose total
                then stands for the number of samples.

        Raises:
            ValueError: If the shapes do not fit.

        Example:
            >>> metric = CrossEntropy()
            >>> metric.update(torch.zeros(1, 2), torch.tensor([[0.5, 0.5]]))
            >>> round(float(metric.compute()), 4)
            0.6931
        """
        if preds.dtype in (torch.float16, torch.bfloat16):
            preds = preds.float()
        if infer_target_type(preds, targets) == "indices":
            targets = targets.to(torch.int64)
            self.sum_loss += F.cross_entropy(
                preds, targets, ignore_index=self.ignore_index, reduction="sum"
            )
            self.total += (targets != self.ignore_index).sum()
        else:
            self.sum_loss += soft_cross_entropy(preds, targets, reduction="sum")
            self.total += targets.sum(dtype=torch.float32)

    def result(self, **totals: torch.Tensor) -> torch.Tensor:
        """Divide the summed loss by the number of samples.

        Args:
            **totals: ``sum_loss`` and ``total``.

        Returns:
            The mean.

        Example:
            >>> CrossEntropy().result(sum_loss=torch.tensor(6.0), total=torch.tensor(4.0))
            tensor(1.5000)
        """
        return (totals["sum_loss"] / totals["total"]).float()


class LossMetric(Metric):
    """The mean of a loss function over all samples.

    Args:
        loss_function: Called with predictions and targets; returns the mean over the batch, or one
            value per sample.
        dist_sync_on_step: Whether calling the metric sums over ranks.

    Raises:
        TypeError: If ``loss_function`` cannot be called.

    Example:
        >>> metric = LossMetric(torch.nn.functional.mse_loss)
        >>> metric.update(torch.tensor([1.0, 1.0, 1.0]), torch.tensor([1.0, 1.0, 1.0]))
        >>> metric.update(torch.tensor([2.0]), torch.tensor([0.0]))
        >>> metric.compute()
        tensor(1.)
    """

    sum_loss: torch.Tensor
    total: torch.Tensor

    def __init__(
        self,
        loss_function: Callable[[Any, Any], torch.Tensor],
        dist_sync_on_step: bool = False,
    ) -> None:
        super().__init__(dist_sync_on_step)
        if not callable(loss_function):
            raise TypeError(
                f"loss_function must be a function of predictions and targets, not "
                f"{loss_function!r}"
            )
        self.loss_function = loss_function
        self.add_state("sum_loss", torch.tensor(0.0, dtype=torch.float64))
        self.add_state("total", torch.tensor(0, dtype=torch.int64))

    @torch.no_grad()
    def update(self, preds: Any, targets: Any) -> None:
        """Add a batch.

        Args:
            preds: What ``loss_function`` takes first.
            targets: What it takes second; the first tensor in it, else in ``preds``, tells the
                number of samples. An empty batch adds nothing.

        Raises:
            TypeError: If there is no tensor that tells the number of samples, or the loss function
                returns none.

        Example:
            >>> metric = LossMetric(lambda preds, targets: (preds - targets).abs())
            >>> metric.update(torch.tensor([1.0, 3.0]), torch.tensor([0.0, 0.0]))
            >>> metric.compute()
            tensor(2.)
        """
        loss = self.loss_function(preds, targets)
        if not isinstance(loss, torch.Tensor):
            raise TypeError(
                f"loss_function must return a tensor, the mean or one value per sample; it "
                f"returned {loss!r}"
            )
        if loss.ndim > 0:
            self.sum_loss += loss.sum()
            self.total += loss.numel()
            return
        num_samples = _count_samples(targets)
        if num_samples is None:
            num_samples = _count_samples(preds)
        if num_samples is None:
            raise TypeError(
                f"cannot tell the number of samples from targets of type "
                f"{type(targets).__name__} and preds of type {type(preds).__name__}; give "
                f"tensors with a batch dimension"
            )
        if not num_samples:
            # The mean over nothing is no number, and says nothing.
            return
        self.sum_loss += loss * num_samples
        self.total += num_samples

    def result(self, **totals: torch.Tensor) -> torch.Tensor:
        """Divide the summed loss by the number of samples.

        Args:
            **totals: ``sum_loss`` and ``total``.

        Returns:
            The mean.

        Example:
            >>> metric = LossMetric(torch.nn.functional.mse_loss)
            >>> metric.result(sum_loss=torch.tensor(6.0), total=torch.tensor(4))
            tensor(1.5000)
        """
        return (totals["sum_loss"] / totals["total"]).float()


def _count_samples(values: Any) -> int | None:
    """The length of the first tensor with a batch dimension; none if there is no such tensor."""
    if isinstance(values, torch.Tensor):
        return len(values) if values.ndim else None
    if isinstance(values, Mapping):
        values = values.values()
    elif not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
        return None
    return next((n for n in map(_count_samples, values) if n is not None), None)
