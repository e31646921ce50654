"""The contract between the trainer and a user's model.

The trainer never looks inside a model: it asks for outputs, a loss and metrics.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.types import Batch

__all__ = ["ComposerModel"]


class ComposerModel(torch.nn.Module, ABC):
    """A model that knows how to read a batch and how to compute its loss.

    Attributes:
        logger: Set by the trainer, so that a model can report; neither copied nor pickled.
        origin: How the model was built, if a registered factory built it: ``name`` is what it is
            registered as among ``composer.models``, ``arguments`` are its plain arguments.

    Example:
        >>> class Line(ComposerModel):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.linear = torch.nn.Linear(1, 1)
        ...     def forward(self, batch):
        ...         return self.linear(batch[0])
        ...     def loss(self, outputs, batch):
        ...         return torch.nn.functional.mse_loss(outputs, batch[1])
        >>> model = Line()
        >>> batch = (torch.ones(2, 1), torch.ones(2, 1))
        >>> model.loss(model(batch), batch).shape
        torch.Size([])
    """

    logger: Logger | None
    origin: dict[str, Any] | None = None
    #: Whether a batch of which nothing carries loss is an error of its own (:meth:`num_loss_tokens`
    #: is then asked at every batch, and not only where weights are needed).
    refuses_batches_without_loss: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.logger = None

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state["logger"] = None
        return state

    def __deepcopy__(self, memo: dict[int, Any]) -> ComposerModel:
        import copy

        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        for name, value in self.__getstate__().items():
            twin.__dict__[name] = copy.deepcopy(value, memo)
        return twin

    @abstractmethod
    def forward(self, batch: Batch) -> Any:
        """Compute the outputs of a batch.

        Args:
            batch: What the dataloader yields, on the model's device.

        Returns:
            Whatever :meth:`loss` and :meth:`update_metric` take.
        """

    @abstractmethod
    def loss(
        self, outputs: Any, batch: Batch, *args: Any, **kwargs: Any
    ) -> torch.Tensor | Sequence[torch.Tensor] | Mapping[str, torch.Tensor]:
        """Compute the loss.

        Args:
            outputs: What :meth:`forward` returned.
            batch: The batch.
            *args: For subclasses.
            **kwargs: For subclasses, for instance ``reduction``.

        Returns:
            A tensor, a sequence of tensors (summed), or a mapping of tensors (``total`` is used
            if it is there, else the sum).
        """

    def eval_forward(self, batch: Batch, outputs: Any | None = None) -> Any:
        """Compute the outputs that metrics are updated with.

        Args:
            batch: The batch.
            outputs: Outputs that a training step already computed, if there are any.

        Returns:
            ``outputs`` if given, else ``forward(batch)``.

        Example:
            >>> class Echo(ComposerModel):
            ...     def forward(self, batch):
            ...         return batch
            ...     def loss(self, outputs, batch):
            ...         return outputs.sum()
            >>> Echo().eval_forward(3), Echo().eval_forward(3, outputs=4)
            (3, 4)
        """
        return outputs if outputs is not None else self.forward(batch)

    def integrations(self) -> dict[str, Any]:
        """Say what a checkpoint needs beside the weights so that the model can be built from it.

        It is asked at every save, so what is costly to gather is better kept.

        Returns:
            Name of a framework to plain types: strings, numbers, ``None``, bytes, and lists and
            mappings of them. By default ``{"composer": origin}`` for a model of a registered
            factory, else nothing.

        Example:
            >>> from composer.models import composer_resnet_cifar
            >>> composer_resnet_cifar("resnet_8").integrations()["composer"]["name"]
            'composer_resnet_cifar'
        """
        return {} if self.origin is None else {"composer": self.origin}

    def for_inference(
        self, batch: Batch
    ) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
        """Say what is exported for use elsewhere: a module, and what it is called with.

        Args:
            batch: An example.

        Returns:
            The module, and its positional and named arguments, taken from the batch. By default
            this model and the whole batch; a model whose batches hold targets returns the part that
            does without them.

        Example:
            >>> from composer.models import ComposerClassifier
            >>> model = ComposerClassifier(torch.nn.Linear(4, 3), num_classes=3)
            >>> model.for_inference((torch.zeros(1, 4), None))
            (Linear(in_features=4, out_features=3, bias=True), (tensor([[0., 0., 0., 0.]]),), {})
        """
        return self, (batch,), {}

    def num_loss_tokens(self, batch: Batch) -> int | float | None:
        """Say how many tokens of a batch the mean of :meth:`loss` is taken over, or their weight.

        By it microbatches, and the batches of several ranks, are weighted, so that the update is
        that of the whole batch. A model whose loss is a mean over tokens overrides this, unless its
        batches hold ``labels`` of the shape of ``input_ids``: there every label but -100 counts.

        Args:
            batch: A batch or a part of one, on the host.

        Returns:
            The number of tokens, or ``None`` if the mean is taken over samples.

        Example:
            >>> ComposerModel.num_loss_tokens(None, {}) is None
            True
        """
        del batch
        return None

    def get_metrics(self, is_train: bool) -> dict[str, Any]:
        """Return the metrics to keep.

        Args:
            is_train: Whether they are for training or for evaluation.

        Returns:
            Metric name to an object with ``update``, ``compute``, ``reset`` and ``to``.

        Example:
            >>> ComposerModel.get_metrics(None, True)
            {}
        """
        del is_train
        return {}

    def update_metric(self, batch: Batch, outputs: Any, metric: Any) -> dict[str, Any] | None:
        """Add a batch to a metric.

        Args:
            batch: The batch.
            outputs: What :meth:`eval_forward` returned.
            metric: One of :meth:`get_metrics`.

        Returns:
            ``None``, or a dictionary that is kept as ``state.metric_outputs``.

        Raises:
            NotImplementedError: If a model has metrics and does not say how to update them.

        Example:
            >>> try:
            ...     ComposerModel.update_metric(None, None, None, None)
            ... except NotImplementedError as error:
            ...     print("update_metric" in str(error))
            True
        """
        raise NotImplementedError(
            f"{type(self).__name__} returns metrics from `get_metrics`, so it must define "
            f"`update_metric(batch, outputs, metric)`"
        )
