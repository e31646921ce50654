"""ColOut on tensors and Pillow images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from composer.utils.checks import check_number

__all__ = ["ColOutTransform", "check_colout", "colout_batch", "drop_lines"]


def colout_batch(
    sample: Any,
    p_row: float = 0.15,
    p_col: float = 0.15,
    resize_target: bool | str = "auto",
) -> Any:
    """Drop random rows and columns, the same ones of every image of a batch.

    Of H rows (1 - ``p_row``) H are kept, rounded down, but at least one; likewise for columns.
    Random numbers come from torch's global generator on the host, whatever the device.

    Args:
        sample: Images, or a pair of images and target. Images are a tensor of shape (N, C, H, W) or
            (C, H, W), or a Pillow image.
        p_row: Share of the rows that is dropped.
        p_col: Share of the columns that is dropped.
        resize_target: ``"auto"`` drops the same rows and columns of a target that has a value for
            every pixel, such as a mask; ``True`` demands such a target; ``False`` leaves targets
            alone.

    Returns:
        New, smaller images; with a target if one was given.

    Raises:
        TypeError: If there is no image or an argument has the wrong type, or if
            ``resize_target="auto"`` and the target is a collection, about which it cannot decide.
        ValueError: If ``sample`` has more than two members, or a value is out of range.

    Example:
        >>> images, masks = torch.rand(4, 3, 20, 10), torch.zeros(4, 20, 10)
        >>> colout_batch(images).shape
        torch.Size([4, 3, 17, 8])
        >>> [part.shape for part in colout_batch((images, masks), p_row=0.5, p_col=0.0)]
        [torch.Size([4, 3, 10, 10]), torch.Size([4, 10, 10])]
    """
    check_colout(p_row, p_col, resize_target)
    if not isinstance(sample, (tuple, list)):
        if resize_target is True:
            raise ValueError(
                "resize_target=True needs a pair of images and target, and only images were given"
            )
        return drop_lines(sample, None, p_row, p_col, False)[0]
    if len(sample) != 2:
        raise ValueError(
            f"sample has {len(sample)} members; accepted are images, or a pair of images and "
            f"target. Give colout_batch the two of them, or use ColOut with input_key and "
            f"target_key"
        )
    return drop_lines(sample[0], sample[1], p_row, p_col, resize_target)


class ColOutTransform:
    """:func:`colout_batch` on single samples, as a transform for a data set of one's own.

    Args:
        p_row: Share of the rows that is dropped.
        p_col: Share of the columns that is dropped.
        resize_target: Whether a target loses the same rows and columns.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a value is out of range.

    Example:
        >>> ColOutTransform(p_row=0.5, p_col=0.25)(torch.rand(3, 8, 8)).shape
        torch.Size([3, 4, 6])
    """

    def __init__(
        self, p_row: float = 0.15, p_col: float = 0.15, resize_target: bool | str = "auto"
    ) -> None:
        check_colout(p_row, p_col, resize_target)
        self.p_row = p_row
        self.p_col = p_col
        self.resize_target = resize_target

    def __call__(self, sample: Any) -> Any:
        """Drop rows and columns.

        Args:
            sample: An image, or a pair of image and target.

        Returns:
            The same, smaller.

        Example:
            >>> image, label = ColOutTransform()((torch.rand(3, 8, 8), 5))
            >>> image.shape, label
            (torch.Size([3, 6, 6]), 5)
        """
        return colout_batch(sample, self.p_row, self.p_col, self.resize_target)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(p_row={self.p_row}, p_col={self.p_col}, "
            f"resize_target={self.resize_target!r})"
        )


def check_colout(p_row: float, p_col: float, resize_target: bool | str) -> None:
    """Refuse arguments that cannot be meant.

    Args:
        p_row: Share of the rows.
        p_col: Share of the columns.
        resize_target: What happens to targets.

    Raises:
        TypeError: If a share is no number.
        ValueError: If a value is out of range.

    Example:
        >>> check_colout(0.15, 0.15, "auto")
    """
    check_number("p_row", p_row, low=0.0, high=1.0)
    check_number("p_col", p_col, low=0.0, high=1.0)
    if resize_target != "auto" and not isinstance(resize_target, bool):
        raise ValueError(f"resize_target={resize_target!r} must be 'auto', True or False")


def drop_lines(
    images: Any, target: Any, p_row: float, p_col: float, resize_target: bool | str
) -> tuple[Any, Any]:
    """Drop random rows and columns of images, and of their target where it has the same ones.

    Args:
        images: A tensor of shape (N, C, H, W) or (C, H, W), or a Pillow image.
        target: The target, of any type.
        p_row: Share of the rows that is dropped.
        p_col: Share of the columns that is dropped.
        resize_target: What happens to the target.

    Returns:
        Images and target.

    Raises:
        TypeError: If there is no image, or it cannot be told what to do with the target.
        ValueError: If the target must have a value for every pixel, and has not.

    Example:
        >>> drop_lines(torch.rand(1, 4, 4), 7, 0.5, 0.5, "auto")[1]
        7
    """
    size = _size_of(images)
    if size is None:
        raise TypeError(
            f"the images are a {type(images).__name__}; accepted are a tensor of shape "
            f"(N, C, H, W) or (C, H, W) and a Pillow image"
        )
    has_pixels = bool(resize_target) and _has_pixels(images, target, size)
    if resize_target is True and not has_pixels:
        raise ValueError(
            f"resize_target=True needs a target with a value for every pixel of images of "
            f"{size[0]} rows and {size[1]} columns; the target is {_described(target)}. Use "
            f"'auto' or False"
        )
    rows, columns = _draw_lines(size[0], p_row), _draw_lines(size[1], p_col)
    return _kept(images, rows, columns), _kept(target, rows, columns) if has_pixels else target


def _size_of(image: Any, *, least_ndim: int = 3) -> tuple[int, int] | None:
    """Rows and columns of an image; ``None`` for anything else."""
    if isinstance(image, torch.Tensor):
        if image.ndim < least_ndim:
            return None
        return image.shape[-2], image.shape[-1]
    if all(hasattr(image, name) for name in ("mode", "size", "getbands")):
        return image.size[1], image.size[0]
    return None


def _has_pixels(images: Any, target: Any, size: tuple[int, int]) -> bool:
    if isinstance(target, (tuple, list, Mapping)):
        raise TypeError(
            f"the target is {_described(target)}, and it cannot be told whether rows and columns "
            f"are to be dropped of what it holds; pass resize_target=False to leave it as it is, "
            f"or select one tensor as the target"
        )
    # A mask may lack the channels that images have.
    least = images.ndim - 1 if isinstance(images, torch.Tensor) else 2
    return _size_of(target, least_ndim=least) == size


def _described(target: Any) -> str:
    if isinstance(target, torch.Tensor):
        return f"a tensor of shape {tuple(target.shape)}"
    return f"a {type(target).__name__}"


def _draw_lines(size: int, share: float) -> torch.Tensor:
    # A small number makes up for shares that are not exact: 1 - 0.9 of 10 is less than 1.
    kept = max(1, int(size * (1.0 - share) + 1e-9))
    return torch.randperm(size)[:kept].sort().values


def _kept(image: Any, rows: torch.Tensor, columns: torch.Tensor) -> Any:
    if not isinstance(image, torch.Tensor):
        return _kept_pillow(image, rows, columns)
    rows, columns = (lines.to(image.device, non_blocking=True) for lines in (rows, columns))
    smaller = image.index_select(-2, rows).index_select(-1, columns)
    if image.ndim == 4 and not image.is_contiguous():
        return smaller.contiguous(memory_format=_memory_format(image))
    return smaller


def _memory_format(image: torch.Tensor) -> torch.memory_format:
    if image.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    return torch.contiguous_format


def _kept_pillow(image: Any, rows: torch.Tensor, columns: torch.Tensor) -> Any:
    import numpy as np
    from PIL import Image

    pixels = np.asarray(image)[rows.numpy()][:, columns.numpy()]
    smaller = Image.fromarray(pixels)
    if image.mode == "P":
        # Such as masks whose values are classes, and whose palette is for looking at them.
        smaller.putpalette(image.getpalette())
    if smaller.mode != image.mode:
        raise ValueError(
            f"the Pillow image has mode {image.mode!r}, which is not kept; convert it first, for "
            f"instance to 'RGB' or 'L'"
        )
    return smaller
