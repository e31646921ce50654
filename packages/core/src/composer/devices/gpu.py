"""NVIDIA and AMD graphics processors, through torch's CUDA interface."""

from __future__ import annotations

from typing import ClassVar

import torch

from composer.devices.base import Device, TModule
from composer.utils import dist

__all__ = ["DeviceGPU"]


class DeviceGPU(Device):
    """One GPU; ranks talk through NCCL.

    Building it makes the GPU torch's current device and sets whether matrix products and
    convolutions in single precision may use TF32, which is faster and rounds inputs to 10 bits.
    Copies do not block.

    Args:
        device_id: The number of the GPU; by default the local rank.
        allow_tf32: Allow TF32, for the whole process.

    Raises:
        ValueError: If there is no GPU, or none of that number.

    Example:
        >>> DeviceGPU().name if torch.cuda.is_available() else "gpu"
        'gpu'
    """

    name: ClassVar[str] = "gpu"
    dist_backend: ClassVar[str] = "nccl"
    default_precision: ClassVar[str] = "amp_fp16"

    def __init__(self, device_id: int | None = None, *, allow_tf32: bool = True) -> None:
        if not torch.cuda.is_available():
            raise ValueError(
                'device="gpu" needs a GPU that torch can use, and torch.cuda.is_available() is '
                "false."
            )
        number = dist.get_local_rank() if device_id is None else device_id
        count = torch.cuda.device_count()
        if not 0 <= number < count:
            raise ValueError(
                f"device_id={number} is out of range: this machine shows {count} GPU(s), numbered "
                "from 0."
            )
        self._device = torch.device("cuda", number)
        torch.cuda.set_device(self._device)
        torch.backends.cuda.matmul.allow_tf32 = allow_tf32
        torch.backends.cudnn.allow_tf32 = allow_tf32

    def module_to_device(self, module: TModule) -> TModule:
        """Move a module to the GPU.

        Args:
            module: The module.

        Returns:
            The module.

        Example:
            >>> if torch.cuda.is_available():
            ...     assert DeviceGPU().module_to_device(torch.nn.Linear(1, 1)).weight.is_cuda
        """
        return module.to(self._device)

    def tensor_to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """Move a tensor to the GPU without waiting for the copy.

        Args:
            tensor: The tensor.

        Returns:
            The tensor; the same object if it is there already.

        Example:
            >>> if torch.cuda.is_available():
            ...     assert DeviceGPU().tensor_to_device(torch.ones(1)).is_cuda
        """
        return tensor.to(self._device, non_blocking=True)

    def release_memory(self) -> None:
        """Give what the allocator keeps for later use back to the GPU.

        Example:
            >>> if torch.cuda.is_available():
            ...     DeviceGPU().release_memory()
        """
        torch.cuda.empty_cache()
