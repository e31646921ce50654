"""Low-precision group normalisation as a method of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import nn

from composer.algorithms._low_precision import LowPrecisionNorm
from composer.algorithms.low_precision_groupnorm.functional import apply_low_precision_groupnorm
from composer.algorithms.low_precision_groupnorm.layers import LPGroupNorm

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["LowPrecisionGroupNorm"]


class LowPrecisionGroupNorm(LowPrecisionNorm):
    """Let every group normalisation compute in the type of mixed precision.

    Args:
        apply_at: When the layers are replaced: ``Event.INIT``, ``Event.BEFORE_LOAD`` or
            ``Event.AFTER_LOAD``.

    Raises:
        ValueError: If it is another event.

    Example:
        >>> LowPrecisionGroupNorm()
        LowPrecisionGroupNorm(apply_at='init')
    """

    narrow: ClassVar[type[nn.Module]] = LPGroupNorm
    title: ClassVar[str] = "low_precision_groupnorm"

    def replace(self, state: State) -> None:
        """Replace the layers of the run's model.

        Args:
            state: The state of the run.

        Example:
            >>> from types import SimpleNamespace
            >>> model = nn.Sequential(nn.GroupNorm(2, 4))
            >>> state = SimpleNamespace(model=model, precision="amp_bf16", optimizers=[])
            >>> LowPrecisionGroupNorm().replace(state)
            >>> type(model[0]).__name__
            'LPGroupNorm'
        """
        apply_low_precision_groupnorm(state.model, state.precision, state.optimizers)
