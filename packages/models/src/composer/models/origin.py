"""Remembers how a model was built, so that a checkpoint says what it is a checkpoint of.

A checkpoint holds weights and no code. With the name of a registered factory and its plain
arguments beside them, the model can be built again without the script that trained it: to export
it, or to look at it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, ParamSpec, TypeVar

from composer.core import plugins
from composer.core.model import ComposerModel
from composer.core.persistence import to_plain

__all__ = ["build_from_origin", "remembers_origin"]

P = ParamSpec("P")
M = TypeVar("M", bound=ComposerModel)


def remembers_origin(
    name: str, *, forget: Collection[str] = ()
) -> Callable[[Callable[P, M]], Callable[P, M]]:
    """Decorate a factory so that what it returns has an ``origin``.

    A call with an argument that is no plain value (a module, say) leaves no origin, since it could
    not be repeated.

    Args:
        name: What the factory is registered as in the entry-point group ``composer.models``.
        forget: Arguments recorded as ``None``, such as where pretrained weights come from: the
            checkpoint has weights of its own.

    Returns:
        The decorator.

    Example:
        >>> from composer.models import ComposerClassifier
        >>> @remembers_origin("line", forget=["weights"])
        ... def line(width: int, weights: str | None = None):
        ...     return ComposerClassifier(torch.nn.Linear(1, width), num_classes=width)
        >>> import torch
        >>> line(3, weights="mine").origin
        {'name': 'line', 'arguments': {'width': 3, 'weights': None}}
    """

    def decorate(factory: Callable[P, M]) -> Callable[P, M]:
        signature = inspect.signature(factory)

        @functools.wraps(factory)
        def build(*args: P.args, **kwargs: P.kwargs) -> M:
            model = factory(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            try:
                plain = to_plain(_by_keyword(bound, forget), name)
            except TypeError:
                model.origin = None
            else:
                model.origin = {"name": name, "arguments": plain}
            return model

        return build

    return decorate


def _by_keyword(bound: inspect.BoundArguments, forget: Collection[str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for parameter in bound.signature.parameters.values():
        value = bound.arguments[parameter.name]
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments |= value
        elif parameter.kind is parameter.VAR_POSITIONAL:
            if value:
                raise TypeError(f"{parameter.name} has no name to be repeated by")
        else:
            arguments[parameter.name] = value
    return {key: None if key in forget else value for key, value in arguments.items()}


def build_from_origin(origin: Mapping[str, Any]) -> ComposerModel:
    """Build a model as it was built when its origin was recorded; its weights are fresh.

    Args:
        origin: ``name`` and ``arguments``.

    Returns:
        The model.

    Raises:
        PluginError: If nothing of that name is installed.
        TypeError: If the factory returns something else than a :class:`ComposerModel`.

    Example:
        >>> from composer.models import composer_resnet_cifar
        >>> origin = composer_resnet_cifar("resnet_8", num_classes=4).origin
        >>> build_from_origin(origin).num_classes
        4
    """
    model = plugins.resolve("composer.models", origin["name"], **origin["arguments"])
    if not isinstance(model, ComposerModel):
        raise TypeError(
            f"the model {origin['name']!r} is a {type(model).__name__}, no ComposerModel"
        )
    return model
