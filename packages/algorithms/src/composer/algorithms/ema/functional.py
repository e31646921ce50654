"""Exponential moving averages of weights."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch

from composer.algorithms._averages import WeightSet
from composer.utils.checks import check_number

__all__ = [
    "EMAParameters",
    "compute_ema",
    "pack",
    "put_training_weights_back",
    "unpack",
]

#: Whether the average is in the model -> what the other weights are called in a checkpoint.
_NAMES = {True: "training_weights", False: "averaged_weights"}


class EMAParameters(WeightSet):
    """The weights of an average: the trainable parameters and all buffers, by name.

    Args:
        model: The model to copy from; ``None`` for an empty set, to be filled from a checkpoint.

    Example:
        >>> weights = EMAParameters(torch.nn.Linear(1, 1))
        >>> [name for name, _ in weights.named_parameters()]
        ['weight', 'bias']
    """

    def __init__(self, model: torch.nn.Module | None) -> None:
        super().__init__(model)

    def transfer_ema_params(self, model: torch.nn.Module) -> None:
        """Copy these weights into a model.

        Args:
            model: The model.

        Raises:
            ValueError: If the model lacks one of the names.

        Example:
            >>> model, twin = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
            >>> EMAParameters(model).transfer_ema_params(twin)
            >>> torch.equal(model.weight, twin.weight)
            True
        """
        self.transfer_params(model)


def compute_ema(
    model: torch.nn.Module,
    ema_model: torch.nn.Module | EMAParameters,
    smoothing: float = 0.99,
) -> None:
    """Move an average of a model's weights towards the model, in place.

    Args:
        model: The model that is being trained.
        ema_model: The average: trainable parameters and buffers become ``smoothing`` times
            themselves plus ``1 - smoothing`` times the model's; integer buffers are copied.
        smoothing: The share of the old average that stays.

    Raises:
        ValueError: If ``smoothing`` is not between 0 and 1, or the model lacks a name.

    Example:
        >>> import copy
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> average = copy.deepcopy(model)
        >>> _ = model.weight.data.add_(1.0)
        >>> compute_ema(model, average, smoothing=0.9)
        >>> round(float((model.weight - average.weight).detach()), 4)
        0.9
    """
    check_number("smoothing", smoothing, low=0.0, high=1.0)
    if isinstance(ema_model, EMAParameters):
        ema_model.update(model, smoothing)
        return
    WeightSet.inside(ema_model).update(model, smoothing)


def pack(weights: EMAParameters, started: bool, average_in_model: bool) -> dict[str, Any]:
    """Turn the state of an average into saved form, with a name that says which weights these are.

    Args:
        weights: The weights that are not in the model.
        started: Whether there is an average.
        average_in_model: Whether it is in the model, and ``weights`` are those being trained.

    Returns:
        The saved form.

    Example:
        >>> list(pack(EMAParameters(None), started=True, average_in_model=True))
        ['ema_started', 'ema_weights_active', 'training_weights']
    """
    state: dict[str, Any] = {"ema_started": started, "ema_weights_active": average_in_model}
    if started:
        state[_NAMES[average_in_model]] = weights.state_dict()
    return state


def unpack(state: Mapping[str, Any]) -> tuple[EMAParameters, bool, bool]:
    """Read what :func:`pack` returned, or what Composer 0.32 wrote.

    Args:
        state: The saved form.

    Returns:
        What :func:`pack` takes.

    Raises:
        KeyError: If the weights are missing.

    Example:
        >>> unpack(pack(EMAParameters(None), started=False, average_in_model=False))[1:]
        (False, False)
    """
    weights, started = EMAParameters(None), bool(state["ema_started"])
    average_in_model = started and bool(state["ema_weights_active"])
    if started:
        name = _NAMES[average_in_model]
        # 0.32 had one name for both.
        weights.load_state_dict(state[name if name in state else "ema_model"])
    return weights, started, average_in_model


def put_training_weights_back(saved: Mapping[str, Any], model: torch.nn.Module) -> None:
    """Put the weights being trained into a model that was loaded with the average.

    Args:
        saved: What :func:`pack` returned; nothing is done unless the average was in the model.
        model: The model.

    Raises:
        ValueError: If the model lacks some of the weights.

    Example:
        >>> put_training_weights_back(pack(EMAParameters(None), False, False), torch.nn.ReLU())
    """
    weights, _, average_in_model = unpack(saved)
    if not average_in_model:
        return
    weights.transfer_ema_params(model)
    warnings.warn(
        "the checkpoint's model is the average that EMA kept; this run leaves EMA out and goes on "
        "from the weights that were being trained, to which the optimizer's state belongs. To "
        "start from the average, pass load_weights_only=True",
        stacklevel=3,
    )
