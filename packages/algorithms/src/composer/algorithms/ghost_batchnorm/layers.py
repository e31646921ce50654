"""Batch normalisation over parts of the batch, in one pass over it.

A loop over the parts would launch a kernel for each. Here whole parts are folded into the channel
dimension, so that one call normalises all of them; what is left over joins the last part.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from composer.algorithms._surgery import recast

__all__ = ["GHOSTS", "GhostBatchNorm1d", "GhostBatchNorm2d", "GhostBatchNorm3d", "make_ghost"]


class _GhostBatchNorm(nn.modules.batchnorm._BatchNorm):
    """What the three have in common; a batch normalisation with parts.

    The running averages take the mean over the parts, so that after a batch they have moved as far
    as those of the plain layer would have.
    """

    ghost_batch_size: int

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalise part by part in training, and by the running averages in evaluation.

        Args:
            input: Of shape (N, C, ...), with N of at least ``ghost_batch_size`` in training.

        Returns:
            The normalised input.

        Raises:
            ValueError: If the batch is smaller than a part.

        Example:
            >>> layer = make_ghost(nn.BatchNorm1d(1, affine=False), 2)
            >>> layer(torch.tensor([[0.0], [2.0], [10.0], [12.0]])).round()
            tensor([[-1.],
                    [ 1.],
                    [-1.],
                    [ 1.]])
        """
        self._check_input_dim(input)
        if not (self.training or (self.running_mean is None and self.running_var is None)):
            return super().forward(input)
        size, samples = self.ghost_batch_size, input.shape[0]
        if samples < size:
            raise ValueError(
                f"the batch has {samples} samples and ghost_batch_size is {size}; give a larger "
                f"(micro)batch or a smaller ghost_batch_size"
            )
        momentum = self._momentum()
        # What does not fill a part joins the last one: a part of one sample would have no spread.
        parts = samples // size
        equal = parts if samples == parts * size else parts - 1
        pieces = []
        if equal:
            pieces.append(self._normalise(input[: equal * size], equal))
        if equal < parts:
            pieces.append(self._normalise(input[equal * size :], 1))
        outputs = torch.cat([piece[0] for piece in pieces]) if len(pieces) > 1 else pieces[0][0]
        mean = torch.stack([piece[1] for piece in pieces]).sum(0)
        var = torch.stack([piece[2] for piece in pieces]).sum(0)
        if self.track_running_stats and self.running_mean is not None:
            assert self.running_var is not None
            with torch.no_grad():
                self.running_mean.lerp_((mean / parts).to(self.running_mean.dtype), momentum)
                self.running_var.lerp_((var / parts).to(self.running_var.dtype), momentum)
        return outputs

    def _momentum(self) -> float:
        if self.num_batches_tracked is not None and self.track_running_stats and self.training:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                return 1.0 / float(self.num_batches_tracked)
        return 0.0 if self.momentum is None else self.momentum

    def _normalise(
        self, input: torch.Tensor, parts: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Normalise equal parts; also the sums over them of the means and of the variances."""
        samples, channels, *space = input.shape
        # (parts, size, C, ...) -> (size, parts * C, ...): a part's channels are channels of theirs.
        folded = (
            input.reshape(parts, samples // parts, channels, *space)
            .transpose(0, 1)
            .reshape(samples // parts, parts * channels, *space)
        )
        mean = input.new_zeros(parts * channels, dtype=self._statistics_dtype(input))
        var = torch.zeros_like(mean)
        weight = None if self.weight is None else self.weight.repeat(parts)
        bias = None if self.bias is None else self.bias.repeat(parts)
        outputs = F.batch_norm(
            folded, mean, var, weight, bias, training=True, momentum=1.0, eps=self.eps
        )
        unfolded = (
            outputs.reshape(samples // parts, parts, channels, *space)
            .transpose(0, 1)
            .reshape(input.shape)
        )
        return unfolded, mean.view(parts, channels).sum(0), var.view(parts, channels).sum(0)

    def _statistics_dtype(self, input: torch.Tensor) -> torch.dtype:
        if self.running_mean is not None:
            return self.running_mean.dtype
        return torch.float32 if input.dtype in (torch.float16, torch.bfloat16) else input.dtype

    def extra_repr(self) -> str:
        """Show the arguments.

        Returns:
            The text.

        Example:
            >>> make_ghost(nn.BatchNorm1d(4), 8)
            GhostBatchNorm1d(4, ..., ghost_batch_size=8)
        """
        return f"{super().extra_repr()}, ghost_batch_size={self.ghost_batch_size}"


class GhostBatchNorm1d(_GhostBatchNorm, nn.BatchNorm1d):
    """Batch normalisation over parts of the batch, for inputs of shape (N, C) or (N, C, L).

    Example:
        >>> make_ghost(nn.BatchNorm1d(2), 4)(torch.randn(8, 2)).shape
        torch.Size([8, 2])
    """


class GhostBatchNorm2d(_GhostBatchNorm, nn.BatchNorm2d):
    """Batch normalisation over parts of the batch, for inputs of shape (N, C, H, W).

    Example:
        >>> make_ghost(nn.BatchNorm2d(2), 4)(torch.randn(8, 2, 3, 3)).shape
        torch.Size([8, 2, 3, 3])
    """


class GhostBatchNorm3d(_GhostBatchNorm, nn.BatchNorm3d):
    """Batch normalisation over parts of the batch, for inputs of shape (N, C, D, H, W).

    Example:
        >>> make_ghost(nn.BatchNorm3d(2), 4)(torch.randn(8, 2, 3, 3, 3)).shape
        torch.Size([8, 2, 3, 3, 3])
    """


#: Plain layer to the one with parts.
GHOSTS: dict[type[nn.Module], type[_GhostBatchNorm]] = {
    nn.BatchNorm1d: GhostBatchNorm1d,
    nn.BatchNorm2d: GhostBatchNorm2d,
    nn.BatchNorm3d: GhostBatchNorm3d,
}


def make_ghost(module: nn.Module, ghost_batch_size: int) -> nn.Module | None:
    """Make a layer with parts that shares weights and running averages with a plain one.

    Args:
        module: A batch normalisation.
        ghost_batch_size: Samples of one part.

    Returns:
        The layer; ``None`` if the module is one already or of a class of its own.

    Example:
        >>> plain = nn.BatchNorm2d(3)
        >>> make_ghost(plain, 2).weight is plain.weight
        True
    """
    ghost_class = GHOSTS.get(type(module))
    if ghost_class is None:
        return None
    return recast(module, ghost_class, ghost_batch_size=ghost_batch_size)
