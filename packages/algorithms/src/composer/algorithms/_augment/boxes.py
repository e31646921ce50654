"""Random boxes inside images."""

from __future__ import annotations

from typing import Literal

import torch

__all__ = ["Box", "draw_box"]

#: First row, first column, end row, end column; the ends are outside.
Box = tuple[int, int, int, int]


def draw_box(
    image: tuple[int, int],
    box: tuple[int, int],
    *,
    place: Literal["centre", "uniform", "inside"],
    generator: torch.Generator | None = None,
) -> Box:
    """Draw the place of a box and cut off what hangs over the edge.

    Args:
        image: Height and width of the image.
        box: Height and width of the box.
        place: ``"centre"``: the centre is any pixel; ``"uniform"``: every pixel is covered with the
            same probability; ``"inside"``: nothing hangs over.
        generator: Source of random numbers; by default torch's global one.

    Returns:
        The box.

    Example:
        >>> draw_box((8, 6), (8, 6), place="inside")
        (0, 0, 8, 6)
    """
    top, bottom = _draw_span(image[0], box[0], place, generator)
    left, right = _draw_span(image[1], box[1], place, generator)
    return top, left, bottom, right


def _draw_span(
    size: int, length: int, place: str, generator: torch.Generator | None
) -> tuple[int, int]:
    if place == "inside":
        low, high = 0, size - length + 1
    elif place == "uniform":
        low, high = min(1 - length, 0), size
    else:
        low, high = -(length // 2), size - length // 2
    start = int(torch.randint(low, high, (), generator=generator))
    return max(start, 0), max(0, min(start + length, size))
