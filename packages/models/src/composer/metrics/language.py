"""Metrics of token predictions and of two-class text classification.

All count tokens (or samples) and not batches, so ragged batches weigh by what is in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F

from composer.loss.targets import check_for_index_targets
from composer.metrics._ranges import check_classes
from composer.metrics.base import Metric
from composer.utils.checks import check_integer

__all__ = ["BinaryF1Score", "LanguageCrossEntropy", "LanguagePerplexity", "MaskedAccuracy"]


def logits_of(output: Any) -> torch.Tensor:
    """Find the logits in what a model returned.

    Args:
        output: A tensor, a mapping with ``logits``, or an object that has them as an attribute.

    Returns:
        The logits.

    Raises:
        TypeError: If there are none.

    Example:
        >>> logits_of({"logits": torch.ones(1)})
        tensor([1.])
    """
    if isinstance(output, torch.Tensor):
        return output
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if not isinstance(found, torch.Tensor):
        raise TypeError(
            f"output of type {type(output).__name__} holds no logits; give a tensor, or a mapping "
            f"or an object with `logits`"
        )
    return found


class _TokenLoss(Metric):
    """Sums the cross entropy over tokens."""

    sum_loss: torch.Tensor
    total_items: torch.Tensor

    def __init__(self, dist_sync_on_step: bool = False, ignore_index: int = -100) -> None:
        super().__init__(dist_sync_on_step)
        check_integer("ignore_index", ignore_index)
        self.ignore_index = ignore_index
        self.add_state("sum_loss", torch.tensor(0.0, dtype=torch.float64))
        self.add_state("total_items", torch.tensor(0))

    @torch.no_grad()
    def update(self, output: Any, target: torch.Tensor) -> None:
        """Add a batch.

        Args:
            output: Logits of shape (..., V), or what holds them as ``logits``.
            target: Integers of shape (...).

        Raises:
            TypeError: If there are no logits, or targets are no integers.
            ValueError: If the shapes do not fit.

        Example:
            >>> metric = LanguageCrossEntropy()
            >>> metric.update({"logits": torch.zeros(1, 2, 8)}, torch.tensor([[3, -100]]))
            >>> round(float(metric.compute()), 4)  # log(8)
            2.0794
        """
        logits = logits_of(output)
        _check_labels(logits.shape[:-1], target)
        target = target.reshape(-1).to(torch.int64)
        self.sum_loss += F.cross_entropy(
            logits.reshape(-1, logits.shape[-1]).float(),
            target,
            ignore_index=self.ignore_index,
            reduction="sum",
        )
        self.total_items += (target != self.ignore_index).sum()


class LanguageCrossEntropy(_TokenLoss):
    """The mean cross entropy over all tokens that have a label.

    Args:
        dist_sync_on_step: Whether calling the metric sums over ranks.
        ignore_index: Tokens with this label do not count.

    Example:
        >>> metric = LanguageCrossEntropy()
        >>> metric.update(torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.long))
        >>> round(float(metric.compute()), 4)  # log(4)
        1.3863
    """

    def result(self, **totals: torch.Tensor) -> torch.Tensor:
        """Divide the summed loss by the number of tokens.

        Args:
            **totals: ``sum_loss`` and ``total_items``.

        Returns:
            The mean.

        Example:
            >>> metric = LanguageCrossEntropy()
            >>> metric.result(sum_loss=torch.tensor(6.0), total_items=torch.tensor(4))
            tensor(1.5000)
        """
        return (totals["sum_loss"] / totals["total_items"]).float()


class LanguagePerplexity(_TokenLoss):
    """The exponential of the mean cross entropy over all tokens that have a label.

    Args:
        dist_sync_on_step: Whether calling the metric sums over ranks.
        ignore_index: Tokens with this label do not count.

    Example:
        >>> metric = LanguagePerplexity()
        >>> metric.update(torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.long))
        >>> metric.compute()
        tensor(4.)
    """

    def result(self, **totals: torch.Tensor) -> torch.Tensor:
        """Raise e to the mean loss.

        Args:
            **totals: ``sum_loss`` and ``total_items``.

        Returns:
            The perplexity.

        Example:
            >>> metric = LanguagePerplexity()
            >>> metric.result(sum_loss=torch.tensor(0.0), total_items=torch.tensor(4))
            tensor(1.)
        """
        return (totals["sum_loss"] / totals["total_items"]).exp().float()


class MaskedAccuracy(Metric):
    """The share of tokens with a label whose largest logit is that label.

    Args:
        ignore_index: Tokens with this label do not count.
        dist_sync_on_step: Whether calling the metric sums over ranks.

    Example:
        >>> metric = MaskedAccuracy()
        >>> metric.update(torch.eye(3).unsqueeze(0), torch.tensor([[0, 2, -100]]))
        >>> metric.compute()
        tensor(0.5000)
    """

    correct: torch.Tensor
    total: torch.Tensor

    def __init__(self, ignore_index: int = -100, dist_sync_on_step: bool = False) -> None:
        super().__init__(dist_sync_on_step)
        check_integer("ignore_index", ignore_index)
        self.ignore_index = ignore_index
        self.add_state("correct", torch.tensor(0))
        self.add_state("total", torch.tensor(0))

    @torch.no_grad()
    def update(self, preds: Any, target: torch.Tensor) -> None:
        """Add a batch.

        Args:
            preds: Logits of shape (..., V), or what holds them as ``logits``.
            target: Integers of shape (...).

        Raises:
            TypeError: If there are no logits, or targets are no integers.
            ValueError: If the shapes do not fit.

        Example:
            >>> metric = MaskedAccuracy(ignore_index=-1)
            >>> metric.update(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([1, -1]))
            >>> metric.total
            tensor(1)
        """
        logits = logits_of(preds)
        _check_labels(logits.shape[:-1], target)
        target = target.to(torch.int64)
        counts = target != self.ignore_index
        self.correct += ((logits.argmax(dim=-1) == target) & counts).sum()
        self.total += counts.sum()

    def result(self, **totals: torch.Tensor) -> torch.Tensor:
        """Divide hits by tokens.

        Args:
            **totals: ``correct`` and ``total``.

        Returns:
            The share.

        Example:
            >>> MaskedAccuracy().result(correct=torch.tensor(1), total=torch.tensor(4))
            tensor(0.2500)
        """
        return totals["correct"] / totals["total"]


class BinaryF1Score(Metric):
    """The F1 score of the second of two classes: ``2 TP / (2 TP + FP + FN)``.

    Args:
        dist_sync_on_step: Whether calling the metric sums over ranks.

    Example:
        >>> metric = BinaryF1Score()
        >>> logits = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
        >>> metric.update(logits, torch.tensor([1, 0, 1]))
        >>> metric.compute()
        tensor(0.5000)
    """

    true_positive: torch.Tensor
    false_positive: torch.Tensor
    false_negative: torch.Tensor

    def __init__(self, dist_sync_on_step: bool = False) -> None:
        super().__init__(dist_sync_on_step)
        for name in ("true_positive", "false_positive", "false_negative"):
            self.add_state(name, torch.tensor(0))

    @torch.no_grad()
    def update(self, output: Any, target: torch.Tensor) -> None:
        """Add a batch.

        Args:
            output: Logits of shape (N, 2), or what holds them as ``logits``.
            target: Zeros and ones of shape (N,).

        Raises:
            TypeError: If there are no logits, or targets are no integers.
            ValueError: If the shapes do not fit, or, on the CPU, a target is neither 0 nor 1;
                elsewhere a look at it would make every step wait.

        Example:
            >>> metric = BinaryF1Score()
            >>> metric.update(torch.tensor([[0.0, 1.0]]), torch.tensor([1]))
            >>> metric.true_positive
            tensor(1)
        """
        logits = logits_of(output)
        if logits.ndim != 2 or logits.shape[1] != 2:
            raise ValueError(f"output of shape {tuple(logits.shape)} must have the shape (N, 2)")
        _check_labels(logits.shape[:1], target)
        check_classes("target", target, 2)
        predicted, true = logits.argmax(dim=1) == 1, target == 1
        self.true_positive += (predicted & true).sum()
        self.false_positive += (predicted & ~true).sum()
        self.false_negative += (~predicted & true).sum()

    def result(self, **totals: torch.Tensor) -> torch.Tensor:
        """Combine the counts.

        Args:
            **totals: ``true_positive``, ``false_positive`` and ``false_negative``.

        Returns:
            The score; NaN if the class neither occurs nor is predicted.

        Example:
            >>> one = torch.tensor(1)
            >>> metric = BinaryF1Score()
            >>> metric.result(true_positive=one, false_positive=one, false_negative=one)
            tensor(0.5000)
        """
        hits = 2 * totals["true_positive"]
        return hits / (hits + totals["false_positive"] + totals["false_negative"])


def _check_labels(shape: torch.Size, target: torch.Tensor) -> None:
    if target.shape != shape:
        raise ValueError(
            f"target of shape {tuple(target.shape)} does not fit the predictions; accepted is "
            f"{tuple(shape)}"
        )
    if not check_for_index_targets(target):
        raise TypeError(
            f"target must hold class indices, which are integers and not {target.dtype}"
        )
