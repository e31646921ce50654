"""The door to torchvision's models."""

from __future__ import annotations

from typing import Any

from torch import nn

from composer.utils.checks import check_choice
from composer.utils.imports import MissingConditionalImportError
from composer.utils.suggestions import did_you_mean

__all__ = ["build_network", "check_weights", "import_torchvision"]


def import_torchvision() -> Any:
    """Import ``torchvision.models``.

    Returns:
        The module.

    Raises:
        MissingConditionalImportError: If torchvision is not installed.

    Example:
        >>> import_torchvision().__name__
        'torchvision.models'
    """
    try:
        import torchvision.models as models
    except ImportError as error:
        raise MissingConditionalImportError(
            "vision", "torchvision", distribution="composer-models"
        ) from error
    return models


def check_weights(name: str, weights: Any | None, model_name: str) -> None:
    """Refuse pretrained weights that torchvision does not have for a network.

    Args:
        name: Name of the argument.
        weights: What the user gave.
        model_name: The network.

    Raises:
        ValueError: If there are none of that name.

    Example:
        >>> check_weights("weights", "DEFAULT", "resnet18")
    """
    known = import_torchvision().get_model_weights(model_name)
    if weights is None or isinstance(weights, known):
        return
    word = weights.removeprefix(f"{known.__name__}.") if isinstance(weights, str) else None
    if word not in known.__members__:
        accepted = (*known.__members__, "DEFAULT")
        raise ValueError(
            f"{name}={weights!r} is none of the weights of {model_name}; accepted are "
            f"{', '.join(dict.fromkeys(accepted))} and None.{did_you_mean(str(weights), accepted)}"
        )


def build_network(
    model_name: str, family: str, *, num_classes: int, weights: Any | None, **options: Any
) -> nn.Module:
    """Build a network of torchvision by its name there.

    Pretrained weights come with the head of the classes they were trained on; with another number
    of classes the head starts fresh.

    Args:
        model_name: The name.
        family: What the name has to start with.
        num_classes: Number of classes.
        weights: Pretrained weights, as torchvision names them.
        **options: Handed on.

    Returns:
        The network, with ``num_classes``.

    Raises:
        ValueError: If there is no such name in the family, or there are no such weights.

    Example:
        >>> build_network("resnet18", "resnet", num_classes=3, weights=None).num_classes
        3
    """
    models = import_torchvision()
    known = [name for name in models.list_models(models) if name.startswith(family)]
    check_choice("model_name", model_name, known)
    check_weights("weights", weights, model_name)
    if weights is None:
        built: nn.Module = models.get_model(model_name, num_classes=num_classes, **options)
    else:
        built = models.get_model(model_name, weights=weights, **options)
        _set_head(built, num_classes)
    built.num_classes = num_classes  # type: ignore[assignment]
    return built


def _set_head(built: nn.Module, num_classes: int) -> None:
    *path, last = [name for name, part in built.named_modules() if isinstance(part, nn.Linear)][
        -1
    ].split(".")
    owner = built.get_submodule(".".join(path))
    head = getattr(owner, last)
    if head.out_features != num_classes:
        setattr(owner, last, nn.Linear(head.in_features, num_classes))
