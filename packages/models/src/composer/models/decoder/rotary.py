"""Rotary position embedding: where a token stands turns its queries and keys.

Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding (2021). A vector of size D
is taken as D / 2 complex numbers, number i made of entries i and i + D / 2, and each is turned by
the position times an angle of its own. The product of a query and a key then depends on the
distance between them only, so padding in front and documents behind each other need no care.

Angles are computed when they are needed and not kept as buffers: a model that was built without
data, or moved to half precision, has the right ones.
"""

from __future__ import annotations

import torch

__all__ = ["Rotation", "rotate", "rotation"]

#: Cosines and sines, each of shape (T, D).
Rotation = tuple[torch.Tensor, torch.Tensor]


def rotation(
    first: int, count: int, size: int, *, base: float, device: torch.device | None = None
) -> Rotation:
    """Compute the turns of a run of positions.

    Args:
        first: The first position.
        count: Number of positions, T.
        size: Size of the vectors to turn, D; even.
        base: The slowest angle is about one over this.
        device: Where the result lives.

    Returns:
        Cosines and sines of shape (T, D), in single precision.

    Example:
        >>> cosines, _ = rotation(0, 2, 2, base=10000.0)
        >>> cosines
        tensor([[1.0000, 1.0000],
                [0.5403, 0.5403]])
    """
    exponents = torch.arange(0, size, 2, dtype=torch.float32, device=device) / size
    positions = torch.arange(first, first + count, dtype=torch.float32, device=device)
    angles = torch.outer(positions, base**-exponents)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, turns: Rotation) -> torch.Tensor:
    """Turn vectors.

    Args:
        x: Of shape (..., T, D).
        turns: What :func:`rotation` returned for T and D.

    Returns:
        Turned vectors, of the shape and dtype of ``x``.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> rotate(x, rotation(0, 2, 2, base=10000.0))  # by nothing, and by one radian
        tensor([[1.0000, 0.0000],
                [0.5403, 0.8415]])
    """
    cosines, sines = turns
    first, second = x.float().chunk(2, dim=-1)
    turned = x.float() * cosines + torch.cat([-second, first], dim=-1) * sines
    return turned.to(x.dtype)
