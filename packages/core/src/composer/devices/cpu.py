"""The central processor, which every machine has."""

from __future__ import annotations

from typing import ClassVar

import torch

from composer.devices.base import Device, TModule

__all__ = ["DeviceCPU"]


class DeviceCPU(Device):
    """Keeps everything in main memory; ranks talk through gloo.

    Example:
        >>> DeviceCPU().name
        'cpu'
    """

    name: ClassVar[str] = "cpu"
    dist_backend: ClassVar[str] = "gloo"
    is_host: ClassVar[bool] = True

    def module_to_device(self, module: TModule) -> TModule:
        """Move a module to main memory.

        Args:
            module: The module.

        Returns:
            The module.

        Example:
            >>> DeviceCPU().module_to_device(torch.nn.Linear(1, 1)).weight.is_cpu
            True
        """
        return module.cpu()

    def tensor_to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """Move a tensor to main memory.

        Args:
            tensor: The tensor.

        Returns:
            The tensor; the same object if it is there already.

        Example:
            >>> x = torch.ones(1)
            >>> DeviceCPU().tensor_to_device(x) is x
            True
        """
        return tensor if tensor.is_cpu else tensor.cpu()
