"""Files of a folder that transformers loads from: weights in shards, and configurations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from composer.models.huggingface.safetensors_file import TensorShape, write_safetensors

__all__ = ["Exported", "stored_shape", "told_config", "write_json", "write_shards"]


@dataclass
class Exported:
    """What was written.

    Attributes:
        files: Names in the folder.
        num_tensors: How many weights.
        tied: Names that were left out to the name that stands for them.

    Example:
        >>> Exported(["model.safetensors"], 2).tied
        {}
    """

    files: list[str] = field(default_factory=list)
    num_tensors: int = 0
    tied: dict[str, str] = field(default_factory=dict)


def stored_shape(tensor: torch.Tensor, dtype: torch.dtype | None) -> TensorShape:
    """Say as what a weight is written.

    Args:
        tensor: The weight.
        dtype: Type that floating point weights are turned into; unchanged by default.

    Returns:
        Its type and shape in the file.

    Example:
        >>> stored_shape(torch.zeros(2, 3), torch.float16)
        (torch.float16, (2, 3))
    """
    converted = dtype is not None and tensor.is_floating_point()
    return (dtype if converted and dtype is not None else tensor.dtype, tuple(tensor.shape))


def told_config(
    config: Mapping[str, Any], class_name: str, shapes: Iterable[TensorShape]
) -> dict[str, Any]:
    """Put into a configuration what the loaders go by: the class, and the type of the weights.

    Args:
        config: The configuration, which is not changed.
        class_name: The class; may be empty.
        shapes: Types and shapes of the weights.

    Returns:
        The configuration as it is written.

    Example:
        >>> told_config({"n_embd": 4}, "GPT2Model", [(torch.float16, (1,))])
        {'n_embd': 4, 'architectures': ['GPT2Model'], 'dtype': 'float16'}
    """
    told = dict(config)
    told.pop("_name_or_path", None)
    if class_name:
        told["architectures"] = [class_name]
    floating = next((dtype for dtype, _ in shapes if dtype.is_floating_point), None)
    if floating is not None:
        # Releases of transformers before 4.56 know it by the older name.
        key = "torch_dtype" if "torch_dtype" in told else "dtype"
        told[key] = str(floating).removeprefix("torch.")
    return told


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file of JSON, as the libraries do.

    Args:
        path: The file.
        content: What it holds.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "config.json")
        >>> write_json(path, {"n_embd": 4})
        >>> json.loads(path.read_text())
        {'n_embd': 4}
    """
    path.write_text(json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def write_shards(
    folder: Path, stem: str, shapes: Mapping[str, TensorShape], weights: Mapping[str, Any],
    largest: int,
) -> list[str]:  # fmt: skip
    """Write weights into as many files as their size takes, with an index if there are several.

    Args:
        folder: The folder.
        stem: What the files are called.
        shapes: Name to type and shape in the file.
        weights: Name to weight, of which one at a time is read.
        largest: Bytes that a file may have; a larger weight has a file to itself.

    Returns:
        Names of the files.

    Example:
        >>> import tempfile
        >>> weights = {"a": torch.zeros(4), "b": torch.zeros(4)}
        >>> shapes = {name: stored_shape(weight, None) for name, weight in weights.items()}
        >>> write_shards(Path(tempfile.mkdtemp()), "model", shapes, weights, 16)[0]
        'model-00001-of-00002.safetensors'
    """
    sizes = {name: torch.Size(shape).numel() * dtype.itemsize for name, (dtype, shape) in
             shapes.items()}  # fmt: skip
    shards: list[list[str]] = [[]]
    room = largest
    for name, size in sizes.items():
        if size > room and shards[-1]:
            shards.append([])
            room = largest
        shards[-1].append(name)
        room -= size

    def read(name: str) -> torch.Tensor:
        return weights[name].to(shapes[name][0])

    count = len(shards)
    place: dict[str, str] = {}
    for number, names in enumerate(shards, start=1):
        numbered = f"{stem}-{number:05d}-of-{count:05d}" if count > 1 else stem
        file = f"{numbered}.safetensors"
        write_safetensors(folder / file, {name: shapes[name] for name in names}, read)
        place.update(dict.fromkeys(names, file))
    files = sorted(set(place.values()))
    if count > 1:
        index = f"{stem}.safetensors.index.json"
        total = {"total_size": sum(sizes.values())}
        write_json(folder / index, {"metadata": total, "weight_map": dict(sorted(place.items()))})
        files.append(index)
    return files
