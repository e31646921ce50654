"""Exports for inference: surgery, weights from a checkpoint, transforms, then the file.

The file itself is written, run and compared by :mod:`composer.models.export`; this is what scripts
written for Composer 0.32 call, and what needs a checkpoint or a logger.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from composer.checkpoint.load import load_checkpoint
from composer.core.logger import Logger
from composer.core.state import State
from composer.devices.cpu import DeviceCPU
from composer.models.export import ExportFormat, ExportReport, export_model
from composer.utils import dist
from composer.utils.checks import check_bool
from composer.utils.iteration import ensure_tuple
from composer.utils.object_store import ObjectStore, maybe_create_object_store_from_uri
from composer.utils.paths import location, parse_uri

__all__ = [
    "ExportFormat",
    "Transform",
    "export_for_inference",
    "export_with_logger",
    "quantize_dynamic",
]

log = logging.getLogger(__name__)

#: Takes a module, changes it or makes another, and returns it.
Transform = Callable[[torch.nn.Module], torch.nn.Module]


def _quantize(
    model: torch.nn.Module, *, qconfig_spec: set[type[torch.nn.Module]], dtype: torch.dtype
) -> torch.nn.Module:
    from torch.ao.quantization import quantize_dynamic as quantize

    quantized: torch.nn.Module = quantize(model, qconfig_spec=qconfig_spec, dtype=dtype)
    return quantized


#: A :data:`Transform`: the linear layers' weights become 8-bit integers, while torch has it.
quantize_dynamic: Transform = partial(_quantize, qconfig_spec={torch.nn.Linear}, dtype=torch.qint8)


def export_for_inference(
    model: torch.nn.Module,
    save_format: str | ExportFormat,
    save_path: str,
    save_object_store: ObjectStore | None = None,
    sample_input: Any | None = None,
    dynamic_axes: Any | None = None,
    surgery_algs: Callable[[torch.nn.Module], Any]
    | Sequence[Callable[[torch.nn.Module], Any]]
    | None = None,
    transforms: Sequence[Transform] | None = None,
    onnx_opset_version: int | None = None,
    load_path: str | None = None,
    load_object_store: ObjectStore | None = None,
    load_strict: bool = False,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> ExportReport | None:
    """Export a model, with weights from a checkpoint if one is named.

    The model is copied to the host; the copy gets the surgery, the weights (with the algorithms
    that the checkpoint says shaped its model) and the transforms, is put into evaluation mode and
    exported; the export is run and compared with it. Rank zero does this, the others return.

    Args:
        model: The model, not wrapped for several ranks.
        save_format: ``"torchscript"``, ``"onnx"``, ``"torch_export"`` or ``"safetensors"``.
        save_path: The file, or the URI of one; with ``save_object_store`` the name in it.
        save_object_store: Where the file is uploaded to.
        sample_input: A batch for a ``ComposerModel``, or ``(batch, {})``; for another module its
            arguments. By default an example, for a model of a registered factory.
        dynamic_axes: Name of an input to its dimensions that may have another length; needs
            ``input_names``. By default the number of samples may differ.
        surgery_algs: Functions that change the model before weights are loaded, as those of
            ``composer.functional``; in place of what the checkpoint says was done to its model.
        transforms: Functions that change the model afterwards and return it.
        onnx_opset_version: Version of the ONNX operators.
        load_path: A checkpoint, by its path or URI.
        load_object_store: The store that ``load_path`` is a name in.
        load_strict: Whether the checkpoint must hold exactly the model's weights.
        input_names: Names of the inputs, for ONNX.
        output_names: Names of the outputs, for ONNX.

    Returns:
        How the export compares with the live model; ``None`` on other ranks than zero.

    Raises:
        TypeError: If a path is none, or another argument is of the wrong kind.
        ValueError: If an argument is not accepted, the model cannot be exported in this format, or
            the export computes something else.

    Example:
        >>> from composer.models import mnist_model
        >>> path = Path(tempfile.mkdtemp(), "model.pt2")
        >>> report = export_for_inference(mnist_model(), "torch_export", str(path))
        >>> path.exists(), report.max_difference < 1e-6
        (True, True)
    """
    save_path = location(save_path, "save_path")
    if load_path is not None:
        load_path = location(load_path, "load_path")
    check_bool("load_strict", load_strict)
    for argument, functions in (("surgery_algs", surgery_algs), ("transforms", transforms)):
        for function in ensure_tuple(functions):
            if not callable(function):
                raise TypeError(
                    f"{argument} holds {function!r}; it must be functions that take a model"
                )
    if load_object_store is not None and load_path is None:
        raise ValueError("load_object_store was given without load_path, the name of a checkpoint")
    if dist.get_global_rank() != 0:
        return None
    if sample_input is None:
        from composer.models.cards import example_batch

        try:
            sample_input = example_batch(model, num_samples=2)  # type: ignore[arg-type]
        except ValueError as error:
            raise ValueError(f"sample_input is needed: {error}") from error

    def prepare(twin: torch.nn.Module) -> torch.nn.Module:
        for change in ensure_tuple(surgery_algs):
            twin = _changed(change(twin), twin)
        if load_path is not None:
            state = State(twin, 0, "export", DeviceCPU())
            load_checkpoint(
                load_path,
                state,
                Logger(state),
                object_store=load_object_store,
                load_weights_only=True,
                strict_model_weights=load_strict,
                progress_bar=False,
                # Surgery that the caller has done is not done twice.
                exclude_algorithms=["*"] if surgery_algs else None,
            )
            twin = state.model
        for transform in ensure_tuple(transforms):
            twin = _changed(transform(twin), twin)
        return twin

    def export(path: str | Path) -> ExportReport:
        return export_model(
            model,
            save_format,
            path,
            sample_input,
            dynamic_axes=dynamic_axes,
            input_names=input_names,
            output_names=output_names,
            onnx_opset_version=onnx_opset_version,
            prepare=prepare,
        )

    backend, _, name = parse_uri(save_path)
    if save_object_store is None and backend:
        save_object_store = maybe_create_object_store_from_uri(save_path)
    else:
        name = save_path
    if save_object_store is None:
        report = export(save_path)
    else:
        with tempfile.TemporaryDirectory() as folder:
            local = Path(folder) / PurePosixPath(name).name
            report = export(local)
            for part in local.parent.iterdir():
                target = str(PurePosixPath(name).with_name(part.name))
                save_object_store.upload_object(target, str(part))
    log.info("%s", report)
    return report


def _changed(result: Any, model: torch.nn.Module) -> torch.nn.Module:
    """Functions that change a model in place may return nothing, or what they replaced."""
    return result if isinstance(result, torch.nn.Module) else model


def export_with_logger(
    model: torch.nn.Module,
    save_format: str | ExportFormat,
    save_path: str,
    logger: Logger,
    save_object_store: ObjectStore | None = None,
    sample_input: Any | None = None,
    transforms: Sequence[Transform] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> ExportReport | None:
    """Export a model and hand the file to the loggers, if one of them can upload.

    Args:
        model: The model.
        save_format: As for :func:`export_for_inference`.
        save_path: The file; its name at the loggers if one of them can upload.
        logger: The run's logger.
        save_object_store: Where the file is uploaded to, in place of the loggers.
        sample_input: As for :func:`export_for_inference`.
        transforms: As for :func:`export_for_inference`.
        input_names: Names of the inputs, for ONNX.
        output_names: Names of the outputs, for ONNX.

    Returns:
        How the export compares with the live model; ``None`` on other ranks than zero.

    Raises:
        ValueError: As for :func:`export_for_inference`.

    Example:
        >>> from composer.models import mnist_model
        >>> path = Path(tempfile.mkdtemp(), "model.pt2")
        >>> report = export_with_logger(mnist_model(), "torch_export", str(path), Logger(None))
        >>> path.exists()
        True
    """

    save_path = location(save_path, "save_path")

    def export(path: str) -> ExportReport | None:
        return export_for_inference(
            model,
            save_format,
            path,
            save_object_store=save_object_store,
            sample_input=sample_input,
            transforms=transforms,
            input_names=input_names,
            output_names=output_names,
        )

    if save_object_store is not None or not logger.has_file_upload_destination():
        return export(save_path)
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder) / Path(save_path).name
        report = export(str(local))
        if report is not None:
            for part in local.parent.iterdir():
                logger.upload_file(str(Path(save_path).with_name(part.name)), part)
            # A destination may upload behind the run; the file goes away with this folder.
            logger.flush()
    return report
