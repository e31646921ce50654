"""Losses over tokens: the mean counts every token that has a label once, whatever its sample.

The logits of a large vocabulary are often the largest tensor of a training step.
:func:`chunked_cross_entropy` never has more than one chunk of them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from composer.loss._reductions import check_reduction
from composer.loss.targets import check_for_index_targets, counted
from composer.utils.checks import check_integer

__all__ = ["chunked_cross_entropy", "language_cross_entropy"]


def language_cross_entropy(
    logits: torch.Tensor,
    labels: torch.Tensor,
    *,
    token_weights: torch.Tensor | None = None,
    shift: bool = False,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> torch.Tensor:
    """Cross entropy of next-token or masked-token predictions.

    The mean divides by the number of tokens that count, or by the sum of their weights: a batch cut
    into parts gives the same number when the parts are weighted by theirs.

    Args:
        logits: Of shape (..., T, V), in any floating dtype; computed in single precision.
        labels: Integers of shape (..., T).
        token_weights: One weight per token, of the shape of ``labels``.
        shift: Whether position t predicts label t + 1, as causal language models do; the last
            position then predicts nothing and the first label is not predicted.
        ignore_index: Label of tokens that do not count.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar; without reduction one value per token, of shape (..., T), or (..., T - 1) with
        ``shift``, zero for tokens that do not count.

    Raises:
        TypeError: If labels are no integers.
        ValueError: If the shapes do not fit or ``reduction`` is unknown.

    Example:
        >>> logits = torch.zeros(1, 3, 5)
        >>> labels = torch.tensor([[1, -100, 2]])
        >>> round(float(language_cross_entropy(logits, labels)), 4)  # log(5)
        1.6094
        >>> float(language_cross_entropy(logits, labels, shift=True, reduction="sum")) > 0
        True
    """
    _check(logits.shape[:-1], labels, token_weights, reduction)
    if shift:
        logits, labels = logits[..., :-1, :], labels[..., 1:]
        token_weights = None if token_weights is None else token_weights[..., 1:]
    size = logits.shape[-1]
    losses = F.cross_entropy(
        logits.reshape(-1, size).float(),
        labels.reshape(-1).to(torch.int64),
        ignore_index=ignore_index,
        reduction="none",
    ).view(labels.shape)
    weights = counted(labels, ignore_index).to(losses.dtype)
    if token_weights is not None:
        weights = weights * token_weights.to(losses.dtype)
        losses = losses * token_weights.to(losses.dtype)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / weights.sum()


def chunked_cross_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    labels: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    chunk_size: int = 1024,
    shift: bool = False,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> torch.Tensor:
    """Cross entropy straight from hidden states, without ever holding all logits.

    The output layer is applied to one chunk of tokens after the other, and once more in the
    backward pass: the memory is that of ``chunk_size`` rows of logits, for the price of computing
    them twice.

    Args:
        hidden: What goes into the output layer, of shape (..., T, D).
        weight: Weight of the output layer, of shape (V, D).
        labels: Integers of shape (..., T).
        bias: Bias of the output layer, of shape (V,).
        chunk_size: Number of tokens at a time.
        shift: Whether position t predicts label t + 1.
        ignore_index: Label of tokens that do not count.
        reduction: ``"mean"`` over the tokens that count, or ``"sum"``.

    Returns:
        The loss, a scalar in single precision.

    Raises:
        TypeError: If labels are no integers, or a setting is of the wrong kind.
        ValueError: If the shapes do not fit, or a setting is not accepted.

    Example:
        >>> hidden, weight = torch.randn(2, 5, 4), torch.randn(7, 4)
        >>> labels = torch.randint(7, (2, 5))
        >>> whole = language_cross_entropy(hidden @ weight.T, labels)
        >>> chunked = chunked_cross_entropy(hidden, weight, labels, chunk_size=3)
        >>> torch.testing.assert_close(chunked, whole)
    """
    _check(hidden.shape[:-1], labels, None, reduction)
    if reduction == "none":
        raise ValueError("reduction='none' is not offered here; accepted are 'mean' and 'sum'")
    check_integer("chunk_size", chunk_size, low=1)
    if weight.ndim != 2 or weight.shape[1] != hidden.shape[-1]:
        raise ValueError(
            f"weight of shape {tuple(weight.shape)} does not fit hidden states of size "
            f"{hidden.shape[-1]}; give one of shape (V, {hidden.shape[-1]})"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(
            f"bias of shape {tuple(bias.shape)} does not fit weight of shape "
            f"{tuple(weight.shape)}; give one of shape {tuple(weight.shape[:1])}"
        )
    if shift:
        hidden, labels = hidden[..., :-1, :], labels[..., 1:]
    rows = hidden.reshape(-1, hidden.shape[-1]).split(chunk_size)
    targets = labels.reshape(-1).to(torch.int64).split(chunk_size)

    def of_chunk(states: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        logits = F.linear(states, weight, bias).float()
        return F.cross_entropy(logits, target, ignore_index=ignore_index, reduction="sum")

    total = hidden.new_zeros((), dtype=torch.float32)
    for states, target in zip(rows, targets, strict=True):
        # No random numbers are drawn inside, so their state need not be kept.
        total = total + checkpoint(
            of_chunk, states, target, use_reentrant=False, preserve_rng_state=False
        )
    return total if reduction == "sum" else total / counted(labels, ignore_index).sum()


def _check(
    shape: torch.Size, labels: torch.Tensor, token_weights: torch.Tensor | None, reduction: str
) -> None:
    check_reduction(reduction)
    if labels.shape != shape:
        raise ValueError(
            f"labels of shape {tuple(labels.shape)} do not fit; accepted is {tuple(shape)}, one "
            f"per token"
        )
    if not check_for_index_targets(labels):
        raise TypeError(f"labels must be tokens, which are integers and not {labels.dtype}")
    if token_weights is not None and token_weights.shape != labels.shape:
        raise ValueError(
            f"token_weights of shape {tuple(token_weights.shape)} must have the shape of the "
            f"labels, {tuple(labels.shape)}"
        )
