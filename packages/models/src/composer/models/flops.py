"""How large a model is and how much it computes.

Operations are counted by torch's own counter, which watches what is called: a multiplication and an
addition are two, and only matrix products, convolutions and attention count, in which nearly all
the time goes. The counter works on tensors without data (the ``meta`` device), so a model need not
fit into memory to be counted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from composer.core.model import ComposerModel

__all__ = ["count_flops", "num_parameters"]


def num_parameters(model: torch.nn.Module, trainable_only: bool = False) -> int:
    """Count the numbers that a model learns; a parameter used in two places counts once.

    Args:
        model: The model.
        trainable_only: Whether frozen parameters are left out.

    Returns:
        The number of elements of all parameters.

    Example:
        >>> num_parameters(torch.nn.Linear(3, 2))
        8
    """
    return sum(
        parameter.numel()
        for parameter in model.parameters()
        if parameter.requires_grad or not trainable_only
    )


def count_flops(
    model: torch.nn.Module,
    batch: Any,
    backward: bool = False,
    *,
    forward: Callable[[Any, Any], Any] | None = None,
) -> int:
    """Count the floating-point operations of one call, without leaving a trace in the model.

    Training mode, gradients, buffers (the running averages of batch normalisation, say) and the
    generators of torch are as before afterwards. The count is of evaluation mode; with ``backward``
    it is of training mode, where the loss is computed and differentiated.

    Args:
        model: A :class:`ComposerModel`, or a module that is called with the batch.
        batch: A batch, on the model's device.
        backward: Whether the backward pass is counted too; the loss is that of the model, or the
            sum of the outputs of a module that has none.
        forward: Called with model and batch in place of the model itself.

    Returns:
        The number of operations.

    Example:
        >>> linear = torch.nn.Linear(3, 2)  # (N, 3) times (3, 2)
        >>> count_flops(linear, torch.zeros(5, 3)) == 2 * 5 * 3 * 2
        True
        >>> inputs = torch.zeros(5, 3, requires_grad=True)
        >>> count_flops(linear, inputs, backward=True) == 3 * (2 * 5 * 3 * 2)
        True
    """
    counter = FlopCounterMode(display=False)
    call = (lambda model, batch: model(batch)) if forward is None else forward
    # The fused kernels of attention are not all known to the counter, and in the backward pass they
    # compute scores again; the plain one is matrix products, each once.
    plain_attention = sdpa_kernel(SDPBackend.MATH)
    with _untouched(model), torch.set_grad_enabled(backward), plain_attention, counter:
        model.train(backward)
        outputs = call(model, batch)
        if backward:
            loss = model.loss(outputs, batch) if isinstance(model, ComposerModel) else outputs
            # `grad` and not `backward`: the gradients that the model holds stay as they are.
            wanted = [p for p in model.parameters() if p.requires_grad]
            wanted += [t for t in _tensors(batch) if t.requires_grad]
            torch.autograd.grad(_total(loss), wanted, allow_unused=True)
    return int(counter.get_total_flops())


def _total(loss: Any) -> torch.Tensor:
    if isinstance(loss, Mapping) and "total" in loss:
        loss = loss["total"]
    return torch.stack([part.sum() for part in _tensors(loss) if part.requires_grad]).sum()


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in _tensors(part)]
    return []


@contextlib.contextmanager
def _untouched(model: torch.nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    buffers = [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    devices = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        with torch.no_grad():
            for module, name, buffer, before in buffers:
                module._buffers[name] = buffer.copy_(before)
