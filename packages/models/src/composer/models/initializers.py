"""Weight initialisations by name, for models built from a configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from composer.utils.string_enum import StringEnum

__all__ = ["Initializer", "initialize"]

_WEIGHTED = (nn.Linear, nn.Conv2d)


class Initializer(StringEnum):
    """Ways to set the first weights of a model.

    Those named after Kaiming and Xavier act on ``Linear`` and ``Conv2d`` weights, those that start
    with ``bn`` on ``BatchNorm2d``, and ``linear_log_constant_bias`` on the biases of ``Linear``.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm2d(4))
        >>> _ = model.apply(Initializer("bn_ones").get_initializer())
        >>> model[1].weight.tolist()
        [1.0, 1.0, 1.0, 1.0]
    """

    KAIMING_NORMAL = "kaiming_normal"
    KAIMING_UNIFORM = "kaiming_uniform"
    BN_UNIFORM = "bn_uniform"
    BN_ONES = "bn_ones"
    XAVIER_UNIFORM = "xavier_uniform"
    XAVIER_NORMAL = "xavier_normal"
    LINEAR_LOG_CONSTANT_BIAS = "linear_log_constant_bias"

    def get_initializer(self) -> Callable[[nn.Module], None]:
        """Return the function to give to ``module.apply``.

        Returns:
            A function that changes one module in place and leaves other kinds alone.

        Example:
            >>> linear = nn.Linear(1, 4)
            >>> Initializer.LINEAR_LOG_CONSTANT_BIAS.get_initializer()(linear)
            >>> round(float(linear.bias[0].detach()), 4)
            -1.3863
        """
        return _INITIALIZERS[self]


def _weights(fill: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[nn.Module], None]:
    def initialize(module: nn.Module) -> None:
        if isinstance(module, _WEIGHTED):
            fill(module.weight)

    return initialize


def _batch_norm(fill: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[nn.Module], None]:
    def initialize(module: nn.Module) -> None:
        if isinstance(module, nn.BatchNorm2d) and module.affine:
            fill(module.weight)
            nn.init.zeros_(module.bias)

    return initialize


def _log_constant_bias(module: nn.Module) -> None:
    # With equal logits everywhere, every class then starts at the probability 1 / classes.
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.constant_(module.bias, -math.log(module.bias.shape[0]))


_INITIALIZERS: dict[Initializer, Callable[[nn.Module], None]] = {
    Initializer.KAIMING_NORMAL: _weights(nn.init.kaiming_normal_),
    Initializer.KAIMING_UNIFORM: _weights(nn.init.kaiming_uniform_),
    Initializer.BN_UNIFORM: _batch_norm(nn.init.uniform_),
    Initializer.BN_ONES: _batch_norm(nn.init.ones_),
    Initializer.XAVIER_UNIFORM: _weights(nn.init.xavier_uniform_),
    Initializer.XAVIER_NORMAL: _weights(nn.init.xavier_normal_),
    Initializer.LINEAR_LOG_CONSTANT_BIAS: _log_constant_bias,
}


def initialize(
    module: nn.Module,
    initializers: Sequence[str | Initializer] | None,
    default: Sequence[str | Initializer] = (),
) -> nn.Module:
    """Set first weights.

    Args:
        module: The module.
        initializers: Ways to set them, applied in order; ``default`` if ``None``.
        default: What is applied without a choice of the user's.

    Returns:
        The module.

    Raises:
        TypeError: If they are no sequence.
        ValueError: If a name is unknown.

    Example:
        >>> initialize(nn.BatchNorm2d(2), None, default=["bn_ones"]).weight.tolist()
        [1.0, 1.0]
    """
    chosen = default if initializers is None else initializers
    if isinstance(chosen, str) or not isinstance(chosen, Sequence):
        raise TypeError(
            f"initializers={chosen!r} must be a list of names, of which there are "
            f"{', '.join(initializer.value for initializer in Initializer)}"
        )
    try:
        known = [Initializer(name) for name in chosen]
    except ValueError as error:
        raise ValueError(f"initializers={list(chosen)!r}: {error}") from None
    for initializer in known:
        module.apply(initializer.get_initializer())
    return module
