"""Activations by name, so that a checkpoint can keep which one it was."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from composer.utils.imports import MissingConditionalImportError
from composer.utils.suggestions import did_you_mean

__all__ = ["Activation", "activation_called", "name_of_activation", "same_activation"]

Activation = Callable[[torch.Tensor], torch.Tensor]

#: Those of torch that work on every element by itself and have no parameters.
_OF_TORCH: dict[str, Callable[..., Any]] = {
    "celu": F.celu,
    "elu": F.elu,
    "gelu": F.gelu,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": F.hardtanh,
    "leaky_relu": F.leaky_relu,
    "logsigmoid": F.logsigmoid,
    "mish": F.mish,
    "relu": F.relu,
    "relu6": F.relu6,
    "selu": F.selu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "tanh": torch.tanh,
}

# The same functions by other doors, and their modules with default arguments.
_ALSO: dict[Any, str] = {F.sigmoid: "sigmoid", F.tanh: "tanh"}
_MODULES = {
    "CELU": "celu",
    "ELU": "elu",
    "GELU": "gelu",
    "Hardsigmoid": "hardsigmoid",
    "Hardswish": "hardswish",
    "Hardtanh": "hardtanh",
    "LeakyReLU": "leaky_relu",
    "LogSigmoid": "logsigmoid",
    "Mish": "mish",
    "ReLU": "relu",
    "ReLU6": "relu6",
    "SELU": "selu",
    "Sigmoid": "sigmoid",
    "SiLU": "silu",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Tanh": "tanh",
}


def activation_called(name: str) -> Activation:
    """Find an activation by its name.

    Args:
        name: Such as ``"gelu"``, ``"relu"`` or ``"silu"``, of torch; or a name that transformers
            has, such as ``"gelu_new"``.

    Returns:
        The activation.

    Raises:
        MissingConditionalImportError: If torch has none of that name and transformers is not
            installed.
        ValueError: If neither has it.

    Example:
        >>> activation_called("relu")(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    found = _OF_TORCH.get(name)
    if found is not None:
        return found
    try:
        from transformers.activations import ACT2FN
    except ImportError as error:
        raise MissingConditionalImportError(
            "nlp", "transformers", distribution="composer-algorithms"
        ) from error
    if name not in ACT2FN:
        accepted = sorted({*_OF_TORCH, *ACT2FN})
        raise ValueError(
            f"act_fn={name!r} is no activation of torch or transformers; accepted are "
            f"{', '.join(accepted)}.{did_you_mean(name, accepted)}"
        )
    activation: Activation = ACT2FN[name]
    return activation


def name_of_activation(act_fn: Any) -> str:
    """Find the name of an activation, by which a checkpoint keeps it.

    Args:
        act_fn: A name, a function of torch, or a module of torch with default arguments.

    Returns:
        The name.

    Raises:
        TypeError: If it is something else.
        ValueError: If there is no such name.

    Example:
        >>> name_of_activation(nn.SiLU()), name_of_activation(F.relu)
        ('silu', 'relu')
    """
    if isinstance(act_fn, str):
        activation_called(act_fn)
        return act_fn
    for name, function in _OF_TORCH.items():
        if act_fn is function:
            return name
    if inspect.isroutine(act_fn) and act_fn in _ALSO:
        return _ALSO[act_fn]
    kind = type(act_fn)
    name = _MODULES.get(kind.__name__, "")
    if name and kind is getattr(nn, kind.__name__) and _settings(act_fn) == _settings(kind()):
        return name
    if name:
        raise TypeError(
            f"act_fn={act_fn!r} has settings of its own, which a checkpoint could not keep; give "
            f"the name of an activation, or call apply_gated_linear_units on the model before it "
            f"goes to the trainer"
        )
    raise TypeError(
        f"act_fn={act_fn!r} is nothing that a checkpoint could keep: give a name, such as 'gelu', "
        f"a function of torch.nn.functional, or a module of torch.nn with default arguments; or "
        f"call apply_gated_linear_units on the model before it goes to the trainer"
    )


def same_activation(one: Any, other: Any) -> bool:
    """Tell whether two activations compute the same, as far as can be seen.

    Args:
        one: The one.
        other: The other.

    Returns:
        True if they are the same function, or modules of one class with the same settings.

    Example:
        >>> same_activation(nn.GELU(), nn.GELU()), same_activation(nn.GELU(), nn.GELU("tanh"))
        (True, False)
    """
    if one is other:
        return True
    if not (isinstance(one, nn.Module) and isinstance(other, nn.Module)):
        return False
    return type(one) is type(other) and _settings(one) == _settings(other)


def _settings(module: nn.Module) -> dict[str, Any]:
    """What distinguishes modules of one class; their functions are no settings of transformers."""
    if any(True for _ in module.parameters()) or any(True for _ in module.buffers()):
        return {"": id(module)}
    shown = {k: v for k, v in vars(module).items() if not k.startswith("_") and k != "training"}
    # Working in place changes nothing of the result; bound methods are another object each time.
    shown.pop("inplace", None)
    return {k: getattr(v, "__func__", v) for k, v in shown.items()}
