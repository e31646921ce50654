"""Was that an out-of-memory error?

The class of the exception decides first. Allocators that raise a plain ``RuntimeError`` are known
by their wording; errors that only mention memory are none of them.
"""

from __future__ import annotations

import re

import torch

__all__ = ["is_out_of_memory"]

_CLASSES: tuple[type[BaseException], ...] = (torch.OutOfMemoryError, MemoryError)

# One pattern per source, in lower case; each names an allocation that failed, on that device.
_WORDINGS = re.compile(
    "|".join(
        (
            r"cuda out of memory",
            r"cuda error: out of memory",
            r"cuda error: cuda_error_out_of_memory",
            r"cuda failure \d* ?'?out of memory",
            r"hip out of memory",
            r"hip error: out of memory",
            r"hiperroroutofmemory",
            r"xpu out of memory",
            r"out_of_device_memory",
            r"out_of_host_memory",
            r"mps backend out of memory",
            r"mps: .*invalid buffer size",
            r"^invalid buffer size",
            r"cudnn_status_alloc_failed",
            r"cudnn_status_internal_error_(?:device|host)_allocation_failed",
            # cuDNN's way to say that no plan fits into the workspace that is left.
            r"cudnn_status_not_supported. this error may appear if you passed in a non-contiguous",
            r"cublas_status_alloc_failed",
            r"cusolver_status_alloc_failed",
            r"cusparse_status_alloc_failed",
            r"cufft_alloc_failed",
            r"defaultcpuallocator: can't allocate memory",
            r"defaultcpuallocator: not enough memory",
        )
    )
)


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an exception means that a device, or the machine, had no memory left.

    Args:
        error: The exception.

    Returns:
        True if a smaller batch may help.

    Example:
        >>> is_out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"))
        True
        >>> is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))
        False
    """
    if isinstance(error, _CLASSES):
        return True
    if not isinstance(error, RuntimeError):
        return False
    return _WORDINGS.search(str(error).lower()) is not None
