"""Writes files of safetensors one tensor at a time, so that a model need not fit into memory.

The format is a length, a header of JSON that says where each tensor lies, and the bytes of the
tensors. The writer of the ``safetensors`` package takes all tensors of a file at once. Format:
https://github.com/huggingface/safetensors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

__all__ = ["TensorShape", "write_safetensors"]

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}

#: Type and shape of a tensor that is not at hand yet.
TensorShape = tuple[torch.dtype, tuple[int, ...]]


def write_safetensors(
    path: Path,
    shapes: Mapping[str, TensorShape],
    read: Callable[[str], torch.Tensor],
    *,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a file, asking for each tensor when its turn comes.

    Args:
        path: The file.
        shapes: Name to type and shape, of all tensors.
        read: Gives the tensor of a name.
        metadata: What the header says beside them.

    Raises:
        ValueError: If a tensor is of a type that the format does not know, or not as announced.

    Example:
        >>> import tempfile
        >>> from safetensors.torch import load_file
        >>> path = Path(tempfile.mkdtemp(), "a.safetensors")
        >>> write_safetensors(path, {"w": (torch.float32, (2,))}, lambda name: torch.ones(2))
        >>> load_file(path)
        {'w': tensor([1., 1.])}
    """
    header: dict[str, object] = {"__metadata__": dict(metadata or {"format": "pt"})}
    place = 0
    # Larger types first, so that each tensor lies on a multiple of its size.
    names = sorted(shapes, key=lambda name: (-shapes[name][0].itemsize, name))
    for name in names:
        dtype, shape = shapes[name]
        if dtype not in _NAMES:
            raise ValueError(f"{name} is of {dtype}, which safetensors does not hold")
        size = math.prod(shape) * dtype.itemsize
        header[name] = {
            "dtype": _NAMES[dtype],
            "shape": list(shape),
            "data_offsets": [place, place + size],
        }
        place += size
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in names:
            tensor = read(name).detach().cpu().contiguous()
            if (tensor.dtype, tuple(tensor.shape)) != shapes[name]:
                raise ValueError(
                    f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}, announced was "
                    f"{shapes[name]}"
                )
            # Without a copy: an array of bytes is a buffer.
            file.write(tensor.reshape(-1).view(torch.uint8).numpy().data)
