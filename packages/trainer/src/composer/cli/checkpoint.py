"""`composer checkpoint`: what was saved, whether it is whole, what is in it, and its weights alone.

Everything takes a file, a folder or the URI of either. Nothing in a checkpoint is ever run.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from composer.cli.checkpoint_source import Item, Source

__all__ = ["CheckpointCommand"]

_LIST_EXAMPLES = """\
  composer checkpoint list runs/first/checkpoints
  composer checkpoint list s3://bucket/first/checkpoints
  composer checkpoint list runs --json
"""
_VERIFY_EXAMPLES = """\
  composer checkpoint verify runs/first/checkpoints
  composer checkpoint verify runs/first/checkpoints/ep2-ba938-rank0.pt
  composer checkpoint verify s3://bucket/first --strict   a missing manifest counts as bad
"""
_SHOW_EXAMPLES = """\
  composer checkpoint show runs/first/checkpoints         the newest of a folder
  composer checkpoint show old-run/ep1-ba100-rank0.pt     of Composer 0.32 too
  composer checkpoint show ep2-ba938-rank0.pt --json
"""


class CheckpointCommand:
    """List, verify, show and export checkpoints.

    Example:
        >>> import tempfile
        >>> parser = argparse.ArgumentParser()
        >>> command = CheckpointCommand()
        >>> command.add_arguments(parser)
        >>> command.run(parser.parse_args(["list", tempfile.mkdtemp()]))
        no checkpoints in ...
        0
    """

    name: ClassVar[str] = "checkpoint"
    help: ClassVar[str] = "list, verify, show and export checkpoints"
    examples: ClassVar[str] = """\
  composer checkpoint list runs/first/checkpoints         what is there, the newest, the damaged
  composer checkpoint verify runs/first/checkpoints       compare every byte with the manifests
  composer checkpoint show runs/first/checkpoints         what is in the newest one
  composer checkpoint export FILE --to model.safetensors  the weights for other tools
  composer checkpoint export FILE --format huggingface --to my-model
  composer checkpoint list --help                         options and examples of one action
