"""Selective backprop on tensors: rank samples by loss, keep a share of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from composer.algorithms._checks import check_batch
from composer.utils.checks import check_integer, check_number

__all__ = [
    "check_loss_function",
    "check_schedule",
    "check_share",
    "frozen_statistics",
    "per_sample",
    "sample_by_loss",
    "scaled",
    "select_using_loss",
    "should_selective_backprop",
]

_INTERPOLATION = {3: "linear", 4: "bilinear", 5: "trilinear"}


def check_schedule(start: float, end: float, interrupt: int) -> None:
    """Refuse a part of the run in which nothing can be selected.

    Args:
        start: Share of the run at which selection starts.
        end: Share of the run at which it ends.
        interrupt: Every batch of this number is left alone; 0 leaves none alone.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If one is out of range.

    Example:
        >>> check_schedule(0.5, 0.9, 2)
    """
    check_number("start", start, low=0.0, high=1.0)
    check_number("end", end, low=0.0, high=1.0)
    if start >= end:
        raise ValueError(f"start={start} must be less than end={end}")
    check_integer("interrupt", interrupt, low=0)
    if interrupt == 1:
        raise ValueError("interrupt=1 leaves every batch alone; use 0 or at least 2")


def check_share(keep: float, scale_factor: float) -> None:
    """Refuse a share to keep, or a scale to rank at, that is out of range.

    Args:
        keep: The share to keep.
        scale_factor: The scale.

    Raises:
        TypeError: If an argument is not a number.
        ValueError: If one is not greater than 0 and at most 1.

    Example:
        >>> check_share(0.5, 1.0)
    """
    check_number("keep", keep, low=0.0, open_low=True, high=1.0)
    check_number("scale_factor", scale_factor, low=0.0, open_low=True, high=1.0)


def should_selective_backprop(
    current_duration: float,
    batch_idx: int,
    start: float = 0.5,
    end: float = 0.9,
    interrupt: int = 2,
) -> bool:
    """Say whether a batch is to be thinned out.

    Args:
        current_duration: The share of the run that is over.
        batch_idx: Index of the batch in its epoch, from 0.
        start: Share of the run at which selection starts.
        end: Share of the run at which it ends.
        interrupt: Every batch of this number is left alone; 0 leaves none alone.

    Returns:
        Whether it is.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If one is out of range.

    Example:
        >>> [should_selective_backprop(0.6, i, interrupt=2) for i in range(4)]
        [True, False, True, False]
    """
    check_number("current_duration", current_duration, low=0.0)
    check_integer("batch_idx", batch_idx, low=0)
    check_schedule(start, end, interrupt)
    if not start <= current_duration < end:
        return False
    return interrupt == 0 or (batch_idx + 1) % interrupt != 0


def select_using_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    model: Callable[[Any], Any],
    loss_fun: Callable[..., torch.Tensor],
    keep: float = 0.5,
    scale_factor: float = 1,
    *,
    generator: torch.Generator | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keep a share of a batch, samples of high loss being more likely to stay.

    The ranking pass computes no gradients, and if the model is a module its mode and the running
    statistics of its normalisation layers stay as they are.

    Args:
        input: Samples, of shape (N, ...).
        target: Their labels.
        model: Called with the samples.
        loss_fun: Called with the model's outputs, the labels and ``reduction="none"``; returns one
            loss per sample.
        keep: The share to keep.
        scale_factor: Scale at which images are ranked; below 1 ranking is cheaper.
        generator: Source of random numbers; by default torch's global one.

    Returns:
        The samples and labels that stay, in order of increasing loss.

    Raises:
        TypeError: If ``loss_fun`` takes no ``reduction`` or gives no loss per sample, or an
            argument has the wrong type.
        ValueError: If a number is out of range, or there is no sample.

    Example:
        >>> x, y = torch.tensor([0.0, 5.0]), torch.zeros(2)
        >>> kept, _ = select_using_loss(x, y, lambda x: x, F.l1_loss, keep=0.5)
        >>> len(kept)
        1
    """
    check_share(keep, scale_factor)
    check_batch(input, target)
    if not len(input):
        raise ValueError(f"input of shape {tuple(input.shape)} holds no sample to select")
    for name, value in (("model", model), ("loss_fun", loss_fun)):
        if not callable(value):
            raise TypeError(f"{name}={value!r} must be something that can be called")
    check_loss_function(loss_fun)
    module = model if isinstance(model, torch.nn.Module) else None
    with torch.no_grad(), frozen_statistics(module):
        outputs = model(scaled(input, scale_factor))
        losses = per_sample(loss_fun(outputs, target, reduction="none"), input.shape[0])
    chosen = sample_by_loss(losses, keep, generator)
    return input[chosen.to(input.device)], target[chosen.to(target.device)]


