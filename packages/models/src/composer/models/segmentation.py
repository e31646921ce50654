"""A model that gives every pixel a class, for batches of images and label maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from composer.loss.losses import soft_cross_entropy
from composer.loss.targets import loss_weight
from composer.metrics.classification import CrossEntropy
from composer.metrics.segmentation import MIoU
from composer.models._tasks import (
    TaskModel,
    agree_on_num_classes,
    check_loss_fn,
    check_metrics,
    check_module,
    inputs_of_pair,
    require_num_classes,
)
from composer.utils.checks import check_integer, check_number

__all__ = ["ComposerSegmenter"]


class ComposerSegmenter(TaskModel):
    """Make a module trainable on batches ``(images, label maps)``.

    The module may return logits, or a mapping with ``out`` and perhaps ``aux``, as the models of
    torchvision do. Logits of another height and width than the label map are resized to it,
    bilinearly.

    Args:
        module: Takes images of shape (N, channels, H, W).
        num_classes: Number of classes, needed for the default metrics; the module's own
            ``num_classes`` goes before it.
        train_metrics: A metric or a mapping of names to metrics; by default mean intersection over
            union.
        val_metrics: The same for evaluation; by default also cross entropy.
        loss_fn: Called with logits and label maps; by default the mean cross entropy over the
            pixels that count.
        ignore_index: Label of pixels that do not count.
        aux_weight: Weight of the loss of ``aux``.

    Raises:
        TypeError: If ``module`` is no ``torch.nn.Module``, a metric lacks a method, or another
            argument is of the wrong kind.
        ValueError: If a number is not accepted, or the number of classes is unknown where the
            default metrics are wanted.

    Example:
        >>> model = ComposerSegmenter(torch.nn.Conv2d(3, 5, 1, stride=2), num_classes=5)
        >>> batch = (torch.zeros(2, 3, 8, 8), torch.zeros(2, 8, 8, dtype=torch.long))
        >>> outputs = model(batch)
        >>> outputs["out"].shape, model.loss(outputs, batch).ndim
        (torch.Size([2, 5, 8, 8]), 0)
    """

    module: torch.nn.Module
    num_classes: int | None

    def __init__(
        self,
        module: torch.nn.Module,
        num_classes: int | None = None,
        train_metrics: Any | None = None,
        val_metrics: Any | None = None,
        loss_fn: Callable[..., torch.Tensor] | None = None,
        *,
        ignore_index: int = -1,
        aux_weight: float = 0.5,
    ) -> None:
        super().__init__()
        check_module(module)
        if loss_fn is not None:
            check_loss_fn(loss_fn)
        check_integer("ignore_index", ignore_index)
        check_number("aux_weight", aux_weight, low=0)
        self.module = module
        self.num_classes = agree_on_num_classes(module, num_classes)
        self.ignore_index = ignore_index
        self.aux_weight = aux_weight
        self._loss_fn = loss_fn
        if train_metrics is None or val_metrics is None:
            require_num_classes(self.num_classes)
        if train_metrics is None:
            train_metrics = self._miou()
        if val_metrics is None:
            val_metrics = torch.nn.ModuleDict(
                {"MIoU": self._miou(), "CrossEntropy": CrossEntropy(ignore_index)}
            )
        self.train_metrics = train_metrics
        self.val_metrics = val_metrics
        check_metrics(train_metrics=train_metrics, val_metrics=val_metrics)

    def _miou(self) -> MIoU:
        assert self.num_classes is not None
        return MIoU(self.num_classes, self.ignore_index)

    def forward(self, batch: Any) -> dict[str, torch.Tensor]:
        """Compute the logits.

        Args:
            batch: Images and label maps; of the latter only the size is looked at.

        Returns:
            ``out`` of shape (N, C, H, W), and ``aux`` if the module returns it.

        Example:
            >>> model = ComposerSegmenter(torch.nn.Conv2d(1, 2, 1), num_classes=2)
            >>> list(model((torch.zeros(1, 1, 4, 4), torch.zeros(1, 4, 4))))
            ['out']
        """
        images, targets = batch
        outputs = self.module(images)
        if not isinstance(outputs, Mapping):
            outputs = {"out": outputs}
        size = targets.shape[-2:]
        return {
            name: logits
            if logits.shape[-2:] == size
            else F.interpolate(logits, size=size, mode="bilinear", align_corners=False)
            for name, logits in outputs.items()
        }

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Compute the loss.

        Args:
            outputs: What :meth:`forward` returned.
            batch: Images, and label maps of shape (N, H, W), or one value per class of shape
                (N, C, H, W).
            *args: Handed on to the loss function.
            **kwargs: Handed on to the loss function.

        Returns:
            The loss of ``out``, and of ``aux`` by its weight.

        Example:
            >>> model = ComposerSegmenter(torch.nn.Conv2d(1, 2, 1), num_classes=2)
            >>> batch = (torch.zeros(1, 1, 2, 2), torch.tensor([[[0, 1], [-1, -1]]]))
            >>> model.loss({"out": torch.zeros(1, 2, 2, 2)}, batch)  # log(2)
            tensor(0.6931)
        """
        _, targets = batch
        loss = self._loss_of(outputs["out"], targets, *args, **kwargs)
        if "aux" in outputs:
            loss = loss + self.aux_weight * self._loss_of(outputs["aux"], targets, *args, **kwargs)
        return loss

    def _loss_of(
        self, logits: torch.Tensor, targets: torch.Tensor, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        if self._loss_fn is not None:
            return self._loss_fn(logits, targets, *args, **kwargs)
        kwargs.setdefault("ignore_index", self.ignore_index)
        return soft_cross_entropy(logits, targets, *args, **kwargs)

    def num_loss_tokens(self, batch: Any) -> int | float | None:
        """Count the pixels that the default loss is a mean over.

        Args:
            batch: Images and label maps.

        Returns:
            The number of pixels that count; of probabilities, their total. ``None`` with another
            loss, whose mean is taken to be over samples.

        Example:
            >>> model = ComposerSegmenter(torch.nn.Conv2d(1, 2, 1), num_classes=2)
            >>> model.num_loss_tokens((None, torch.tensor([[[0, 1], [-1, -1]]])))
            2
        """
        return None if self._loss_fn is not None else loss_weight(batch[1], self.ignore_index)

    def for_inference(self, batch: Any) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
        """Say what is exported: the module, called with the images.

        Args:
            batch: Images, and targets that are not looked at.

        Returns:
            The module, and its positional and named arguments.

        Example:
            >>> model = ComposerSegmenter(torch.nn.Conv2d(3, 2, 1), num_classes=2)
            >>> module, args, kwargs = model.for_inference((torch.zeros(1, 3, 8, 8), None))
            >>> module is model.module, len(args), kwargs
            (True, 1, {})
        """
        return self.module, (inputs_of_pair(batch),), {}

    def update_metric(self, batch: Any, outputs: Any, metric: Any) -> None:
        """Add a batch to a metric.

        Args:
            batch: Images and label maps.
            outputs: What :meth:`forward` returned.
            metric: The metric, called with logits and label maps.

        Example:
            >>> model = ComposerSegmenter(torch.nn.Conv2d(1, 2, 1), num_classes=2)
            >>> metric = model.get_metrics(is_train=True)["MIoU"]
            >>> logits = torch.eye(2).view(1, 2, 1, 2)
            >>> model.update_metric((None, torch.tensor([[[0, 1]]])), {"out": logits}, metric)
            >>> metric.compute()
            tensor(100.)
        """
        metric.update(outputs["out"], batch[1])
