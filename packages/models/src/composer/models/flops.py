"""How large a model is and how much it computes.

Operations are counted by torch's own counter, which watches what is called: a multiplication and an
addition are two, and only matrix products, convolutions and attention count, in which nearly all
the time goes. The counter works on tensors without data (the ``meta`` device), so a model need not
fit into memory to be counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from composer.core.model import ComposerModel
from composer.utils.checks import check_bool

__all__ = ["count_flops", "num_parameters"]


def num_parameters(model: torch.nn.Module, trainable_only: bool = False) -> int:
    """Count the numbers that a model learns; a parameter used in two places counts once.

    Args:
        model: The model.
        trainable_only: Whether frozen parameters are left out.

    Returns:
        The number of elements of all parameters.

    Raises:
        TypeError: If ``model`` is no module.

    Example:
        >>> num_parameters(torch.nn.Linear(3, 2))
        8
    """
    _check_module(model)
    check_bool("trainable_only", trainable_only)
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

    Raises:
        TypeError: If ``model`` is no module.
        ValueError: If the backward pass is wanted and nothing requires a gradient.

    Example:
        >>> linear = torch.nn.Linear(3, 2)  # (N, 3) times (3, 2)
        >>> count_flops(linear, torch.zeros(5, 3)) == 2 * 5 * 3 * 2
        True
        >>> inputs = torch.zeros(5, 3, requires_grad=True)
        >>> count_flops(linear, inputs, backward=True) == 3 * (2 * 5 * 3 * 2)
        True
    """
    _check_module(model)
    check_bool("backward", backward)
    if forward is not None and not callable(forward):
        raise TypeError(f"forward={forward!r} must be a function of model and batch")
    counter = FlopCounterMode(display=False)
    # The fused kernels of attention are not all known to the counter, and in the backward pass they
    # compute scores again; the plain one is matrix products, each once.
    plain_attention = sdpa_kernel(SDPBackend.MATH)
    fast_path = torch.backends.mha.get_fastpath_enabled()
    # The call sees stand-ins: parameters without gradients or hooks, and copies of the buffers.
    stand_ins: dict[str, torch.Tensor] = {
        f"model.{name}": parameter.detach().requires_grad_(parameter.requires_grad)
        for name, parameter in model.named_parameters()
    }
    stand_ins |= {f"model.{name}": b.detach().clone() for name, b in model.named_buffers()}
    modes = {module: module.training for module in model.modules()}
    grads = [(tensor, tensor.grad) for tensor in _tensors(batch) if tensor.requires_grad]
    devices = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})
    try:
        # Nor is the one kernel that evaluation puts in the place of a whole attention layer.
        torch.backends.mha.set_fastpath_enabled(False)
        model.train(backward)
        with (
            torch.random.fork_rng(devices),
            torch.set_grad_enabled(backward),
            plain_attention,
            counter,
        ):
            loss = functional_call(_Call(model, forward), stand_ins, (batch, backward))
            if backward:
                _total(loss).backward()
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        for module, mode in modes.items():
            module.training = mode
        for tensor, grad in grads:
            tensor.grad = grad
    return int(counter.get_total_flops())


def _check_module(model: Any) -> None:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model={model!r} must be a torch.nn.Module")


class _Call(torch.nn.Module):
    """What is counted, as one module, so that stand-ins can be put into it."""

    def __init__(self, model: torch.nn.Module, forward: Callable[[Any, Any], Any] | None) -> None:
        super().__init__()
        self.model = model
        self._forward = forward

    def forward(self, batch: Any, with_loss: bool) -> Any:
        if self._forward is None:
            outputs = self.model(batch)
        else:
            outputs = self._forward(self.model, batch)
        if with_loss and isinstance(self.model, ComposerModel):
            return self.model.loss(outputs, batch)
        return outputs


def _total(loss: Any) -> torch.Tensor:
    if isinstance(loss, Mapping) and "total" in loss:
        loss = loss["total"]
    parts = [part.sum() for part in _tensors(loss) if part.requires_grad]
    if not parts:
        raise ValueError(
            "backward=True, but nothing that leads to the loss requires a gradient: all weights "
            "are frozen. Count with backward=False, or unfreeze some"
        )
    return torch.stack(parts).sum()


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in _tensors(part)]
    return []
