"""MixUp on tensors."""

from __future__ import annotations

import torch

from composer.algorithms._augment.mixing import draw_beta, draw_permutation, permute
from composer.algorithms._checks import check_batch
from composer.utils.checks import check_number

__all__ = ["mixup_batch"]


def mixup_batch(
    input: torch.Tensor,
    target: torch.Tensor,
    mixing: float | None = None,
    alpha: float = 0.2,
    indices: torch.Tensor | None = None,
    *,
    generator: torch.Generator | None = None,
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Mix every sample with a random partner of the same batch.

    The mixed sample is ``(1 - mixing) * sample + mixing * partner``; its label is to be mixed in
    the same way, which needs the number of classes and so is left to the caller.

    Args:
        input: Samples, of shape (N, ...).
        target: Their labels, of shape (N, ...).
        mixing: The partner's share, from 0 to 1; by default drawn from Beta(alpha, alpha) and
            folded to at most a half, so that a sample's own label dominates.
        alpha: Parameter of that distribution; 0 mixes nothing.
        indices: The partner of each sample; by default a random permutation.
        generator: Source of random numbers; by default torch's global one.

    Returns:
        The mixed samples, the partners' labels, and the partner's share.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If ``mixing`` or ``alpha`` is out of range or there is not one index per sample.

    Example:
        >>> x, y = torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1])
        >>> mixed, partner, share = mixup_batch(x, y, mixing=0.25, indices=torch.tensor([1, 0]))
        >>> mixed.tolist(), partner.tolist(), share
        ([[0.25], [0.75]], [1, 0], 0.25)
    """
    check_batch(input, target)
    if mixing is None:
        check_number("alpha", alpha, low=0.0)
        drawn = draw_beta(alpha, generator)
        mixing = min(drawn, 1.0 - drawn)
    else:
        check_number("mixing", mixing, low=0.0, high=1.0)
    if indices is None:
        indices = draw_permutation(input.shape[0], input.device, generator)
    if not (input.is_floating_point() or input.is_complex()):
        input = input.to(torch.get_default_dtype())
    mixed = torch.lerp(input, permute(input, indices), mixing)
    return mixed, permute(target, indices), mixing
