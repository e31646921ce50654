"""`composer checkpoint export`: the weights for other tools, as one file or as a model's folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer.models.weight_types import WEIGHT_TYPES
from composer.utils.paths import local_path, parse_uri

if TYPE_CHECKING:
    from composer.cli.checkpoint_source import Item, Source

__all__ = ["EXAMPLES", "FORMATS", "add_options", "export"]

EXAMPLES = """\
  composer checkpoint export runs/first/checkpoints --to model.safetensors
  composer checkpoint export ep2-ba938-rank0.pt --to model.safetensors --dtype bfloat16
  composer checkpoint export s3://bucket/first/ep2.pt --to model.safetensors --overwrite
  composer checkpoint export runs/tuned --format huggingface --to my-model
  composer checkpoint export runs/tuned --format huggingface --to my-adapter --adapter alone
  composer checkpoint export runs/tuned --format huggingface --to my-model --adapter merged
"""

FORMATS = ("safetensors", "huggingface")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the action.

    Args:
        parser: Its parser.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_options(parser)
        >>> parser.parse_args(["--format", "huggingface", "--output", "model"]).to
        'model'
    """
    parser.add_argument(
        "--to",
        "--output",
        required=True,
        metavar="PLACE",
        help="a file that ends in .safetensors, or the folder of a model of Hugging Face",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="safetensors",
        help="safetensors: the weights in one file; huggingface: a folder for `from_pretrained`, "
        "with configuration and tokenizer (default: %(default)s)",
    )
    parser.add_argument(
        "--dtype",
        choices=WEIGHT_TYPES,
        help="turn floating point weights into this type (default: as they are)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    folder = parser.add_argument_group("with --format huggingface")
    folder.add_argument(
        "--adapter",
        choices=("alone", "merged"),
        help="of a model with adapters: the adapter as peft saves it, or a plain model with the "
        "adapter worked into its weights (default: alone)",
    )
    folder.add_argument(
        "--base",
        metavar="MODEL",
        help="what an adapter that was saved alone is merged into: a folder or a name on the Hub "
        "(default: what the adapter names)",
    )
    folder.add_argument(
        "--max-shard-size",
        metavar="SIZE",
        help="how large a file of weights may be (default: 5GB)",
    )
    folder.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run code that the checkpoint names; only for checkpoints of your own",
    )


def export(source: Source, item: Item, args: argparse.Namespace) -> int:
    """Write what was asked for.

    Args:
        source: Where the checkpoint is.
        item: The checkpoint.
        args: The parsed options.

    Returns:
        0 if it was written, 2 if that cannot be done.

    Raises:
        FileExistsError: If something is there already.
        FileNotFoundError: If there is no folder to write in.
        ValueError: If the checkpoint does not hold what was asked for.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_options(parser)
        >>> export(None, None, parser.parse_args(["--to", "a.pt"]))
        2
    """
    problem = _wrong_option(args)
    if problem:
        print(f"composer checkpoint export: {problem}", file=sys.stderr)
        return 2
    target = local_path(args.to, "--to")
    if target.exists() and not target.is_dir() and not args.overwrite:
        another = (
            "name another" if args.format == "huggingface" else "pass --overwrite to replace it"
        )
        raise FileExistsError(f"{target} exists; {another}")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} to write {target.name} in")
    from composer.checkpoint import read_checkpoint

    with source.open(item.name) as path:
        contents = read_checkpoint(path)
        if args.format == "huggingface":
            if args.adapter is not None and not _has_adapters(contents, item.name):
                print(
                    f"composer checkpoint export: --adapter {args.adapter} goes with a model with "
                    f"adapters, and the one in {item.name} has none",
                    file=sys.stderr,
                )
                return 2
            _as_folder(contents, item.name, target, args)
        else:
            _as_file(contents, item.name, target, args)
    algorithms = contents["state"].get("algorithms") or []
    if any(entry["type"] == "EMA" and entry["state"] for entry in algorithms):
        print("  the weights are the average that EMA kept")
    return 0


def _wrong_option(args: argparse.Namespace) -> str | None:
    if not args.to:
        return "--to '' names no place"
    if parse_uri(args.to)[0] not in ("", "file"):
        return f"--to {args.to!r} must be a place of this machine, not the URI of a store"
    if args.format == "huggingface":
        if args.overwrite:
            return "--overwrite replaces a file and no folder; remove the folder, or name another"
        if args.base is not None and args.adapter != "merged":
            return "--base goes with --adapter merged: nothing else is put on a model"
        return _wrong_size(args.max_shard_size)
    for option in ("adapter", "base", "max_shard_size", "trust_remote_code"):
        if getattr(args, option) not in (None, False):
            return f"--{option.replace('_', '-')} goes with --format huggingface"
    if Path(args.to).suffix != ".safetensors":
        return (
            f"--to {args.to!r} does not end in .safetensors; for a folder in the form of Hugging "
            f"Face pass --format huggingface"
        )
    return None


def _wrong_size(size: str | None) -> str | None:
    if size is None:
        return None
    from composer.models.huggingface.export import parse_size

    try:
        parse_size(size)
    except ValueError:
        return f"--max-shard-size {size!r} must be a size such as '5GB', or bytes"
    return None


def _has_adapters(contents: Any, name: str) -> bool:
    from composer.models.huggingface.metadata import ModelFacts, huggingface_part

    return bool(ModelFacts(huggingface_part(contents, name)).adapters)


def _as_file(contents: Any, name: str, target: Path, args: argparse.Namespace) -> None:
    from composer.cli.checkpoint_facts import facts_of, megabytes
    from composer.models.export.weights import export_safetensors

    facts = facts_of(contents)
    about = {"source": name, "written_by": facts["written_by"]}
    about.update({k: str(facts["timestamp"][k]) for k in ("epoch", "batch") if k in
                  facts["timestamp"]})  # fmt: skip
    weights = contents["state"].get("model") or {}
    tied, left_out = export_safetensors(weights, target, dtype=args.dtype, facts=about)
    count = len(weights) - len(tied) - len(left_out)
    print(f"{target}: {count} tensors of {name}, {megabytes(target.stat().st_size)}")
    _print_tied(tied)
    for other in left_out:
        print(f"  {other} is no tensor and was left out")


def _as_folder(contents: Any, name: str, target: Path, args: argparse.Namespace) -> None:
    from composer.cli.checkpoint_facts import megabytes
    from composer.models.huggingface.export import export_contents

    done = export_contents(
        contents,
        target,
        shown=name,
        adapter=args.adapter,
        dtype=args.dtype,
        **({} if args.max_shard_size is None else {"max_shard_size": args.max_shard_size}),
        base_model=args.base,
        trust_remote_code=args.trust_remote_code,
    )
    size = megabytes(sum((target / file).stat().st_size for file in done.files))
    print(f"{target}: {done.num_tensors} tensors of {name}, {size}")
    print(f"  {', '.join(sorted(done.files))}")
    _print_tied(done.tied)


def _print_tied(tied: dict[str, str]) -> None:
    for name, first in tied.items():
        print(f"  {name} is {first}, saved once")
