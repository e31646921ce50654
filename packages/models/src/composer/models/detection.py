"""A model that finds objects, around a module that computes its own losses, as torchvision's do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from composer.models._tasks import TaskModel, check_metrics, check_module, inputs_of_pair

__all__ = ["ComposerDetector", "collate_detection"]


def collate_detection(
    samples: Sequence[tuple[torch.Tensor, dict[str, torch.Tensor]]],
) -> tuple[list[torch.Tensor], list[dict[str, torch.Tensor]]]:
    """Put samples into a batch without stacking them: images and targets differ in size.

    Args:
        samples: Pairs of an image and its target.

    Returns:
        The images and the targets, as two lists.

    Example:
        >>> collate_detection([(torch.zeros(3, 4, 5), {"labels": torch.ones(2)})])[0][0].shape
        torch.Size([3, 4, 5])
    """
    return [image for image, _ in samples], [target for _, target in samples]


class ComposerDetector(TaskModel):
    """Make a detector trainable on batches ``(list of images, list of targets)``.

    In training the module is called with images and targets and returns its losses by name; in
    evaluation it is called with the images and returns, per image, ``boxes``, ``labels`` and
    ``scores``. The models of ``torchvision.models.detection`` are such modules. A loader makes such
    batches with ``collate_fn=collate_detection``.

    Args:
        module: The detector.
        val_metrics: A metric that is updated with detections and targets, or a mapping of names to
            metrics; by default mean average precision, which needs the extra ``detection``.

    Raises:
        TypeError: If ``module`` is no ``torch.nn.Module`` or a metric lacks a method.
        MissingConditionalImportError: If the default metric is wanted and the extra is missing.

    Example:
        >>> class Corner(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.score = torch.nn.Parameter(torch.zeros(()))
        ...     def forward(self, images, targets=None):
        ...         if self.training:
        ...             return {"classification": self.score**2, "regression": self.score + 1}
        ...         box = torch.tensor([[0.0, 0.0, 4.0, 4.0]])
        ...         found = {"boxes": box, "labels": torch.tensor([1]), "scores": torch.ones(1)}
        ...         return [found for _ in images]
        >>> model = ComposerDetector(Corner())
        >>> batch = ([torch.zeros(3, 8, 8)], [{"boxes": torch.zeros(0, 4)}])
        >>> sorted(model.loss(model(batch), batch))
        ['classification', 'regression']
        >>> model.eval().eval_forward(batch)[0]["labels"]
        tensor([1])
    """

    module: torch.nn.Module

    def __init__(self, module: torch.nn.Module, val_metrics: Any | None = None) -> None:
        super().__init__()
        check_module(module)
        self.module = module
        if val_metrics is None:
            from composer.metrics.detection import MAP

            val_metrics = MAP()
        # A detector finds nothing while it computes its losses.
        self.train_metrics = {}
        self.val_metrics = val_metrics
        check_metrics(val_metrics=val_metrics)

    def forward(self, batch: Any) -> Any:
        """Compute the losses in training, and find objects in evaluation.

        Args:
            batch: Images and targets; in evaluation the targets are not looked at.

        Returns:
            Name to loss, or per image what was found.

        Example:
            >>> class Nothing(torch.nn.Module):
            ...     def forward(self, images, targets=None):
            ...         return {"loss": torch.zeros(())} if self.training else [{} for _ in images]
            >>> ComposerDetector(Nothing()).eval()(([torch.zeros(3, 2, 2)], None))
            [{}]
        """
        images, targets = batch
        return self.module(images, targets) if self.training else self.module(images)

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the losses, which the module has computed.

        Args:
            outputs: What :meth:`forward` returned in training.
            batch: Images and targets.
            *args: Not used.
            **kwargs: Not used.

        Returns:
            Name to loss; their sum is trained on.

        Raises:
            TypeError: If the outputs are those of evaluation.

        Example:
            >>> model = ComposerDetector(torch.nn.Identity())
            >>> model.loss({"regression": torch.ones(())}, None)
            {'regression': tensor(1.)}
        """
        if isinstance(outputs, list):
            raise TypeError(
                "outputs are what was found in evaluation, from which there is no loss; a detector "
                "computes its losses in training mode (model.train())"
            )
        return outputs

    def for_inference(self, batch: Any) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
        """Say what is exported: the module, called with the images.

        Args:
            batch: Images, and targets that are not looked at.

        Returns:
            The module, and its positional and named arguments.

        Example:
            >>> model = ComposerDetector(torch.nn.Identity())
            >>> module, args, kwargs = model.for_inference(([torch.zeros(3, 8, 8)], None))
            >>> module is model.module, len(args), kwargs
            (True, 1, {})
        """
        return self.module, (inputs_of_pair(batch),), {}

    def update_metric(self, batch: Any, outputs: Any, metric: Any) -> None:
        """Add a batch to a metric.

        Args:
            batch: Images and targets.
            outputs: Per image what was found.
            metric: The metric, called with what was found and the targets.

        Example:
            >>> from composer.metrics import MAP
            >>> box, label = torch.tensor([[0.0, 0.0, 9.0, 9.0]]), torch.tensor([1])
            >>> found = {"boxes": box, "labels": label, "scores": torch.ones(1)}
            >>> metric = MAP()
            >>> model = ComposerDetector(torch.nn.Identity(), metric)
            >>> model.update_metric((None, [{"boxes": box, "labels": label}]), [found], metric)
            >>> round(float(metric.compute()["map"]), 4)
            1.0
        """
        metric.update(outputs, batch[1])
