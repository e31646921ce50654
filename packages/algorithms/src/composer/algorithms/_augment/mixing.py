"""Mixing of samples and their labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from composer.algorithms._checks import require_tensor
from composer.algorithms._state import loss_function, precision_context, replace_in_batch
from composer.core.algorithm import Algorithm
from composer.core.event import Event
from composer.loss.targets import ensure_targets_one_hot
from composer.utils.batches import batch_get

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = [
    "LabelMixer",
    "MixingAlgorithm",
    "draw_beta",
    "draw_dirichlet",
    "draw_permutation",
    "mix_targets",
    "permute",
]


def draw_beta(alpha: float, generator: torch.Generator | None = None) -> float:
    """Draw from the distribution Beta(alpha, alpha).

    Args:
        alpha: The parameter; 0 gives 1.
        generator: Source of random numbers; by default torch's global one.

    Returns:
        A number from 0 to 1.

    Example:
        >>> 0 <= draw_beta(0.2) <= 1
        True
    """
    if alpha == 0:
        return 1.0
    first, second = _draw_log_gamma(alpha, 2, generator).tolist()
    return 1.0 / (1.0 + math.exp(min(second - first, 700.0)))


def draw_dirichlet(
    alpha: float, num_shares: int, generator: torch.Generator | None = None
) -> list[float]:
    """Draw shares of a whole from the symmetric Dirichlet distribution.

    Args:
        alpha: Its parameter, greater than 0: small gives nearly all to one share.
        num_shares: How many shares.
        generator: Source of random numbers; by default torch's global one.

    Returns:
        Numbers from 0 to 1 whose sum is 1.

    Example:
        >>> round(sum(draw_dirichlet(1.0, 3)), 6)
        1.0
    """
    shares: list[float] = _draw_log_gamma(alpha, num_shares, generator).softmax(0).tolist()
    return shares


def _draw_log_gamma(
    alpha: float, count: int, generator: torch.Generator | None = None
) -> torch.Tensor:
    # A gamma variable of a small parameter underflows to 0; its logarithm does not: it is that of
    # one with the parameter raised by 1 times a power of a uniform one.
    raised = torch.full((count,), alpha + 1.0, dtype=torch.float64)
    uniform = torch.rand(count, dtype=torch.float64, generator=generator).clamp_min_(1e-300)
    return torch._standard_gamma(raised, generator=generator).log() + uniform.log() / alpha


def draw_permutation(
    num_samples: int, device: torch.device, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Draw which sample is mixed with which.

    Args:
        num_samples: Size of the batch.
        device: Where the indices are needed. They are drawn on the CPU, so that they do not depend
            on the device.
        generator: Source of random numbers; by default torch's global one.

    Returns:
        A permutation.

    Example:
        >>> sorted(draw_permutation(3, torch.device("cpu")).tolist())
        [0, 1, 2]
    """
    return torch.randperm(num_samples, generator=generator).to(device, non_blocking=True)


