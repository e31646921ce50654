"""Any image classifier of the timm library."""

from __future__ import annotations

from typing import Any

from composer.models.classifier import ComposerClassifier
from composer.models.origin import remembers_origin
from composer.utils.checks import check_bool, check_integer
from composer.utils.imports import MissingConditionalImportError
from composer.utils.suggestions import did_you_mean

__all__ = ["composer_timm"]


@remembers_origin("composer_timm", forget=["pretrained"])
def composer_timm(
    model_name: str, num_classes: int = 1000, pretrained: bool | None = False, **options: Any
) -> ComposerClassifier:
    """Build a classifier around a model of timm.

    Needs the extra ``timm``.

    Args:
        model_name: A name that ``timm.list_models()`` lists.
        num_classes: Number of classes.
        pretrained: Whether to download the weights that timm knows.
        **options: Handed on to ``timm.create_model``, for instance ``in_chans`` or ``drop_rate``.

    Returns:
        The classifier, with accuracy and cross entropy as metrics.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If the name is unknown or a number is not accepted.
        MissingConditionalImportError: If timm is not installed.

    Example:
        >>> model = composer_timm("resnet10t", num_classes=5)
        >>> import torch
        >>> model.eval()((torch.zeros(1, 3, 32, 32), None)).shape
        torch.Size([1, 5])
    """
    try:
        import timm
    except ImportError as error:
        raise MissingConditionalImportError(
            "timm", "timm", distribution="composer-models"
        ) from error
    check_integer("num_classes", num_classes, low=1)
    if pretrained is not None:
        check_bool("pretrained", pretrained)
    if not isinstance(model_name, str):
        raise TypeError(f"model_name={model_name!r} must be a name that timm.list_models() lists")
    if not timm.is_model(model_name):
        raise ValueError(
            f"model_name={model_name!r} is no model of timm {timm.__version__}; "
            f"timm.list_models() lists them.{did_you_mean(model_name, timm.list_models())}"
        )
    try:
        module = timm.create_model(
            model_name, pretrained=bool(pretrained), num_classes=num_classes, **options
        )
    except TypeError as error:
        raise TypeError(
            f"options={options} are not all taken by timm's {model_name}: {error}"
        ) from error
    return ComposerClassifier(module, num_classes=num_classes)
