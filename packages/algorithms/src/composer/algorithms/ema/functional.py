"""Exponential moving averages of weights."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from composer.utils.checks import check_number
from composer.utils.modules import unwrapped_model

__all__ = [
    "EMAParameters",
    "compute_ema",
    "pack",
    "put_training_weights_back",
    "unpack",
]

#: What torch.compile puts into the names of a compiled module's members.
_COMPILED = "_orig_mod."
#: Whether the average is in the model -> what the other weights are called in a checkpoint.
_NAMES = {True: "training_weights", False: "averaged_weights"}


class _Place:
    """Where a module keeps one of its tensors."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: Any, name: str) -> None:
        self.owner = owner
        self.name = name

    @property
    def tensor(self) -> torch.Tensor:
        """The tensor that is there now."""
        tensor: torch.Tensor = self.owner[self.name]
        return tensor


#: Where an average is stored, its name there, and where the model has its counterpart.
_Pair = tuple[dict[str, torch.Tensor], str, _Place]


class EMAParameters:
    """A second set of a model's weights: the trainable parameters and all buffers, by name.

    Args:
        model: The model to copy from; ``None`` for an empty set, to be filled from a checkpoint.

    Example:
        >>> weights = EMAParameters(torch.nn.Linear(1, 1))
        >>> [name for name, _ in weights.named_parameters()]
        ['weight', 'bias']
    """

    named_parameters_dict: dict[str, torch.Tensor]
    named_buffers_dict: dict[str, torch.Tensor]
    # The model of the last update and where its members are; looking them up costs more than the
    # arithmetic. Places and not tensors are kept, because modules exchange their tensors.
    _places: tuple[weakref.ref[torch.nn.Module], list[_Pair], list[_Pair]] | None

    def __init__(self, model: torch.nn.Module | None) -> None:
        self._places = None
        parameters, buffers = ({}, {}) if model is None else _members(model)
        self.named_parameters_dict = {
            name: place.tensor.detach().clone()
            for name, place in parameters.items()
            if place.tensor.requires_grad
        }
        self.named_buffers_dict = {
            name: place.tensor.detach().clone() for name, place in buffers.items()
        }

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_places": None}

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Go through the parameters.

        Yields:
            Name and tensor.

        Example:
            >>> next(iter(EMAParameters(torch.nn.Linear(1, 1)).named_parameters()))[0]
            'weight'
        """
        yield from self.named_parameters_dict.items()

    def named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Go through the buffers.

        Yields:
            Name and tensor.

        Example:
            >>> [name for name, _ in EMAParameters(torch.nn.BatchNorm1d(1)).named_buffers()]
            ['running_mean', 'running_var', 'num_batches_tracked']
        """
        yield from self.named_buffers_dict.items()

    @torch.no_grad()
    def swap_params(self, model: torch.nn.Module) -> None:
        """Exchange these weights with a model's, without copying.

        Args:
            model: The model. Its parameters stay the same objects, so optimizers go on with them.

        Raises:
            ValueError: If the model lacks one of the names.

        Example:
            >>> model = torch.nn.Linear(1, 1, bias=False)
            >>> weights = EMAParameters(model)
            >>> _ = model.weight.data.fill_(5.0)
            >>> weights.swap_params(model)
            >>> weights.named_parameters_dict["weight"].item()
            5.0
        """
        # All are looked up first: what does not fit must not leave the model half exchanged.
        for stored, name, place in list(self._pairs(model)):
            live = place.tensor
            stored[name], live.data = live.data, stored[name]

    @torch.no_grad()
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
        for stored, name, place in self._pairs(model):
            place.tensor.copy_(stored[name])

    def move_params_to_device(self, destination_model: torch.nn.Module) -> None:
        """Move every weight to where the model has it.

        Args:
            destination_model: The model.

        Raises:
            ValueError: If the model lacks one of the names.

        Example:
            >>> model = torch.nn.Linear(1, 1)
            >>> EMAParameters(model).move_params_to_device(model)
        """
        self._places = None
        for stored, name, place in self._pairs(destination_model):
            stored[name] = stored[name].to(place.tensor.device)

    @torch.no_grad()
    def update(self, model: torch.nn.Module, smoothing: float) -> None:
        """Move these weights towards a model's.

        Args:
            model: The model.
            smoothing: The share of the old average that stays. Integer buffers, such as counters,
                are copied.

        Raises:
            ValueError: If the model lacks one of the names.

        Example:
            >>> model = torch.nn.Linear(1, 1, bias=False)
            >>> _ = model.weight.data.fill_(0.0)
            >>> average = EMAParameters(model)
            >>> _ = model.weight.data.fill_(1.0)
            >>> average.update(model, smoothing=0.75)
            >>> average.named_parameters_dict["weight"].item()
            0.25
        """
        if self._places is None or self._places[0]() is not model:
            pairs = list(self._pairs(model))
            blended = [pair for pair in pairs if _can_be_averaged(pair[2].tensor)]
            copied = [pair for pair in pairs if not _can_be_averaged(pair[2].tensor)]
            self._places = (weakref.ref(model), blended, copied)
        _, blended, copied = self._places
        if blended:
            averages = [stored[name] for stored, name, _ in blended]
            lives = [place.owner[place.name] for _, _, place in blended]
            torch._foreach_lerp_(averages, lives, 1.0 - smoothing)
        for stored, name, place in copied:
            stored[name].copy_(place.tensor)

    def state_dict(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return the weights.

        Returns:
            ``named_parameters_dict`` and ``named_buffers_dict``.

        Example:
            >>> list(EMAParameters(None).state_dict())
            ['named_parameters_dict', 'named_buffers_dict']
        """
        return {
            "named_parameters_dict": dict(self.named_parameters_dict),
            "named_buffers_dict": dict(self.named_buffers_dict),
        }

    def load_state_dict(self, state: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Take weights over.

        Args:
            state: What :meth:`state_dict` returned.

        Example:
            >>> weights = EMAParameters(None)
            >>> weights.load_state_dict(EMAParameters(torch.nn.Linear(1, 1)).state_dict())
            >>> list(weights.named_parameters_dict)
            ['weight', 'bias']
        """
        self._places = None
        self.named_parameters_dict = {
            name: value.detach().clone() for name, value in state["named_parameters_dict"].items()
        }
        self.named_buffers_dict = {
            name: value.detach().clone() for name, value in state["named_buffers_dict"].items()
        }

    def _pairs(self, model: torch.nn.Module) -> Iterator[_Pair]:
        parameters, buffers = _members(model)
        for stored, members in (
            (self.named_parameters_dict, parameters),
            (self.named_buffers_dict, buffers),
        ):
            if missing := [name for name in stored if name not in members]:
                raise ValueError(
                    f"these weights are averaged and the model does not have them: {missing}; it "
                    f"was changed after averaging started, or the checkpoint is another model's"
                )
            for name in stored:
                yield stored, name, members[name]


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
    average = EMAParameters(None)
    parameters, buffers = _members(ema_model)
    average.named_parameters_dict = {
        name: place.tensor.data for name, place in parameters.items() if place.tensor.requires_grad
    }
    average.named_buffers_dict = {name: place.tensor for name, place in buffers.items()}
    average.update(model, smoothing)


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


def _can_be_averaged(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _members(model: torch.nn.Module) -> tuple[dict[str, _Place], dict[str, _Place]]:
    """Places of parameters and buffers, by the names they have without wrappers."""
    parameters: dict[str, _Place] = {}
    buffers: dict[str, _Place] = {}
    seen: set[int] = set()
    for prefix, module in unwrapped_model(model).named_modules():
        for owner, found in ((module._parameters, parameters), (module._buffers, buffers)):
            for name, tensor in owner.items():
                # A tensor that is used twice has the name of its first place.
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    full_name = f"{prefix}.{name}" if prefix else name
                    found[full_name.replace(_COMPILED, "")] = _Place(owner, name)
    return parameters, buffers
