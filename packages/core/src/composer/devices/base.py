"""What the library asks of a device."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import torch
from torch.nn.utils.rnn import PackedSequence

from composer.utils.iteration import rebuild_mapping, rebuild_sequence

__all__ = ["Device"]

TModule = TypeVar("TModule", bound=torch.nn.Module)
TOptimizer = TypeVar("TOptimizer", bound=torch.optim.Optimizer)


@runtime_checkable
class _Movable(Protocol):
    """A batch object that knows how to move itself, as tensors do."""

    def to(self, device: torch.device) -> Any: ...


class Device(ABC):
    """Moves modules, tensors, batches and optimizers.

    A device is a plugin: a subclass with a name, the backend that its ranks talk through, the torch
    device, and one method. Everything else follows from it.

    Example:
        >>> from composer.devices import DeviceCPU
        >>> isinstance(DeviceCPU(), Device)
        True
    """

    #: The name that users write, such as ``"gpu"``.
    name: ClassVar[str]
    #: The backend of the process group; empty if the device cannot work with others.
    dist_backend: ClassVar[str] = ""
    #: The precision of a run that names none.
    default_precision: ClassVar[str] = "fp32"
    #: The precisions that work.
    precisions: ClassVar[frozenset[str]] = frozenset({"fp32", "amp_fp16", "amp_bf16"})
    #: Whether batches are there already when the loader yields them.
    is_host: ClassVar[bool] = False
    #: Whether metrics are kept on the host, because the device lacks operations they use.
    metrics_on_host: ClassVar[bool] = False

    @abstractmethod
    def module_to_device(self, module: TModule) -> TModule:
        """Move a module.

        Args:
            module: The module.

        Returns:
            The module on this device.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> DeviceCPU().module_to_device(torch.nn.Linear(1, 1)).weight.device
            device(type='cpu')
        """

    @abstractmethod
    def tensor_to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """Move a tensor.

        Args:
            tensor: The tensor.

        Returns:
            The tensor on this device; the same object if it is there already.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> DeviceCPU().tensor_to_device(torch.ones(1)).device
            device(type='cpu')
        """

    @functools.cached_property
    def torch_device(self) -> torch.device:
        """The torch device that tensors are moved to."""
        return self.tensor_to_device(torch.empty(0)).device

    @property
    def torch_type(self) -> str:
        """Type of the torch device, such as ``"cpu"`` or ``"cuda"``."""
        return self.torch_device.type

    def batch_to_device(self, batch: Any) -> Any:
        """Move every tensor of a batch.

        Sequences, named tuples, mappings and dataclasses keep their types; an object with a ``to``
        method moves itself; anything else stays as it is.

        Args:
            batch: The batch.

        Returns:
            The batch on this device; the same object if all of it is there already.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> batch = {"x": torch.ones(1), "name": "a"}
            >>> DeviceCPU().batch_to_device(batch) is batch
            True
        """
        kind = type(batch)
        # Exact types first: nearly every batch is made of these, and instance checks on tensors
        # are slow.
        if kind is torch.Tensor:
            return self.tensor_to_device(batch)
        if kind is tuple or kind is list:
            items = self._move_items(batch)
            return batch if items is None else kind(items)
        if kind is dict:
            items = self._move_items(batch.values())
            return batch if items is None else dict(zip(batch, items, strict=True))
        return self._move_other(batch)

    def _move_items(self, items: Collection[Any]) -> list[Any] | None:
        """Move the items of a collection; ``None`` if all of them are there already."""
        moved: list[Any] | None = None
        for position, item in enumerate(items):
            if type(item) is torch.Tensor:
                new = self.tensor_to_device(item)
            else:
                new = self.batch_to_device(item)
            if moved is not None:
                moved.append(new)
            elif new is not item:
                moved = [*itertools.islice(items, position), new]
        return moved

    def _move_other(self, batch: Any) -> Any:
        kind = type(batch)
        if isinstance(batch, torch.Tensor):
            return self.tensor_to_device(batch)
        if isinstance(batch, PackedSequence):
            # A named tuple that must not be taken apart: it keeps one of its tensors on the CPU.
            data = self.tensor_to_device(batch.data)
            return batch if data is batch.data else batch.to(data.device)  # type: ignore[arg-type]
        if isinstance(batch, (tuple, list)):
            items = self._move_items(batch)
            return batch if items is None else rebuild_sequence(batch, items)
        if isinstance(batch, Mapping):
            items = self._move_items(batch.values())
            if items is None:
                return batch
            return rebuild_mapping(batch, dict(zip(batch, items, strict=True)))
        if kind.__module__ == "builtins":
            return batch
        if dataclasses.is_dataclass(batch) and not isinstance(batch, (type, _Movable)):
            moved = {}
            for field in dataclasses.fields(batch):
                old = getattr(batch, field.name)
                new = self.batch_to_device(old)
                if new is not old:
                    moved[field.name] = new
            return dataclasses.replace(batch, **moved) if moved else batch
        if isinstance(batch, _Movable) and not isinstance(batch, type):
            return batch.to(self.tensor_to_device(torch.empty(0)).device)
        return batch

    def release_memory(self) -> None:  # noqa: B027 - most devices keep nothing back
        """Give memory that is kept for later use back, after a failed allocation.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> DeviceCPU().release_memory()
        """

    def optimizer_to_device(self, optimizer: TOptimizer) -> TOptimizer:
        """Move the state of an optimizer.

        Args:
            optimizer: The optimizer. Its state is changed in place.

        Returns:
            The optimizer.

        Example:
            >>> from composer.devices import DeviceCPU
            >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
            >>> DeviceCPU().optimizer_to_device(optimizer) is optimizer
            True
        """
        for state in optimizer.state.values():
            for name, value in state.items():
                if isinstance(value, torch.Tensor):
                    state[name] = self.tensor_to_device(value)
        return optimizer
