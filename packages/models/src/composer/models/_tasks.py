"""What the task classes share: their metrics, and reading what they were given."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from composer.core.model import ComposerModel
from composer.utils.checks import check_integer

__all__ = [
    "TaskModel",
    "agree_on_num_classes",
    "by_name",
    "check_loss_fn",
    "check_metrics",
    "check_module",
    "inputs_of_pair",
    "require_num_classes",
]


class TaskModel(ComposerModel):
    """A model whose metrics are those given for training and for evaluation.

    Attributes:
        train_metrics: A metric, or a mapping of names to metrics.
        val_metrics: The same for evaluation.

    Example:
        >>> issubclass(TaskModel, ComposerModel)
        True
    """

    train_metrics: Any
    val_metrics: Any

    def get_metrics(self, is_train: bool = False) -> dict[str, Any]:
        """Return the metrics.

        Args:
            is_train: Whether those of training are wanted.

        Returns:
            Name to metric.

        Example:
            >>> from composer.models import ComposerClassifier
            >>> model = ComposerClassifier(torch.nn.Identity(), num_classes=2)
            >>> list(model.get_metrics(is_train=True))
            ['MulticlassAccuracy']
        """
        return by_name(self.train_metrics if is_train else self.val_metrics)


def check_module(module: Any, name: str = "module") -> None:
    """Refuse what is no module.

    Args:
        module: What the user gave.
        name: Name of the argument.

    Raises:
        TypeError: If it is no ``torch.nn.Module``.

    Example:
        >>> check_module(torch.nn.Identity())
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"{name} must be a torch.nn.Module, not {type(module).__name__}")


def check_loss_fn(loss_fn: Any) -> None:
    """Refuse what cannot be called with outputs and targets.

    Args:
        loss_fn: What the user gave.

    Raises:
        TypeError: If it cannot be called.

    Example:
        >>> check_loss_fn(torch.nn.functional.mse_loss)
    """
    if not callable(loss_fn):
        raise TypeError(
            f"loss_fn={loss_fn!r} must be a function of outputs and targets; those with a name are "
            f"in composer.loss.loss_registry"
        )


def inputs_of_pair(batch: Any) -> Any:
    """Take the inputs out of a batch of inputs and targets.

    Args:
        batch: The pair.

    Returns:
        The inputs.

    Raises:
        TypeError: If it is no pair: of a single tensor, the first sample would be taken for all.

    Example:
        >>> inputs_of_pair(("inputs", "targets"))
        'inputs'
    """
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise TypeError(f"a batch must be a pair of inputs and targets; got {type(batch).__name__}")
    return batch[0]


def agree_on_num_classes(module: torch.nn.Module, given: int | None) -> int | None:
    """Choose between the module's own number of classes and the one given.

    Args:
        module: The module, which may have ``num_classes``.
        given: What the user gave.

    Returns:
        The module's own, with a warning if another was given; else the given one.

    Raises:
        TypeError: If what was given is no integer.
        ValueError: If it is less than 1.

    Example:
        >>> agree_on_num_classes(torch.nn.Identity(), 5)
        5
    """
    if given is not None:
        check_integer("num_classes", given, low=1)
    own = getattr(module, "num_classes", None)
    if own is None:
        return given
    if given is not None and given != own:
        warnings.warn(
            f"num_classes={given} differs from the module's own num_classes={own}, which is used",
            stacklevel=3,
        )
    return int(own)


def require_num_classes(num_classes: int | None) -> None:
    """Refuse to make metrics of classes of which nobody said how many there are.

    Args:
        num_classes: Their number, if it is known.

    Raises:
        ValueError: If it is not.

    Example:
        >>> require_num_classes(3)
    """
    if num_classes is None:
        raise ValueError(
            "num_classes is needed for the default metrics and the module has no attribute "
            "`num_classes`; give num_classes, or both train_metrics and val_metrics"
        )


def by_name(metrics: Any) -> dict[str, Any]:
    """Name metrics: one is kept under its class name, a mapping keeps its names.

    Args:
        metrics: A metric, or a mapping of names to metrics.

    Returns:
        Name to metric.

    Example:
        >>> from composer.metrics import CrossEntropy
        >>> list(by_name(CrossEntropy()))
        ['CrossEntropy']
    """
    items = getattr(metrics, "items", None)
    return {type(metrics).__name__: metrics} if items is None else dict(items())


def check_metrics(**arguments: Any) -> None:
    """Refuse metrics that lack a method.

    Args:
        **arguments: Argument name to what the user gave.

    Raises:
        TypeError: If one has no ``update``, ``compute`` or ``reset``.

    Example:
        >>> from composer.metrics import CrossEntropy
        >>> check_metrics(train_metrics=CrossEntropy())
    """
    for argument, given in arguments.items():
        for name, metric in by_name(given).items():
            for method in ("update", "compute", "reset"):
                if not callable(getattr(metric, method, None)):
                    raise TypeError(
                        f"{argument}[{name!r}] must be a metric with `update`, `compute` and "
                        f"`reset`; {type(metric).__name__} has no `{method}`"
                    )
