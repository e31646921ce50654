"""``composer export``: a checkpoint as a program that runs elsewhere, compared with the live model.

A checkpoint of a registered model, or of a Hugging Face model, says how the model is built; no
script is needed, and nothing in the checkpoint is run.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from composer.core.model import ComposerModel

__all__ = ["ExportCommand"]

FORMATS = {"onnx": ".onnx", "safetensors": ".safetensors", "torch_export": ".pt2",
           "torchscript": ".ts"}  # fmt: skip


class ExportCommand:
    """Export the model of a checkpoint, run the export, and say how far its outputs are apart.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> command = ExportCommand()
        >>> command.add_arguments(parser)
        >>> command.run(parser.parse_args(["/nowhere", "--format", "onnx"]))
        2
    """

    name: ClassVar[str] = "export"
    help: ClassVar[str] = "export the model of a checkpoint as ONNX, torch.export or TorchScript"
    examples: ClassVar[str] = """\
  composer export runs/first/checkpoints --format onnx              the newest of a folder
  composer export ep2-ba938-rank0.pt --format torch_export --to model.pt2
  composer export s3://bucket/first/ep2.pt --format onnx --opset 20
  composer export old.pt --format onnx --model composer_resnet model_name=resnet18 num_classes=10
"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments.

        Args:
            parser: The parser of this sub-command.

        Example:
            >>> parser = argparse.ArgumentParser()
            >>> ExportCommand().add_arguments(parser)
            >>> parser.parse_args(["a.pt", "--format", "onnx"]).format
            'onnx'
        """
        parser.add_argument(
            "where", metavar="PLACE", help="a checkpoint, a folder of them, or the URI of either"
        )
        parser.add_argument("--format", required=True, choices=sorted(FORMATS), help="the format")
        parser.add_argument(
            "--to",
            metavar="FILE",
            help="the file (default: the checkpoint's name with the format's ending, in the "
            "working folder)",
        )
        parser.add_argument(
            "--model",
            nargs="+",
            metavar=("NAME", "KEY=VALUE"),
            help="how the model is built, where the checkpoint does not say: a registered name "
            "(see `composer models`) and its arguments",
        )
        parser.add_argument(
            "--base",
            metavar="MODEL",
            help="of a Hugging Face checkpoint that holds adapters alone, the model that they are "
            "for: a folder or a name on the Hub (default: what the adapter names)",
        )
        parser.add_argument(
            "--samples", type=int, default=2, help="samples in the example (default: 2)"
        )
        parser.add_argument("--opset", type=int, help="version of the ONNX operators")
        parser.add_argument(
            "--tolerance",
            type=float,
            default=1e-3,
            help="largest difference accepted, as a share of the largest output (default: 0.001)",
        )
        parser.add_argument(
            "--overwrite", action="store_true", help="replace the file if it exists"
        )

    def run(self, args: argparse.Namespace) -> int:
        """Export.

        Args:
            args: The parsed arguments.

        Returns:
            0 if the export computes what the live model does, 2 if it was not made.

        Example:
            >>> parser = argparse.ArgumentParser()
            >>> ExportCommand().add_arguments(parser)
            >>> ExportCommand().run(parser.parse_args(["/nowhere", "--format", "onnx"]))
            2
        """
        from composer.cli.checkpoint_source import open_source
        from composer.core.plugins import PluginError

        try:
            with open_source(args.where) as source:
                item = source.newest()
                if item is None:
                    raise FileNotFoundError(f"there is no whole checkpoint in {source.shown}")
                with source.open(item.name) as path:
                    print(_export(path, item.name, args))
        except (ImportError, OSError, PluginError, TypeError, ValueError) as error:
            print(f"composer export: {error}", file=sys.stderr)
            return 2
        return 0


def _export(path: Path, name: str, args: argparse.Namespace) -> Any:
    from composer.checkpoint import load_checkpoint, read_checkpoint
    from composer.core.logger import Logger
    from composer.core.persistence import WeightsMismatchError
    from composer.core.state import State
    from composer.devices.cpu import DeviceCPU
    from composer.models.cards import example_batch
    from composer.models.export import export_model
    from composer.utils.checks import check_integer, check_number
    from composer.utils.paths import local_path

    target = local_path(
        Path(name).stem + FORMATS[args.format] if args.to is None else args.to, "--to"
    )
    check_integer("--samples", args.samples, low=1)
    check_number("--tolerance", args.tolerance, low=0)
    if args.opset is not None:
        check_integer("--opset", args.opset, low=1)
        if args.format != "onnx":
            raise ValueError(f"--opset={args.opset} goes with --format onnx, not {args.format}")
    if target.exists() and not args.overwrite:
        raise FileExistsError(f"{target} exists; pass --overwrite to replace it")
    integrations = read_checkpoint(path)["state"].get("integrations") or {}
    of_transformers = "huggingface" in integrations and "composer" not in integrations
    if args.base is not None and (args.model or not of_transformers):
        raise ValueError(f"--base={args.base!r} goes with a checkpoint of a Hugging Face model")
    if of_transformers and not args.model:
        model, batch = _from_transformers(path, name, args)
    else:
        built = _build(integrations, args.model, name)
        state = State(built, 0, "export", DeviceCPU())
        try:
            load_checkpoint(path, state, Logger(state), load_weights_only=True, progress_bar=False)
        except WeightsMismatchError as error:
            chosen = (
                f"--model {' '.join(args.model)}" if args.model else "what it says of its model"
            )
            raise ValueError(
                f"the weights of {name} do not fit: {chosen} builds another network than the one "
                f"that was saved. {error.differences}"
                + ("" if args.model else " Name the network with --model NAME KEY=VALUE ...")
            ) from error
        model, batch = state.model, example_batch(built, num_samples=args.samples)
    return export_model(
        model,
        args.format,
        target,
        batch,
        onnx_opset_version=args.opset,
        tolerance=args.tolerance,
    )


def _build(
    integrations: Mapping[str, Any], chosen: Sequence[str] | None, name: str
) -> ComposerModel:
    from composer.models import build_from_origin

    if chosen:
        return build_from_origin({"name": chosen[0], "arguments": dict(map(_argument, chosen[1:]))})
    if "composer" in integrations:
        return build_from_origin(integrations["composer"])
    raise ValueError(
        f"{name} does not say how its model is built: it is none of a registered factory with "
        f"plain arguments. Name one with --model NAME KEY=VALUE ..., or export from Python with "
        f"composer.models.export.export_model"
    )


def _from_transformers(
    path: Path, name: str, args: argparse.Namespace
) -> tuple[Any, dict[str, Any]]:
    """A model of transformers with its weights, and token ids to call it with."""
    import torch

    from composer.models.huggingface import HuggingFaceModel
    from composer.models.huggingface.from_checkpoint import hf_from_composer_checkpoint

    network, tokenizer = hf_from_composer_checkpoint(path, base_model=args.base)
    model = HuggingFaceModel(network, tokenizer)
    if "input_ids" not in model.model_forward_args:
        raise ValueError(
            f"the model in {name} takes no tokens but {sorted(model.model_forward_args)}, of which "
            f"no example is known; export it from Python with composer.models.export.export_model"
        )
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(network.config.vocab_size, (args.samples, 8), generator=generator)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "decoder_input_ids": ids}
    return model, {name: batch[name] for name in batch if name in model.model_forward_args}


def _argument(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise ValueError(f"--model {text!r} must have the form KEY=VALUE, as in num_classes=10")
    try:
        return key, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return key, value
