"""A classifier around any module, for batches of inputs and targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch

from composer.loss.losses import soft_cross_entropy
from composer.loss.targets import loss_weight
from composer.metrics.classification import CrossEntropy, MulticlassAccuracy
from composer.models._tasks import (
    TaskModel,
    agree_on_num_classes,
    check_loss_fn,
    check_metrics,
    check_module,
    inputs_of_pair,
    require_num_classes,
)

__all__ = ["ComposerClassifier"]

# Targets with this class do not count, in the loss as in the metrics.
_IGNORED = -100


class ComposerClassifier(TaskModel):
    """Make a module trainable on batches ``(inputs, targets)``.

    Metrics may be this library's, those of torchmetrics or anything else with ``update``,
    ``compute`` and ``reset``: one metric, kept under its class name, or a mapping of names to
    metrics (such as a ``MetricCollection``).

    Args:
        module: Takes the inputs and returns logits of shape (N, C, ...).
        num_classes: Number of classes, needed for the default metrics; the module's own
            ``num_classes`` goes before it.
        train_metrics: Metrics of the training data; by default accuracy.
        val_metrics: Metrics of evaluation; by default accuracy and cross entropy.
        loss_fn: Called with logits and targets.

    Raises:
        TypeError: If ``module`` is no ``torch.nn.Module``, ``loss_fn`` cannot be called or a metric
            lacks a method.
        ValueError: If ``num_classes`` is less than 1, or unknown where the default metrics are
            wanted.

    Example:
        >>> model = ComposerClassifier(torch.nn.Linear(4, 3), num_classes=3)
        >>> batch = (torch.zeros(2, 4), torch.tensor([0, 2]))
        >>> model.loss(model(batch), batch).ndim
        0
        >>> list(model.get_metrics(is_train=False))
        ['MulticlassAccuracy', 'CrossEntropy']
    """

    refuses_batches_without_loss: ClassVar[bool] = False

    module: torch.nn.Module
    num_classes: int | None

    def __init__(
        self,
        module: torch.nn.Module,
        num_classes: int | None = None,
        train_metrics: Any | None = None,
        val_metrics: Any | None = None,
        loss_fn: Callable[..., torch.Tensor] = soft_cross_entropy,
    ) -> None:
        super().__init__()
        check_module(module)
        check_loss_fn(loss_fn)
        self.module = module
        self.num_classes = agree_on_num_classes(module, num_classes)
        self._loss_fn = loss_fn
        if train_metrics is None or val_metrics is None:
            require_num_classes(self.num_classes)
        if train_metrics is None:
            train_metrics = self._accuracy()
        if val_metrics is None:
            accuracy, cross_entropy = self._accuracy(), CrossEntropy()
            val_metrics = torch.nn.ModuleDict(
                {type(metric).__name__: metric for metric in (accuracy, cross_entropy)}
            )
        self.train_metrics = train_metrics
        self.val_metrics = val_metrics
        check_metrics(train_metrics=train_metrics, val_metrics=val_metrics)

    def forward(self, batch: Any) -> Any:
        """Compute the logits.

        Args:
            batch: Inputs and targets; the targets are not looked at.

        Returns:
            What the module returns for the inputs.

        Example:
            >>> model = ComposerClassifier(torch.nn.Linear(4, 3), num_classes=3)
            >>> model((torch.zeros(2, 4), None)).shape
            torch.Size([2, 3])
        """
        inputs, _ = batch
        return self.module(inputs)

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Compute the loss.

        Args:
            outputs: What :meth:`forward` returned.
            batch: Inputs and targets.
            *args: Handed on to the loss function.
            **kwargs: Handed on to the loss function, for instance ``reduction="none"``.

        Returns:
            The loss.

        Example:
            >>> model = ComposerClassifier(torch.nn.Identity(), num_classes=2)
            >>> batch = (torch.zeros(3, 2), torch.tensor([0, 1, 0]))
            >>> model.loss(model(batch), batch, reduction="none").shape
            torch.Size([3])
        """
        _, targets = batch
        return self._loss_fn(outputs, targets, *args, **kwargs)

    def num_loss_tokens(self, batch: Any) -> int | float | None:
        """Count the targets that the default loss is a mean over.

        Args:
            batch: Inputs and targets.

        Returns:
            The number of targets that are not -100; of probabilities, their total. ``None`` with
            another loss, whose mean is taken to be over samples.

        Example:
            >>> model = ComposerClassifier(torch.nn.Identity(), num_classes=2)
            >>> model.num_loss_tokens((None, torch.tensor([0, 1, -100])))
            2
            >>> model.num_loss_tokens((None, torch.tensor([[0.5, 0.5], [0.0, 0.0]])))
            1.0
        """
        targets = batch[1]
        if self._loss_fn is not soft_cross_entropy or not isinstance(targets, torch.Tensor):
            return None
        return loss_weight(targets, _IGNORED)

    def for_inference(self, batch: Any) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
        """Say what is exported: the module, called with the inputs.

        Args:
            batch: Inputs, and targets that are not looked at.

        Returns:
            The module, and its positional and named arguments.

        Example:
            >>> model = ComposerClassifier(torch.nn.Linear(4, 3), num_classes=3)
            >>> module, args, kwargs = model.for_inference((torch.zeros(1, 4), None))
            >>> module is model.module, len(args), kwargs
            (True, 1, {})
        """
        return self.module, (inputs_of_pair(batch),), {}

    def update_metric(self, batch: Any, outputs: Any, metric: Any) -> None:
        """Add a batch to a metric.

        Args:
            batch: Inputs and targets.
            outputs: The logits.
            metric: The metric, called with logits and targets.

        Example:
            >>> model = ComposerClassifier(torch.nn.Identity(), num_classes=2)
            >>> metric = model.get_metrics(is_train=True)["MulticlassAccuracy"]
            >>> model.update_metric((None, torch.tensor([1])), torch.tensor([[0.0, 1.0]]), metric)
            >>> metric.compute()
            tensor(1.)
        """
        _, targets = batch
        metric.update(outputs, targets)

    def _accuracy(self) -> MulticlassAccuracy:
        assert self.num_classes is not None
        return MulticlassAccuracy(self.num_classes, ignore_index=_IGNORED)
