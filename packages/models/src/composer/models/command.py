"""``composer models``: which models there are, how large they are and what they compute.

Models are built without data, so that the largest costs no memory; what a model is built on is
imported, and where that is not installed its line says so.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import warnings
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from composer.core import plugins

if TYPE_CHECKING:
    from composer.models.cards import Card

__all__ = ["ModelsCommand"]

_GROUP = "composer.models"


class ModelsCommand:
    """List the registered models or look at one closely.

    The exit status is 0, 1 if a model that should build does not, and 2 if no model has the name.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> command = ModelsCommand()
        >>> command.add_arguments(parser)
        >>> command.run(parser.parse_args(["mnist_model"]))
        mnist_model
          Build a classifier for digits and the like.
        ...
    """

    name: ClassVar[str] = "models"
    help: ClassVar[str] = "list the models that are installed"
    examples: ClassVar[str] = """\
  composer models                     name, parameters, operations of one sample, extra, source
  composer models --no-build          names, extras and sources only, quick
  composer models composer_resnet     its arguments with their defaults
  composer models --json              for programs
"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments.

        Args:
            parser: The parser of this sub-command.

        Example:
            >>> parser = argparse.ArgumentParser()
            >>> ModelsCommand().add_arguments(parser)
            >>> parser.parse_args(["resnet9"]).model
            'resnet9'
        """
        parser.add_argument("model", nargs="?", metavar="NAME", help="look at one model")
        parser.add_argument(
            "--no-build",
            dest="build",
            action="store_false",
            help="do not build the models, so sizes are not known",
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(self, args: argparse.Namespace) -> int:
        """List the models, or look at one.

        Args:
            args: The parsed arguments.

        Returns:
            0, 1 or 2.

        Example:
            >>> parser = argparse.ArgumentParser()
            >>> ModelsCommand().add_arguments(parser)
            >>> ModelsCommand().run(parser.parse_args(["no_such_model"]))
            2
        """
        names = plugins.names(_GROUP) if args.model is None else [args.model]
        try:
            facts = [_facts(name, build=args.build) for name in names]
        except plugins.PluginError as error:
            print(f"composer models: {error}", file=sys.stderr)
            return 2
        if args.json:
            records = [asdict(fact) for fact in facts]
            print(json.dumps(records if args.model is None else records[0], indent=2))
        elif args.model is None:
            _print_table(facts, sizes=args.build)
        else:
            _print_one(facts[0])
        return 1 if any(fact.broken for fact in facts) else 0


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """What is said of one model.

    Args:
        name: What it is registered as.
        summary: The first line of its documentation.
        family: What its batches are, if it has a card.
        source: Whose it is, if it has a card.
        extras: What it needs.
        arguments: Its arguments, with the text of their defaults, or ``None`` where there is none.
        example: The arguments that the sizes are those of, beside the defaults.
        parameters: Number of parameters.
        flops: Operations of the forward pass of one sample.
        note: Why something is not known.
        broken: Whether that should not be so.
    """

    name: str
    summary: str = ""
    family: str | None = None
    source: str | None = None
    extras: tuple[str, ...] = ()
    arguments: dict[str, str | None] = field(default_factory=dict)
    example: dict[str, Any] = field(default_factory=dict)
    parameters: int | None = None
    flops: int | None = None
    note: str = ""
    broken: bool = False


def _facts(name: str, *, build: bool) -> _Facts:
    from composer.models.cards import card_of

    try:
        factory = plugins.load(_GROUP, name)
        card = card_of(name)
    except plugins.PluginLoadError as error:
        # One that cannot be imported does not hide the others.
        return _Facts(name=name, note=str(error).splitlines()[0], broken=True)
    parameters: int | None = None
    flops: int | None = None
    note, broken = "", False
    if card is None:
        note = "nothing is known of it"
    elif card.batch is None:
        note = "size is that of the module it is put around"
    elif build:
        parameters, flops, note, broken = _measure(factory, card, name)
    return _Facts(
        name=name,
        summary=(inspect.getdoc(factory) or "").split("\n")[0],
        family=card.family if card else None,
        source=card.source if card else None,
        extras=card.extras if card else (),
        arguments={
            key: None if parameter.default is parameter.empty else repr(parameter.default)
            for key, parameter in inspect.signature(factory).parameters.items()
        },
        example=dict(card.arguments) if card else {},
        parameters=parameters,
        flops=flops,
        note=note,
        broken=broken,
    )


def _measure(factory: Any, card: Card, name: str) -> tuple[int | None, int | None, str, bool]:
    import torch

    from composer.models.cards import example_batch
    from composer.models.flops import count_flops, num_parameters
    from composer.utils.imports import MissingConditionalImportError

    parameters: int | None = None
    try:
        with warnings.catch_warnings(), torch.device("meta"):
            # What a library says about its next release is nothing about the model.
            warnings.simplefilter("ignore")
            model = factory(**card.arguments)
            parameters = num_parameters(model)
            batch = _without_data(example_batch(name))
            return parameters, count_flops(model, batch, forward=card.network), "", False
    except MissingConditionalImportError as error:
        return None, None, f"not installed: {error.name}", False
    except Exception as error:
        # Whatever a library does to a tensor without data; the line says it, the others go on.
        text = (str(error).splitlines() or [""])[0]
        return parameters, None, f"{type(error).__name__}: {text}", True


def _without_data(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.to("meta")
    if isinstance(value, dict):
        return {key: _without_data(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_without_data(part) for part in value)
    return value


def _short(number: int | None) -> str:
    if number is None:
        return "n/a"
    for size, letter in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return str(number)


def _print_table(facts: list[_Facts], *, sizes: bool) -> None:
    header = ("name", *(("parameters", "flops") if sizes else ()), "extra", "source")
    rows = [
        (
            fact.name,
            *((_short(fact.parameters), _short(fact.flops)) if sizes else ()),
            ", ".join(fact.extras) or "-",
            (fact.source or "-") + (f" ({fact.note})" if fact.note else ""),
        )
        for fact in facts
    ]
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for row in (header, *rows):
        print(
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def _print_one(fact: _Facts) -> None:
    print(fact.name)
    lines = [fact.summary] if fact.summary else []
    if fact.source:
        lines.append(f"source      {fact.source}")
    if fact.family:
        lines.append(f"batches     {fact.family}")
    if fact.extras:
        wanted = ",".join(fact.extras)
        lines.append(f'needs       pip install "composer-models[{wanted}]"')
    if fact.example:
        lines.append(f"sizes with  {', '.join(f'{k}={v!r}' for k, v in fact.example.items())}")
    if fact.parameters is not None:
        lines.append(f"parameters  {fact.parameters:,}")
    if fact.flops is not None:
        lines.append(f"flops       {fact.flops:,} forward, one sample")
    if fact.note:
        lines.append(f"note        {fact.note}")
    if fact.arguments:
        lines.append("arguments")
    for line in lines:
        print(f"  {line}")
    for key, default in fact.arguments.items():
        print(f"    {key}" + ("" if default is None else f" = {default}"))
