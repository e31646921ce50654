"""A residual block whose branch is skipped at random."""

from __future__ import annotations

import torch
from torch import nn

from composer.algorithms.stochastic_depth.blocks import ResidualBlock

__all__ = ["StochasticBlock"]


class StochasticBlock(nn.Module):
    """A residual block that leaves its branch out at random, with the members of a plain one.

    In training the branch counts fully or not at all, in evaluation by the probability that it is
    there. Made by :func:`~composer.algorithms.stochastic_depth.apply_stochastic_depth` and not by
    itself; names of parameters and buffers are those of the plain block.

    Attributes:
        form: How the block is taken apart.
        per_sample: Whether each sample draws for itself, or the batch draws once.
        final_drop_rate: Probability that the branch is left out, once the warm-up is over.
        drop_rate: The probability now.

    Example:
        >>> from composer.algorithms.stochastic_depth import (
        ...     ResidualBlock, apply_stochastic_depth, register_residual_block
        ... )
        >>> class Twice(nn.Module):
        ...     def forward(self, x):
        ...         return x + x
        >>> register_residual_block("Twice", Twice, ResidualBlock(lambda block, x: x))
        >>> model = nn.Sequential(Twice())
        >>> apply_stochastic_depth(model, "Twice", drop_rate=0.25)
        >>> model.eval()(torch.ones(1))
        tensor([1.7500])
    """

    form: ResidualBlock
    per_sample: bool
    final_drop_rate: float
    drop_rate: float

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the block, with or without its branch.

        Args:
            x: The input, of shape (N, ...).

        Returns:
            The output, of the shape that the plain block gives.
        """
        rate = self.drop_rate
        if not rate:
            return self.form.finish(self, self.form.branch(self, x) + self.form.shortcut(self, x))
        if self.training and not self.per_sample and _is_left_out(rate):
            # The branch is not computed, so its statistics stay and it gets no gradients. What goes
            # past it may be the input itself, and an activation may work in place.
            return self.form.finish(self, self.form.shortcut(self, x).clone())
        out = self.form.branch(self, x)
        if not self.training:
            out = out * (1.0 - rate)
        elif self.per_sample:
            kept = torch.rand(len(x), *[1] * (out.ndim - 1), device=out.device) >= rate
            out = out * kept
        return self.form.finish(self, out + self.form.shortcut(self, x))

    def extra_repr(self) -> str:
        """Return what is shown of the layer.

        Returns:
            How it draws and how often.
        """
        draws = "sample" if self.per_sample else "block"
        return f"stochastic_method={draws!r}, drop_rate={self.drop_rate:g}"


def _is_left_out(rate: float) -> bool:
    """Draw once for the batch; on the host, where the answer is needed."""
    return float(torch.rand((), device="cpu")) < rate
