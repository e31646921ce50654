"""Writes weights as safetensors, the format that other tools read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from composer.models.weight_types import WEIGHT_TYPES
from composer.utils.checks import check_choice
from composer.utils.imports import MissingConditionalImportError
from composer.utils.paths import complete_or_absent

__all__ = ["DTYPES", "export_safetensors", "tied_names"]

#: Name of a type to the type, for floating point weights.
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in WEIGHT_TYPES}


def tied_names(weights: Mapping[str, Any]) -> dict[str, str]:
    """Find tensors that are the same memory under several names.

    Args:
        weights: Name to tensor.

    Returns:
        Each further name to the first one.

    Example:
        >>> a = torch.ones(2, 2)
        >>> tied_names({"embedding": a, "head": a, "copy": a.clone()})
        {'head': 'embedding'}
    """
    first: dict[Any, str] = {}
    tied = {}
    for name, tensor in weights.items():
        if not isinstance(tensor, torch.Tensor) or tensor.numel() == 0:
            continue
        # With equal strides and start, two views of one memory hold the same numbers.
        place = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if place in first:
            tied[name] = first[place]
        else:
            first[place] = name
    return tied


def export_safetensors(
    weights: Mapping[str, Any],
    path: str | Path,
    *,
    dtype: str | None = None,
    facts: Mapping[str, str] | None = None,
) -> tuple[dict[str, str], list[str]]:
    """Write weights to a file of safetensors, complete or not at all.

    A tensor with several names is written once, under the first; the file's metadata says of each
    other name which one it stands for, as ``safetensors.torch.save_model`` does.

    Args:
        weights: Name to tensor.
        path: The file.
        dtype: Type that floating point tensors are turned into; unchanged by default.
        facts: What else the metadata says.

    Returns:
        The names that were tied, and the names that hold no tensor and were left out.

    Raises:
        MissingConditionalImportError: If safetensors is not installed.
        ValueError: If ``dtype`` is unknown, or there is no tensor.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "model.safetensors")
        >>> export_safetensors({"weight": torch.ones(2)}, path)
        ({}, [])
        >>> from safetensors.torch import load_file
        >>> load_file(path)
        {'weight': tensor([1., 1.])}
    """
    if dtype is not None:
        check_choice("dtype", dtype, DTYPES)
    try:
        from safetensors.torch import save_file
    except ImportError as error:
        raise MissingConditionalImportError(
            "safetensors", "safetensors", distribution="composer-models"
        ) from error
    tied = tied_names(weights)
    left_out = [name for name, value in weights.items() if not isinstance(value, torch.Tensor)]
    tensors = {}
    for name, value in weights.items():
        if name in tied or not isinstance(value, torch.Tensor):
            continue
        tensor = value.detach()
        if dtype is not None and tensor.is_floating_point():
            tensor = tensor.to(DTYPES[dtype])
        # Views that overlap without being equal get memory of their own.
        if not tensor.is_contiguous() or _is_part(tensor):
            tensor = tensor.clone(memory_format=torch.contiguous_format)
        tensors[name] = tensor
    if not tensors:
        raise ValueError("there are no weights, so there is nothing to export")
    metadata = {"format": "pt", **(facts or {}), **tied}
    with complete_or_absent(Path(path)) as temporary:
        save_file(tensors, str(temporary), metadata=metadata)
    return tied, left_out


def _is_part(tensor: torch.Tensor) -> bool:
    return tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size()
