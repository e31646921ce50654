"""A second set of a model's weights beside those being trained: what averages are kept in."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from composer.utils.modules import unwrapped_model

__all__ = ["WeightSet"]

#: What torch.compile puts into the names of a compiled module's members.
_COMPILED = "_orig_mod."


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


class WeightSet:
    """A second set of a model's weights: the trainable parameters and all buffers, by name.

    Args:
        model: The model to copy from; ``None`` for an empty set, to be filled from a checkpoint.
        buffers: Whether buffers belong to it.

    Example:
        >>> weights = WeightSet(torch.nn.Linear(1, 1))
        >>> [name for name, _ in weights.named_parameters()]
        ['weight', 'bias']
    """

    named_parameters_dict: dict[str, torch.Tensor]
    named_buffers_dict: dict[str, torch.Tensor]
    # The model of the last update and where its members are; looking them up costs more than the
    # arithmetic. Places and not tensors are kept, because modules exchange their tensors.
    _places: tuple[weakref.ref[torch.nn.Module], list[_Pair], list[_Pair]] | None

    def __init__(self, model: torch.nn.Module | None, *, buffers: bool = True) -> None:
        self._places = None
        parameters, others = ({}, {}) if model is None else _members(model)
        self.named_parameters_dict = {
            name: place.tensor.detach().clone()
            for name, place in parameters.items()
            if place.tensor.requires_grad
        }
        self.named_buffers_dict = {
            name: place.tensor.detach().clone() for name, place in others.items() if buffers
        }

    @classmethod
    def inside(cls, model: torch.nn.Module) -> WeightSet:
        """Take a model's own tensors, so that what is done to the set is done to the model.

        Args:
            model: The model.

        Returns:
            The set.

        Example:
            >>> model = torch.nn.Linear(1, 1, bias=False)
            >>> _ = WeightSet.inside(model).named_parameters_dict["weight"].fill_(3.0)
            >>> model.weight.item()
            3.0
        """
        made = cls(None)
        parameters, buffers = _members(model)
        made.named_parameters_dict = {
            name: place.tensor.data
            for name, place in parameters.items()
            if place.tensor.requires_grad
        }
        made.named_buffers_dict = {name: place.tensor for name, place in buffers.items()}
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_places": None}

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Go through the parameters.

        Yields:
            Name and tensor.

        Example:
            >>> next(iter(WeightSet(torch.nn.Linear(1, 1)).named_parameters()))[0]
            'weight'
        """
        yield from self.named_parameters_dict.items()

    def named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Go through the buffers.

        Yields:
            Name and tensor.

        Example:
            >>> [name for name, _ in WeightSet(torch.nn.BatchNorm1d(1)).named_buffers()]
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
            >>> weights = WeightSet(model)
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
    def transfer_params(self, model: torch.nn.Module) -> None:
        """Copy these weights into a model.

        Args:
            model: The model.

        Raises:
            ValueError: If the model lacks one of the names.

        Example:
            >>> model, twin = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
            >>> WeightSet(model).transfer_params(twin)
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
            >>> WeightSet(model).move_params_to_device(model)
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
            >>> average = WeightSet(model)
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
            >>> list(WeightSet(None).state_dict())
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
            >>> weights = WeightSet(None)
            >>> weights.load_state_dict(WeightSet(torch.nn.Linear(1, 1)).state_dict())
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
