"""Exports a model to a file, runs the file, and reports how far its outputs are apart."""

from __future__ import annotations

import logging
import math
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from composer.models.export.arguments import (
    check_names,
    check_opset,
    check_target,
    dynamic_dims,
)
from composer.models.export.formats import (
    WRITERS,
    ExportFormat,
    OpsetError,
    Runner,
    WriterOptions,
)
from composer.models.export.program import Program, as_program
from composer.utils.checks import check_number

__all__ = ["ExportReport", "export_model"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExportReport:
    """What was exported and how it compares with the live model.

    Attributes:
        path: The file.
        format: Its format.
        num_bytes: Its size, with files that belong to it.
        max_difference: The largest difference of an output number from the live model's.
        largest: The largest finite output number, by which the difference is to be judged.
        any_batch_size: Whether it was run with another number of samples than the example's.

    Example:
        >>> report = ExportReport(Path("m.onnx"), ExportFormat.ONNX, 2048, 1e-6, 2.0, True)
        >>> print(report)
        m.onnx (onnx, 2.0 KiB): differs from the live model by at most 1e-06 where its outputs reach 2; any batch size
    """  # noqa: E501 - one line is what is printed

    path: Path
    format: ExportFormat
    num_bytes: int
    max_difference: float
    largest: float
    any_batch_size: bool

    def __str__(self) -> str:
        sizes = "any batch size" if self.any_batch_size else "the batch size of the sample only"
        return (
            f"{self.path} ({self.format.value}, {self.num_bytes / 1024:.1f} KiB): differs from the "
            f"live model by at most {self.max_difference:.3g} where its outputs reach "
            f"{self.largest:.3g}; {sizes}"
        )


def export_model(
    model: torch.nn.Module,
    save_format: str | ExportFormat,
    save_path: str | Path,
    sample_input: Any,
    *,
    dynamic_axes: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    onnx_opset_version: int | None = None,
    prepare: Callable[[torch.nn.Module], torch.nn.Module] | None = None,
    tolerance: float = 1e-3,
) -> ExportReport:
    """Export a model, run the export, and compare.

    The model is copied to the host and put into evaluation mode; it is left as it is. The export is
    run with the sample and, where it takes another number of samples, with one more; only if its
    outputs are those of the live model is the file put in its place.

    Args:
        model: A :class:`ComposerModel`, or any module.
        save_format: An :class:`ExportFormat` or its name.
        save_path: The file; its folder is made.
        sample_input: A batch for a :class:`ComposerModel`; for another module its arguments, with a
            dictionary of named ones last.
        dynamic_axes: Name of an input to its dimensions that may have another length; needs
            ``input_names``. By default the first dimension, if all inputs agree about it.
        input_names: Names of the inputs in order, for ONNX; those left out keep the exporter's.
        output_names: The same for the outputs.
        onnx_opset_version: Version of the ONNX operators, for ONNX; torch's own choice by default.
        prepare: Changes the copy before it is exported, and returns it.
        tolerance: Largest difference accepted, as a share of the largest output.

    Returns:
        The report.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is not accepted, torch cannot export the model in this format, or
            the outputs differ by more.
        MissingConditionalImportError: If the format needs a package that is not installed.

    Example:
        >>> from composer.models import ComposerClassifier
        >>> model = ComposerClassifier(torch.nn.Linear(4, 3), num_classes=3)
        >>> folder = Path(tempfile.mkdtemp())
        >>> batch = (torch.rand(2, 4), torch.zeros(2, dtype=torch.long))
        >>> report = export_model(model, "torch_export", folder / "model.pt2", batch)
        >>> report.max_difference < 1e-6, report.any_batch_size
        (True, True)
    """
    chosen = ExportFormat(save_format)
    path = check_target(save_path)
    check_number("tolerance", tolerance, low=0)
    check_opset(onnx_opset_version, chosen)
    check_names("input_names", input_names)
    check_names("output_names", output_names)
    program = as_program(model, sample_input, prepare=prepare)
    if program.batch_size == 1:
        # A length of one would be taken for a constant by torch.
        program = program.with_inputs(lambda tensor: torch.cat([tensor, tensor]))
    check_names("input_names", input_names, program.inputs)
    if output_names is not None:
        check_names("output_names", output_names, program.run())
    options = WriterOptions(
        input_names,
        output_names,
        dynamic_dims(program, dynamic_axes, input_names, output_names),
        onnx_opset_version,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        # In a folder of its own under its own name: large ONNX files refer to a second one by name.
        written = Path(folder) / path.name
        run = _written(chosen, program, written, options)
        report = _compare(program, run, path, chosen, tolerance=tolerance)
        parts = sorted(Path(folder).iterdir(), key=lambda part: part == written)
        size = sum(part.stat().st_size for part in parts)
        for part in parts:
            part.replace(path.parent / part.name)
    return ExportReport(path, chosen, size, *report)


def _written(chosen: ExportFormat, program: Program, path: Path, options: WriterOptions) -> Runner:
    try:
        return WRITERS[chosen](program, path, options)
    except (ImportError, OSError, OpsetError):
        raise
    except Exception as error:
        # The exporters' errors have many classes and pages of text, and colours; the first line of
        # the one that began it says most.
        first: BaseException = error
        while first.__cause__ is not None:
            first = first.__cause__
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(first))
        reason = next((line for line in text.splitlines() if line.strip()), "")
        others = ", ".join(other.value for other in ExportFormat if other is not chosen)
        raise ValueError(
            f"{type(program.module).__name__} cannot be exported as {chosen.value}: "
            f"{type(first).__name__}: {reason.strip()}. Other formats are {others}"
            f"{_plainer_attention(program.module) if chosen is ExportFormat.ONNX else ''}"
        ) from error


def _plainer_attention(module: torch.nn.Module) -> str:
    # Of torch's fused attention its exporter to ONNX keeps strides that it then cannot view.
    kind = getattr(getattr(module, "config", None), "_attn_implementation", "eager")
    if kind == "eager" or not hasattr(module, "set_attn_implementation"):
        return ""
    return (
        f"; or keep the format and change the attention of the model, which is {kind!r}: "
        f"prepare=lambda model: model.model.set_attn_implementation('eager') or model"
    )


def _compare(
    program: Program,
    run: Runner,
    path: Path,
    chosen: ExportFormat,
    *,
    tolerance: float,
) -> tuple[float, float, bool]:
    difference, largest = _differ(program.run(), run(program), path)
    any_size = False
    if program.batch_size is not None:
        other = program.with_inputs(lambda tensor: torch.cat([tensor.flip(0), tensor[:1]]))
        try:
            got = run(other)
        except Exception:
            # The exporter took the number of samples for a constant; the report says so.
            log.debug("%s does not take another number of samples", path, exc_info=True)
        else:
            more = _differ(other.run(), got, path)
            difference, largest = max(difference, more[0]), max(largest, more[1])
            any_size = True
    if not difference <= tolerance * max(largest, 1e-6):
        raise ValueError(
            f"the {chosen.value} export of {path.name} differs from the live model by "
            f"{difference:.3g} where its outputs reach {largest:.3g}; accepted is a share of "
            f"{tolerance}. Nothing was written"
        )
    return difference, largest, any_size


def _differ(
    expected: list[torch.Tensor], got: list[torch.Tensor], path: Path
) -> tuple[float, float]:
    if len(expected) != len(got):
        raise ValueError(
            f"the export of {path.name} returns {len(got)} tensors, the live model {len(expected)}"
        )
    difference = largest = 0.0
    for live, exported in zip(expected, got, strict=True):
        if live.shape != exported.shape:
            raise ValueError(
                f"the export of {path.name} returns a tensor of shape {tuple(exported.shape)}, the "
                f"live model one of {tuple(live.shape)}"
            )
        if live.numel():
            live, exported = live.double(), exported.double()
            largest = max(largest, float(live.abs().nan_to_num(nan=0.0, posinf=0.0).max()))
            # Equal infinities differ by nothing, and nor do two that are no number; subtracting
            # them gives no number. Where only one of them is none, no difference is larger.
            same = (live == exported) | (live.isnan() & exported.isnan())
            apart = torch.where(same, 0.0, (live - exported).abs()).nan_to_num(
                nan=math.inf, posinf=math.inf
            )
            difference = max(difference, float(apart.max()))
    return difference, largest
