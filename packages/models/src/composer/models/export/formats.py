"""One function per format: writes a program to a file, and returns a way to run the file.

What comes back from the file is what is compared with the live model: an export that cannot be
read, or that computes something else, is found out here and not at a user's.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from composer.models.export.masks import followable_masks
from composer.models.export.program import Program, tensors_in
from composer.models.export.weights import export_safetensors
from composer.utils.imports import MissingConditionalImportError
from composer.utils.string_enum import StringEnum

__all__ = ["WRITERS", "ExportFormat", "OpsetError", "Runner", "WriterOptions"]

#: Runs what was exported with the inputs of a program.
Runner = Callable[[Program], list[torch.Tensor]]


class ExportFormat(StringEnum):
    """What a model can be exported as.

    Attributes:
        TORCHSCRIPT: A program of TorchScript, which torch has deprecated.
        ONNX: The Open Neural Network Exchange format.
        TORCH_EXPORT: A program of ``torch.export``.
        SAFETENSORS: The weights alone.

    Example:
        >>> ExportFormat("onnx") is ExportFormat.ONNX
        True
    """

    TORCHSCRIPT = "torchscript"
    ONNX = "onnx"
    TORCH_EXPORT = "torch_export"
    SAFETENSORS = "safetensors"


@dataclass(frozen=True)
class WriterOptions:
    """What a writer is told beside the program: names, lengths that may change, a version.

    Attributes:
        inputs: Names of the inputs; the exporter's own by default.
        outputs: Names of the outputs; the exporter's own by default.
        dynamic: Per input, the dimensions that may have another length.
        opset: Version of the ONNX operators; the exporter's own by default.

    Example:
        >>> WriterOptions(inputs=["images"], dynamic=[[0]]).outputs is None
        True
    """

    inputs: Sequence[str] | None = None
    outputs: Sequence[str] | None = None
    dynamic: Sequence[Sequence[int]] = field(default_factory=tuple)
    opset: int | None = None


def _runner(module: Callable[..., Any]) -> Runner:
    def run(example: Program) -> list[torch.Tensor]:
        with torch.no_grad():
            return tensors_in(module(*example.args, **example.kwargs))

    return run


def _dynamic_shapes(program: Program, options: WriterOptions) -> Any:
    """The dimensions that may change, in the structure of the arguments."""
    waiting = iter(options.dynamic)

    def of(leaf: Any) -> dict[int, Any] | None:
        if not isinstance(leaf, torch.Tensor):
            return None
        return dict.fromkeys(next(waiting, ()), torch.export.Dim.AUTO)

    return pytree.tree_map(of, (program.args, program.kwargs))


def _captured(program: Program, options: WriterOptions) -> torch.export.ExportedProgram:
    args, kwargs = _dynamic_shapes(program, options)
    # Positional and named arguments together, under the names of the module's forward.
    bound = inspect.signature(program.module.forward).bind(*program.args, **program.kwargs)
    shapes = inspect.signature(program.module.forward).bind(*args, **kwargs)
    with followable_masks():
        return torch.export.export(
            program.module,
            program.args,
            program.kwargs,
            dynamic_shapes={name: shapes.arguments[name] for name in bound.arguments}
            if options.dynamic
            else None,
        )


def _write_torch_export(program: Program, path: Path, options: WriterOptions) -> Runner:
    torch.export.save(_captured(program, options), path)
    return _runner(torch.export.load(path).module())


class OpsetError(ValueError):
    """The version of the ONNX operators that was asked for cannot be had.

    Example:
        >>> issubclass(OpsetError, ValueError)
        True
    """


@contextlib.contextmanager
def _quiet_conversion() -> Iterator[None]:
    """Where a version cannot be had, torch prints its trace and goes on; here it is an error."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _write_onnx(program: Program, path: Path, options: WriterOptions) -> Runner:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 - torch's exporter needs it
        from onnx import checker, defs
    except ImportError as error:
        raise MissingConditionalImportError(
            "onnx", error.name or "onnx", distribution="composer-models"
        ) from error
    newest = defs.onnx_opset_version()
    if options.opset is not None and options.opset > newest:
        raise OpsetError(
            f"onnx_opset_version={options.opset} is none of the installed onnx; accepted are "
            f"versions up to {newest}"
        )
    with _quiet_conversion():
        exported = torch.onnx.export(
            _captured(program, options),
            dynamo=True,
            input_names=options.inputs,
            output_names=options.outputs,
            opset_version=options.opset,
            verbose=False,
        )
    assert exported is not None
    written = exported.model.opset_imports.get("")
    if options.opset not in (None, written):
        raise OpsetError(
            f"onnx_opset_version={options.opset} cannot be had for {type(program.module).__name__}:"
            f" it takes operators of version {written}, which do not all exist in the other. Give "
            f"{written} or more, up to {newest}, or leave it to torch"
        )
    exported.save(path)
    checker.check_model(str(path))
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), quiet, providers=["CPUExecutionProvider"])
    wanted = [node.name for node in session.get_inputs()]

    def run(example: Program) -> list[torch.Tensor]:
        given = {
            name: tensor.numpy(force=True)
            for name, tensor in zip(wanted, example.inputs, strict=True)
        }
        return [torch.as_tensor(value) for value in session.run(None, given)]

    return run


@contextlib.contextmanager
def _without_deprecations() -> Iterator[None]:
    """TorchScript says at every call that it is going; that it was asked for is known."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"`torch\.jit\.")
        yield


def _by_name(bound: inspect.BoundArguments) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
            raise TypeError(f"a trace cannot take {name!r} beside named arguments")
        named |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return named


def _write_torchscript(program: Program, path: Path, options: WriterOptions) -> Runner:
    with _without_deprecations(), followable_masks():
        try:
            if program.kwargs:
                raise RuntimeError("a script takes named arguments, a trace of them is simpler")
            scripted: Any = torch.jit.script(program.module)
        except Exception:
            # What a script cannot express, a trace of the example can.
            if program.kwargs:
                # A trace takes all arguments by name or none.
                named = inspect.signature(program.module.forward).bind(
                    *program.args, **program.kwargs
                )
                scripted = torch.jit.trace(
                    program.module, example_kwarg_inputs=_by_name(named), strict=False
                )
            else:
                scripted = torch.jit.trace(program.module, program.args, strict=False)
        torch.jit.save(scripted, path)
        return _runner(torch.jit.load(path))


def _write_safetensors(program: Program, path: Path, options: WriterOptions) -> Runner:
    # This says what to install where the package is missing, so it goes before the import.
    tied, _ = export_safetensors(program.module.state_dict(), path)
    from safetensors.torch import load_file

    twin = copy.deepcopy(program.module)
    weights = load_file(path)
    twin.load_state_dict({**weights, **{name: weights[first] for name, first in tied.items()}})
    return _runner(twin)


#: Format to the function that writes it.
WRITERS: dict[ExportFormat, Callable[[Program, Path, WriterOptions], Runner]] = {
    ExportFormat.ONNX: _write_onnx,
    ExportFormat.SAFETENSORS: _write_safetensors,
    ExportFormat.TORCH_EXPORT: _write_torch_export,
    ExportFormat.TORCHSCRIPT: _write_torchscript,
}