def sample_by_loss(
    losses: torch.Tensor,
    keep: float,
    generator: torch.Generator | None = None,
    least: int = 1,
) -> torch.Tensor:
    """Choose samples without replacement, with a weight that grows with the rank of their loss.

    With N samples the one of rank r (from 0, by increasing loss) has the weight
    ((r + 0.5) / N) ** (1 / keep - 1), so keeping all of them is uniform and keeping few prefers the
    highest losses.

    Args:
        losses: One per sample.
        keep: The share to choose.
        generator: Source of random numbers; by default torch's global one.
        least: At least this many are chosen, if there are as many.

    Returns:
        Indices into ``losses``, by increasing loss.

    Example:
        >>> sample_by_loss(torch.tensor([3.0, 1.0, 2.0]), keep=1.0).tolist()
        [1, 2, 0]
    """
    num_samples = losses.shape[0]
    num_kept = min(num_samples, max(least, int(keep * num_samples)))
    ranks = (torch.arange(num_samples, dtype=torch.float64) + 0.5) / num_samples
    # Drawn on the CPU, so that the choice depends on the order of the losses and not on the device.
    drawn = torch.multinomial(ranks ** (1.0 / keep - 1.0), num_kept, generator=generator)
    return torch.argsort(losses, stable=True)[drawn.sort().values.to(losses.device)]


@contextmanager
def frozen_statistics(model: torch.nn.Module | None) -> Iterator[None]:
    """Let normalisation layers compute as in training without updating what they keep.

    Args:
        model: The model; ``None`` does nothing.

    Yields:
        Nothing.

    Example:
        >>> norm = torch.nn.BatchNorm1d(1)
        >>> with frozen_statistics(norm):
        ...     _ = norm(torch.tensor([[5.0], [6.0]]))
        >>> norm.running_mean.item(), norm.num_batches_tracked.item()
        (0.0, 0)
    """
    modules = [] if model is None else [m for m in model.modules() if m.training]
    tracking = [m for m in modules if isinstance(m, _BatchNorm) and m.track_running_stats]
    # These update what they keep whenever it is there, so it is put back instead.
    kept = [
        (buffer, buffer.clone())
        for module in modules
        if isinstance(module, _InstanceNorm)
        for buffer in module.buffers(recurse=False)
    ]
    for module in tracking:
        module.track_running_stats = False
    try:
        yield
    finally:
        for module in tracking:
            module.track_running_stats = True
        with torch.no_grad():
            for buffer, before in kept:
                buffer.copy_(before)


def scaled(input: Any, scale_factor: float) -> Any:
    """Return images at a smaller scale.

    Args:
        input: Images, of shape (N, C, ...) with one to three spatial dimensions.
        scale_factor: The scale; at 1 anything is returned as it is.

    Returns:
        The images.

    Raises:
        ValueError: If the scale is out of range or the tensor cannot be interpolated.

    Example:
        >>> scaled(torch.zeros(1, 3, 8, 8), 0.5).shape
        torch.Size([1, 3, 4, 4])
    """
    check_number("scale_factor", scale_factor, low=0.0, open_low=True, high=1.0)
    if scale_factor == 1:
        return input
    if not isinstance(input, torch.Tensor) or input.ndim not in _INTERPOLATION:
        shape = tuple(input.shape) if isinstance(input, torch.Tensor) else type(input).__name__
        raise ValueError(
            f"scale_factor={scale_factor} needs a tensor of shape (N, C, ...) with one to three "
            f"spatial dimensions, not {shape}; use scale_factor=1"
        )
    images = input if input.is_floating_point() else input.float()
    return F.interpolate(
        images, scale_factor=scale_factor, mode=_INTERPOLATION[input.ndim], align_corners=False
    )


def check_loss_function(loss_fun: Callable[..., Any]) -> None:
    """Refuse a loss that cannot be asked for one value per sample.

    Args:
        loss_fun: The loss.

    Raises:
        TypeError: If it takes no ``reduction``.

    Example:
        >>> check_loss_function(F.cross_entropy)
    """
    try:
        parameters = inspect.signature(loss_fun).parameters
    except (TypeError, ValueError):
        return  # some built-in functions have no signature; the first call will tell
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    if not takes_any and "reduction" not in parameters:
        raise TypeError(
            f"selective backprop ranks samples with loss({', '.join(parameters)}), which must also "
            f"take reduction='none' and then return one loss per sample"
        )


def per_sample(losses: Any, num_samples: int) -> torch.Tensor:
    """Turn what a loss without reduction returned into one number per sample.

    Args:
        losses: The losses, of shape (N, ...).
        num_samples: N.

    Returns:
        Their means over all but the first dimension.

    Raises:
        TypeError: If there is not one row per sample.

    Example:
        >>> per_sample(torch.tensor([[1.0, 3.0], [5.0, 5.0]]), 2).tolist()
        [2.0, 5.0]
    """
    if not isinstance(losses, torch.Tensor) or losses.shape[:1] != (num_samples,):
        got = tuple(losses.shape) if isinstance(losses, torch.Tensor) else type(losses).__name__
        raise TypeError(
            f"selective backprop needs one loss per sample: with reduction='none' the loss of "
            f"{num_samples} samples must be a tensor of shape ({num_samples}, ...), not {got}"
        )
    losses = losses.detach().float()
    return losses.flatten(1).mean(1) if losses.ndim > 1 else losses
