"""Wraps a model for data parallelism: every rank holds all of it and sees its own batches."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from composer.utils import dist

__all__ = ["prepare_ddp_module"]


def prepare_ddp_module(
    module: torch.nn.Module, find_unused_parameters: bool = False
) -> torch.nn.Module:
    """Wrap a module so that its gradients are averaged over ranks.

    Args:
        module: The module, on its device; a module without trainable parameters is returned as it
            is.
        find_unused_parameters: Whether parameters may have no gradient in a batch.

    Returns:
        The wrapper.

    Raises:
        RuntimeError: If there is no process group.

    Example:
        >>> prepare_ddp_module(torch.nn.Identity())
        Identity()
    """
    if not any(parameter.requires_grad for parameter in module.parameters()):
        return module
    if not dist.is_initialized():
        raise RuntimeError(
            f"wrapping {type(module).__name__} for data parallelism needs a process group; call "
            f"composer.utils.dist.initialize_dist(device) on every rank, or start the script with "
            f"torchrun"
        )
    return DistributedDataParallel(module, find_unused_parameters=find_unused_parameters)
