"""Questions about a model as a torch module, and a block in evaluation mode."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import torch

__all__ = [
    "KeptBuffers",
    "is_model_ddp",
    "is_model_fsdp",
    "is_model_fsdp2",
    "model_eval_mode",
    "unwrapped_model",
    "unwrapped_names",
]


@contextlib.contextmanager
def model_eval_mode(model: torch.nn.Module) -> Iterator[None]:
    """Run a block with a model in evaluation mode, and put the mode of every part back afterwards.

    Args:
        model: The model. Parts that were in evaluation mode before stay in it.

    Yields:
        Nothing.

    Example:
        >>> model = torch.nn.Dropout()
        >>> with model_eval_mode(model):
        ...     model.training
        False
        >>> model.training
        True
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


class KeptBuffers:
    """A copy of a model's buffers, to undo what a forward pass did to them.

    Args:
        model: The model.

    Example:
        >>> model = torch.nn.BatchNorm1d(1)
        >>> kept = KeptBuffers(model)
        >>> _ = model(torch.ones(2, 1))
        >>> kept.put_back()
        >>> model.num_batches_tracked
        tensor(0)
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._kept: list[tuple[torch.nn.Module, str, torch.Tensor]] = []
        self.keep()

    def keep(self) -> None:
        """Copy the buffers as they are now, into the memory of the former copy where it fits."""
        # By name: a forward pass may put a new tensor in a buffer's place.
        here = [
            (module, name, buffer)
            for module in self._model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        same = [(id(m), n, b.shape, b.dtype, b.device) for m, n, b in here] == [
            (id(m), n, b.shape, b.dtype, b.device) for m, n, b in self._kept
        ]
        if not same:
            self._kept = [(module, name, buffer.detach().clone()) for module, name, buffer in here]
            return
        with torch.no_grad():
            for (_, _, buffer), (_, _, kept) in zip(here, self._kept, strict=True):
                kept.copy_(buffer)

    def put_back(self) -> None:
        """Set the buffers to the copy."""
        with torch.no_grad():
            for module, name, kept in self._kept:
                buffer = module._buffers.get(name)
                if buffer is not None and buffer.shape == kept.shape:
                    buffer.copy_(kept)
                else:
                    module._buffers[name] = kept.clone()


def unwrapped_model(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model inside a data-parallel wrapper.

    Args:
        model: The model, wrapped or not.

    Returns:
        The wrapped model, or the model itself.

    Example:
        >>> model = torch.nn.Linear(1, 1)
        >>> unwrapped_model(model) is model
        True
    """
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        inner: torch.nn.Module = model.module
        return inner
    return model


def is_model_ddp(model: torch.nn.Module) -> bool:
    """Tell whether a model is wrapped in ``DistributedDataParallel``.

    Args:
        model: The model.

    Returns:
        True if it is.

    Example:
        >>> is_model_ddp(torch.nn.Linear(1, 1))
        False
    """
    return isinstance(model, torch.nn.parallel.DistributedDataParallel)


def is_model_fsdp(model: torch.nn.Module) -> bool:
    """Tell whether any part of a model is wrapped in the older, first kind of sharding.

    Args:
        model: The model.

    Returns:
        True if one is.

    Example:
        >>> is_model_fsdp(torch.nn.Linear(1, 1))
        False
    """
    # A model cannot be an instance of a class whose module was never imported, and importing it is
    # slow.
    module = sys.modules.get("torch.distributed.fsdp")
    return module is not None and any(
        isinstance(one, module.FullyShardedDataParallel) for one in model.modules()
    )


def is_model_fsdp2(model: torch.nn.Module) -> bool:
    """Tell whether any part of a model is sharded by ``fully_shard``.

    Args:
        model: The model.

    Returns:
        True if one is.

    Example:
        >>> is_model_fsdp2(torch.nn.Linear(1, 1))
        False
    """
    module = sys.modules.get("torch.distributed.fsdp")
    return module is not None and any(isinstance(one, module.FSDPModule) for one in model.modules())


# Wrappers that put a name of their own between a module and its parts: module, class, that name.
_WRAPPERS = (
    ("torch._dynamo.eval_frame", "OptimizedModule", "_orig_mod"),
    ("torch.nn.parallel.distributed", "DistributedDataParallel", "module"),
    (
        "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
        "ActivationWrapper",
        "_checkpoint_wrapped_module",
    ),
)


def unwrapped_names(model: torch.nn.Module) -> Callable[[str], str]:
    """Return a function that takes what wrappers add out of the names of a model's parts.

    Compiling, data parallelism and activation checkpointing wrap modules, also inside a model, and
    put a prefix into the names of everything below.

    Args:
        model: The model, whose modules are looked at now.

    Returns:
        From the name of a parameter or buffer to the one that it has without wrappers.

    Example:
        >>> model = torch.nn.Sequential(torch.compile(torch.nn.Linear(1, 1)))
        >>> list(model.state_dict())
        ['0._orig_mod.weight', '0._orig_mod.bias']
        >>> [unwrapped_names(model)(name) for name in model.state_dict()]
        ['0.weight', '0.bias']
    """
    kinds = []
    for where, kind, inner in _WRAPPERS:
        module = sys.modules.get(where)  # what was never imported wraps nothing
        if module is not None:
            kinds.append((getattr(module, kind), inner))
    found = [
        (f"{name}.{inner}." if name else f"{inner}.", len(inner) + 1)
        for name, part in model.named_modules()
        for kind, inner in kinds
        if isinstance(part, kind)
    ]
    # The deepest first: what is above stays as it is until its turn.
    found.sort(key=lambda prefix: -len(prefix[0]))

    def plain(name: str) -> str:
        for prefix, added in found:
            if name.startswith(prefix):
                name = prefix[:-added] + name[len(prefix) :]
        return name

    return plain
