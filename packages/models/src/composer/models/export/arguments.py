"""Checks of what an export is asked for, before anything is copied, traced or written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from composer.models.export.formats import ExportFormat
from composer.models.export.program import Program
from composer.utils.checks import check_integer
from composer.utils.paths import local_path

__all__ = ["check_names", "check_opset", "check_target", "dynamic_dims"]


def check_target(save_path: Any) -> Path:
    """Read where the file goes.

    Args:
        save_path: What the user gave.

    Returns:
        The path.

    Raises:
        TypeError: If it is no path.
        ValueError: If it is empty, or the URI of another place.
        IsADirectoryError: If there is a folder.
        NotADirectoryError: If what it lies in is a file.

    Example:
        >>> check_target("m.onnx").name
        'm.onnx'
    """
    path = local_path(save_path, "save_path")
    if path.is_dir():
        raise IsADirectoryError(f"save_path={str(save_path)!r} is a folder; name a file in it")
    for parent in path.parents:
        if parent.exists():
            if not parent.is_dir():
                raise NotADirectoryError(f"save_path={str(save_path)!r} is in {parent}, a file")
            break
    return path


def check_opset(version: Any, chosen: ExportFormat) -> None:
    """Refuse a version of the ONNX operators that is none, or that another format has no use for.

    Args:
        version: What the user gave.
        chosen: The format.

    Raises:
        TypeError: If it is no integer.
        ValueError: If it is less than 1, or the format is not ONNX.

    Example:
        >>> check_opset(20, ExportFormat.ONNX)
    """
    if version is None:
        return
    check_integer("onnx_opset_version", version, low=1)
    if chosen is not ExportFormat.ONNX:
        raise ValueError(
            f"onnx_opset_version={version} goes with the format onnx, not with {chosen.value}"
        )


def check_names(argument: str, names: Any, found: Sequence[torch.Tensor] | None = None) -> None:
    """Refuse what does not name inputs or outputs, or more of them than there are.

    Args:
        argument: The argument.
        names: What the user gave.
        found: The inputs or outputs; by default their number is not looked at.

    Raises:
        TypeError: If it is no sequence of texts.
        ValueError: If a name stands twice, or there are too many.

    Example:
        >>> check_names("input_names", ["images"], [torch.zeros(1)])
    """
    if names is None:
        return
    if (
        isinstance(names, str)
        or not isinstance(names, Sequence)
        or not all(isinstance(name, str) and name for name in names)
    ):
        raise TypeError(f"{argument}={names!r} must be a list of names, for instance ['images']")
    if len({*names}) < len(names):
        raise ValueError(f"{argument}={list(names)} has a name twice; each must be another")
    if found is not None and len(names) > len(found):
        raise ValueError(
            f"{argument}={list(names)} has {len(names)} names, but there "
            f"{'is' if len(found) == 1 else 'are'} {len(found)} to be named"
        )


def dynamic_dims(
    program: Program,
    dynamic_axes: Any,
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
) -> list[list[int]]:
    """Read which dimensions of the inputs may have another length.

    Args:
        program: What is exported.
        dynamic_axes: Name of an input to its dimensions; by default the first of each, if all
            inputs agree about it.
        input_names: Names of the inputs.
        output_names: Names of the outputs.

    Returns:
        Per input, the dimensions.

    Raises:
        TypeError: If it is no mapping of names to dimensions.
        ValueError: If a name is unknown, or an input has no such dimension.

    Example:
        >>> program = Program(torch.nn.Linear(2, 1), (torch.zeros(3, 2),), {})
        >>> dynamic_dims(program, {"x": [0]}, ["x"], None)
        [[0]]
    """
    inputs = program.inputs
    if dynamic_axes is None:
        return [[] if program.batch_size is None else [0] for _ in inputs]
    if not isinstance(dynamic_axes, Mapping) or not all(map(_are_dims, dynamic_axes.values())):
        raise TypeError(
            f"dynamic_axes={dynamic_axes!r} must be a mapping of names to dimensions, for instance "
            f"{{'images': [0]}}"
        )
    names = list(input_names or ())
    unknown = sorted(map(str, {*dynamic_axes} - {*names, *(output_names or ())}))
    if unknown or len(names) != len(inputs):
        raise ValueError(
            f"dynamic_axes names {sorted(map(str, dynamic_axes))}, of which {unknown} are unknown; "
            f"there are {len(inputs)} inputs, which input_names={input_names!r} has to name in "
            f"order"
        )
    for name, tensor in zip(names, inputs, strict=True):
        for dim in dynamic_axes.get(name, ()):
            if not 0 <= dim < tensor.ndim:
                raise ValueError(
                    f"dynamic_axes has the dimension {dim} of {name!r}; accepted are 0 to "
                    f"{tensor.ndim - 1}"
                )
    return [sorted(dynamic_axes.get(name, ())) for name in names]


def _are_dims(dims: Any) -> bool:
    """A list of dimensions, or a mapping of them to names, as older exporters of torch take it."""
    return isinstance(dims, (Mapping, Sequence)) and all(
        isinstance(dim, int) and not isinstance(dim, bool) for dim in dims
    )
