"""Apple's graphics processors."""

from __future__ import annotations

from typing import ClassVar

import torch

from composer.devices.base import Device, TModule

__all__ = ["DeviceMPS"]


class DeviceMPS(Device):
    """The GPU of an Apple machine, for a single process.

    Raises:
        RuntimeError: If there is none that torch can use.

    Example:
        >>> DeviceMPS().name if torch.backends.mps.is_available() else "mps"
        'mps'
    """

    name: ClassVar[str] = "mps"
    dist_backend: ClassVar[str] = ""
    metrics_on_host: ClassVar[bool] = True

    def __init__(self) -> None:
        if not torch.backends.mps.is_available():
            raise RuntimeError(
                'device="mps" needs an Apple GPU and a torch built for it, and '
                "torch.backends.mps.is_available() is false."
            )
        self._device = torch.device("mps")

    def module_to_device(self, module: TModule) -> TModule:
        """Move a module to the GPU.

        Args:
            module: The module.

        Returns:
            The module.

        Example:
            >>> if torch.backends.mps.is_available():
            ...     assert DeviceMPS().module_to_device(torch.nn.Linear(1, 1)).weight.is_mps
        """
        return module.to(self._device)

    def tensor_to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """Move a tensor to the GPU.

        Args:
            tensor: The tensor.

        Returns:
            The tensor; the same object if it is there already.

        Example:
            >>> if torch.backends.mps.is_available():
            ...     assert DeviceMPS().tensor_to_device(torch.ones(1)).is_mps
        """
        return tensor.to(self._device)

    def release_memory(self) -> None:
        """Give what the allocator keeps for later use back to the GPU.

        Example:
            >>> if torch.backends.mps.is_available():
            ...     DeviceMPS().release_memory()
        """
        torch.mps.empty_cache()