def permute(tensor: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Return the samples in another order.

    Args:
        tensor: Samples along the first dimension.
        indices: The order.

    Returns:
        A new tensor in the memory format of the given one.

    Raises:
        TypeError: If the indices are no tensor of integers.
        ValueError: If there is not one index per sample.

    Example:
        >>> permute(torch.tensor([5, 6]), torch.tensor([1, 0]))
        tensor([6, 5])
    """
    if not isinstance(indices, torch.Tensor) or indices.dtype not in (torch.int64, torch.int32):
        got = indices.dtype if isinstance(indices, torch.Tensor) else type(indices).__name__
        raise TypeError(f"indices must be a tensor of integers, one for each sample, not {got}")
    if indices.shape != tensor.shape[:1]:
        raise ValueError(
            f"indices of shape {tuple(indices.shape)} must hold one index for each of the "
            f"{tensor.shape[0]} samples"
        )
    indices = indices.to(tensor.device)
    # The faster call of the two, but it does not keep other memory formats.
    return tensor.index_select(0, indices) if tensor.is_contiguous() else tensor[indices]


def mix_targets(
    outputs: torch.Tensor, targets: torch.Tensor, indices: torch.Tensor, share: float
) -> torch.Tensor:
    """Mix every label with that of the sample's partner.

    Args:
        outputs: Logits of shape (N, C, ...), which tell the number of classes.
        targets: Class indices or probabilities.
        indices: The partners.
        share: The share of the sample's own label.

    Returns:
        Probabilities of shape (N, C, ...).

    Example:
        >>> mix_targets(torch.zeros(2, 2), torch.tensor([0, 1]), torch.tensor([1, 0]), 0.75)
        tensor([[0.7500, 0.2500],
                [0.2500, 0.7500]])
    """
    dense = ensure_targets_one_hot(outputs, targets)
    return torch.lerp(permute(dense, indices), dense, share)


class LabelMixer:
    """Gives every sample the label, or the loss, that belongs to its mixture.

    The labels that are mixed are those in the batch just before the loss, so whatever changed them
    earlier, such as label smoothing or another mixing method, counts for both partners.

    Args:
        owner: The method that asks.
        target_key: Where the labels are.
        interpolate_loss: Whether losses are mixed instead of labels.

    Example:
        >>> from types import SimpleNamespace
        >>> state = SimpleNamespace(batch=(None, torch.tensor([0, 1])), outputs=torch.zeros(2, 2))
        >>> mixer = LabelMixer("MixUp", 1, interpolate_loss=False)
        >>> mixer.before_loss(state, torch.tensor([1, 0]), share=0.75)
        >>> state.batch[1][0]
        tensor([0.7500, 0.2500])
    """

    def __init__(self, owner: str, target_key: Any, interpolate_loss: bool) -> None:
        self.owner = owner
        self.target_key = target_key
        self.interpolate_loss = interpolate_loss
        self._partner_targets = torch.empty(0)

    def before_loss(self, state: State, indices: torch.Tensor, share: float) -> None:
        """Mix the labels, or note the partners' ones.

        Args:
            state: The state of the run.
            indices: The partners.
            share: The share of the sample's own label.

        Raises:
            TypeError: If labels or outputs are not single tensors.

        Example:
            >>> LabelMixer("MixUp", 1, interpolate_loss=True).interpolate_loss
            True
        """
        target = require_tensor(self.owner, "target", batch_get(state.batch, self.target_key))
        if self.interpolate_loss:
            self._partner_targets = permute(target, indices)
            return
        outputs = require_tensor(self.owner, "output", state.outputs)
        replace_in_batch(state, self.target_key, mix_targets(outputs, target, indices, share))

    def before_backward(self, state: State, share: float) -> None:
        """Mix the loss of the batch with its loss on the partners' labels.

        Args:
            state: The state of the run, whose batch is left as it was.
            share: The share of the loss on the samples' own labels.

        Raises:
            TypeError: If the model returns more than one loss or output.

        Example:
            >>> from types import SimpleNamespace
            >>> class Model(torch.nn.Module):
            ...     def loss(self, outputs, batch):
            ...         return (outputs - batch[1]).abs().mean()
            >>> x, y = torch.zeros(2), torch.tensor([1.0, 5.0])
            >>> state = SimpleNamespace(model=Model(), batch=(x, y), outputs=x, precision="fp32")
            >>> state.loss = state.model.loss(x, state.batch)
            >>> mixer = LabelMixer("MixUp", 1, interpolate_loss=True)
            >>> mixer.before_loss(state, torch.tensor([1, 1]), share=0.5)
            >>> mixer.before_backward(state, share=0.5)
            >>> state.loss  # half of 3 and half of 5
            tensor(4.)
        """
        loss = require_tensor(self.owner, "loss", state.loss)
        outputs = require_tensor(self.owner, "output", state.outputs)
        own = state.batch
        replace_in_batch(state, self.target_key, self._partner_targets)
        try:
            with precision_context(state, outputs.device):
                partner_loss = loss_function(state)(outputs, state.batch)
        finally:
            state.batch = own
        state.loss = loss * share + require_tensor(self.owner, "loss", partner_loss) * (1 - share)


class MixingAlgorithm(Algorithm):
    """When a method acts that mixes samples, and then their labels or losses.

    A subclass stores its argument ``interpolate_loss``.

    Example:
        >>> class Mix(MixingAlgorithm):
        ...     def __init__(self, interpolate_loss=False):
        ...         self.interpolate_loss = interpolate_loss
        ...     def apply(self, event, state, logger):
        ...         pass
        >>> Mix().exclusive_group, Mix(interpolate_loss=True).exclusive_group
        (None, 'loss interpolation')
    """

    events: ClassVar[frozenset[Event]] = frozenset(
        {Event.BEFORE_FORWARD, Event.BEFORE_LOSS, Event.BEFORE_BACKWARD}
    )
    after: ClassVar[tuple[str, ...]] = ("label_smoothing",)
    remarks: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"label_smoothing": "labels are smoothed before they are mixed"}
    )

    interpolate_loss: bool

    @property
    def exclusive_group(self) -> str | None:
        """The second of two that mix the loss counts only the own labels of its partners.

        Their samples, which the first has mixed with others, stand for more than these.
        """
        return "loss interpolation" if self.interpolate_loss else None

    def match(self, event: Event, state: State) -> bool:
        """Say whether the method acts now.

        Args:
            event: The event that fires.
            state: The state of the run.

        Returns:
            Whether samples, labels or, if asked for, the loss are to be mixed.

        Example:
            >>> class Mix(MixingAlgorithm):
            ...     interpolate_loss = False
            ...     def apply(self, event, state, logger):
            ...         pass
            >>> Mix().match(Event.BEFORE_BACKWARD, None)
            False
        """
        del state
        return event in self.events and (
            event is not Event.BEFORE_BACKWARD or self.interpolate_loss
        )