"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the actions and their options.

        Args:
            parser: The parser of this sub-command.

        Example:
            >>> parser = argparse.ArgumentParser()
            >>> CheckpointCommand().add_arguments(parser)
            >>> parser.parse_args(["export", "a.pt", "--to", "b.safetensors"]).to
            'b.safetensors'
        """
        from composer.cli.checkpoint_export import EXAMPLES as EXPORT_EXAMPLES
        from composer.cli.checkpoint_export import add_options as add_export_options

        actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

        def add(name: str, text: str, examples: str, where: str) -> argparse.ArgumentParser:
            action = actions.add_parser(
                name,
                help=text,
                description=text,
                epilog=f"examples:\n{examples}",
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
            action.add_argument("where", metavar="PLACE", help=where)
            return action

        anywhere = "a file, a folder, or the URI of either"
        one = f"{anywhere}; of a folder, the newest checkpoint"
        listing = add("list", "list checkpoints and say which are whole", _LIST_EXAMPLES, anywhere)
        listing.add_argument("--json", action="store_true", help="print one JSON list")
        verifying = add(
            "verify",
            "compare checkpoints with their manifests and read them; exit with 1 if one is bad",
            _VERIFY_EXAMPLES,
            anywhere,
        )
        verifying.add_argument(
            "--strict", action="store_true", help="a checkpoint without a manifest is bad too"
        )
        verifying.add_argument("--json", action="store_true", help="print one JSON list")
        showing = add("show", "say what is in a checkpoint", _SHOW_EXAMPLES, one)
        showing.add_argument("--json", action="store_true", help="print one JSON object")
        exporting = add("export", "write the weights for other tools", EXPORT_EXAMPLES, one)
        add_export_options(exporting)

    def run(self, args: argparse.Namespace) -> int:
        """Do what was asked.

        Args:
            args: The parsed options.

        Returns:
            0 if all is well, 1 if a checkpoint is bad, 2 if something asked for is not there or
            cannot be done.

        Example:
            >>> parser = argparse.ArgumentParser()
            >>> command = CheckpointCommand()
            >>> command.add_arguments(parser)
            >>> command.run(parser.parse_args(["show", "/nowhere"]))
            2
        """
        from composer.cli.checkpoint_source import open_source

        action = {"list": _list, "verify": _verify, "show": _show, "export": _export}[args.action]
        try:
            # What cannot even be looked at: no such place, no such scheme, a kit that is missing.
            opened = open_source(args.where)
        except (OSError, ValueError, ImportError) as error:
            print(f"composer checkpoint {args.action}: {error}", file=sys.stderr)
            return 2
        try:
            with opened as source:
                return action(source, args)
        except (FileNotFoundError, FileExistsError, ImportError) as error:
            print(f"composer checkpoint {args.action}: {error}", file=sys.stderr)
            return 2
        except (OSError, ValueError) as error:
            print(f"composer checkpoint {args.action}: {error}", file=sys.stderr)
            return 1


def _print_json(value: Any) -> None:
    print(json.dumps(_as_json(value), indent=2, allow_nan=False))


def _as_json(value: Any) -> Any:
    """The same without what JSON cannot say: numbers that are not finite become null."""
    if isinstance(value, dict):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---- list -------------------------------------------------------------------------------------


def _list(source: Source, args: argparse.Namespace) -> int:
    items, links = source.items(), source.links()
    records = [_record(item, links) for item in items]
    if args.json:
        _print_json(records)
        return 0
    if not items:
        print(f"no checkpoints in {source.shown}")
        return 0
    header = ("name", "epoch", "batch", "size", "written", "state", "")
    rows = [header, *(_row(record) for record in records)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    for row in rows:
        cells = [
            f"{cell:>{width}}" if 1 <= i <= 3 else f"{cell:<{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    for record in records:
        if record["problem"]:
            print(f"\n{record['name']}: {record['problem']}")
    if any(record["state"] == "unverified" for record in records):
        print(
            "\nunverified: without a manifest, so nothing says what the file must be; "
            "`composer checkpoint verify` reads it"
        )
    return 0


def _record(item: Item, links: dict[str, str]) -> dict[str, Any]:
    stored = item.timestamp
    written = item.written
    return {
        "name": item.name,
        "epoch": stored.get("epoch"),
        "batch": stored.get("batch"),
        "size": item.size,
        "written": None if written is None else written.isoformat(timespec="seconds"),
        "state": item.state,
        "problem": item.problem or None,
        "weights_only": None if item.manifest is None else item.manifest.weights_only,
        "links": [link for link, name in links.items() if name == item.name],
    }


def _row(record: dict[str, Any]) -> tuple[str, ...]:
    from composer.cli.checkpoint_facts import megabytes

    marks = []
    if record["links"]:
        marks.append(f"<- {', '.join(record['links'])}")
    if record["weights_only"]:
        marks.append("weights only")
    written = (record["written"] or "-").replace("+00:00", "").replace("T", " ")
    counts = ("-" if record[key] is None else str(record[key]) for key in ("epoch", "batch"))
    size = megabytes(record["size"])
    return (record["name"], *counts, size, written, record["state"], "; ".join(marks))


# ---- verify -----------------------------------------------------------------------------------


def _verify(source: Source, args: argparse.Namespace) -> int:
    items = source.items()
    if not items:
        # To have verified nothing is no success: the path may be wrong, or all files gone.
        if args.json:
            _print_json([])
        raise FileNotFoundError(f"there is no checkpoint in {source.shown}")
    progress = _Progress(sum(item.size or 0 for item in items), wanted=not args.json)
    results = []
    for item in items:
        progress.show(item.name)
        problem, note = _examine(source, item, strict=args.strict)
        results.append({"name": item.name, "ok": not problem, "problem": problem, "note": note})
        progress.done(item.size or 0)
        if not args.json:
            progress.clear()
            state = f"bad: {problem}" if problem else f"ok{f' ({note})' if note else ''}"
            print(f"{item.name}  {state}")
    bad = sum(not result["ok"] for result in results)
    if args.json:
        _print_json(results)
    elif bad:
        print(f"{bad} of {len(results)} {'is' if bad == 1 else 'are'} bad")
    return 1 if bad else 0


def _examine(source: Source, item: Item, *, strict: bool) -> tuple[str | None, str | None]:
    """What is wrong with a checkpoint, and what else there is to say."""
    from composer.checkpoint import read_checkpoint

    if item.problem:
        return item.problem, None
    note = None
    if item.manifest is None:
        note = "no manifest; the checksums inside the file were compared"
        if strict:
            return "there is no manifest", None
    path = Path(item.name)
    try:
        with source.open(item.name) as path:
            contents = read_checkpoint(path)
    except (OSError, ValueError) as error:
        return str(error).replace(f"{path.parent}/", ""), None
    except Exception as error:  # a tool for its ending is missing
        return f"it cannot be read: {error}", None
    if item.manifest is not None:
        held = {f"state/{name}" for name in contents["state"]}
        promised = {name for name in item.manifest.contents if name.count("/") == 1}
        if lost := sorted({n for n in promised if n.startswith("state/")} - held):
            return f"the manifest promises {', '.join(lost)}, which the file does not hold", None
    return None, note


class _Progress:
    """A line on the terminal that says how far a long piece of work is."""

    def __init__(self, total: int, *, wanted: bool) -> None:
        self._total = total
        self._done = 0
        self._on = wanted and sys.stderr.isatty()

    def show(self, name: str) -> None:
        if self._on:
            from composer.cli.checkpoint_facts import megabytes

            text = f"{megabytes(self._done)} of {megabytes(self._total)}: {name}"
            print(f"\r\x1b[2K{text[:100]}", end="", file=sys.stderr, flush=True)

    def done(self, size: int) -> None:
        self._done += size

    def clear(self) -> None:
        if self._on:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


# ---- show and export --------------------------------------------------------------------------


def _choose(source: Source) -> Item:
    item = source.newest()
    if item is None:
        broken = source.items()
        if broken:
            raise ValueError(f"{broken[-1].name} in {source.shown}: {broken[-1].problem}")
        raise FileNotFoundError(f"there is no checkpoint in {source.shown}")
    return item


def _show(source: Source, args: argparse.Namespace) -> int:
    from composer.checkpoint import read_checkpoint
    from composer.cli.checkpoint_facts import describe, facts_of, megabytes

    item = _choose(source)
    with source.open(item.name) as path:
        facts = facts_of(read_checkpoint(path))
    if args.json:
        head = {"name": item.name, "size": item.size, "state": item.state}
        _print_json({**head, **facts})
    else:
        print(f"{item.name}, {megabytes(item.size)}, {item.state}")
        print("\n".join(describe(facts)))
    return 0


def _export(source: Source, args: argparse.Namespace) -> int:
    from composer.cli.checkpoint_export import export

    return export(source, _choose(source), args)
