"""``composer methods``: which training methods there are, and which can be combined.

Everything it says is read from what the classes declare, which is what the engine goes by.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from composer.core import plugins
from composer.core.algorithm import Phase
from composer.core.event import Event
from composer.core.passes import conflicts, sort_by_phase

if TYPE_CHECKING:
    from composer.core.algorithm import Algorithm

__all__ = ["MethodsCommand", "Pair", "markdown_of", "pairs_of"]

_GROUP = "composer.algorithms"


class MethodsCommand:
    """List the training methods, or say which of them can be combined.

    The exit status is 0; 1 if methods exclude each other or one cannot be imported; 2 if no method
    has the name.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> command = MethodsCommand()
        >>> command.add_arguments(parser)
        >>> command.run(parser.parse_args(["compat", "swa", "ema"]))
        swa + ema: refused: ...
        1
    """

    name: ClassVar[str] = "methods"
    help: ClassVar[str] = "list the training methods and which can be combined"
    examples: ClassVar[str] = """\
  composer methods                        a line each: what, events, kind, cost, source
  composer methods mixup                  one with its arguments and their defaults
  composer methods compat mixup cutmix    safe, safe in this order, warned of, or refused and why
  composer methods compat                 the same for all pairs that are not simply safe
  composer methods compat --markdown      as a table for a page; --json for programs
"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments.

        Args:
            parser: The parser of this sub-command.

        Example:
            >>> parser = argparse.ArgumentParser()
            >>> MethodsCommand().add_arguments(parser)
            >>> parser.parse_args(["compat", "ema", "swa"]).what
            ['compat', 'ema', 'swa']
        """
        parser.add_argument(
            "what",
            nargs="*",
            metavar="NAME | compat NAME ...",
            help="a method to look at, or `compat` and methods to combine (none: all)",
        )
        form = parser.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="print JSON")
        form.add_argument("--markdown", action="store_true", help="print a Markdown table")

    def run(self, args: argparse.Namespace) -> int:
        """List the methods, look at some, or judge pairs.

        Args:
            args: The parsed arguments.

        Returns:
            0, 1 or 2.

        Example:
            >>> parser = argparse.ArgumentParser()
            >>> MethodsCommand().add_arguments(parser)
            >>> MethodsCommand().run(parser.parse_args(["no_such_method"]))
            2
        """
        judge = args.what[:1] == ["compat"]
        wanted = args.what[1:] if judge else args.what
        if judge and len(wanted) == 1:
            print("composer methods: compat takes two or more methods, or none", file=sys.stderr)
            return 2
        twice = sorted({name for name in wanted if wanted.count(name) > 1})
        if twice:
            print(f"composer methods: name {', '.join(twice)} once", file=sys.stderr)
            return 2
        try:
            classes, broken = _load(wanted)
        except plugins.PluginError as error:
            print(f"composer methods: {error}", file=sys.stderr)
            return 2
        for name, why in broken.items():
            print(f"composer methods: {name}: {why}", file=sys.stderr)
        if judge:
            return _say_pairs(classes, args, everything=not wanted) or int(bool(broken))
        _say_methods(classes, args, closely=bool(wanted))
        return int(bool(broken))


@dataclass(frozen=True)
class Pair:
    """Whether two methods can be combined.

    Args:
        first: Plugin name of the one that acts first, where an order is fixed.
        second: Plugin name of the other.
        verdict: ``"safe"``, ``"safe in this order"``, ``"warned"`` or ``"refused"``.
        reason: Why.

    Example:
        >>> Pair("ema", "swa", "refused", "two averages").verdict
        'refused'
    """

    first: str
    second: str
    verdict: str
    reason: str = ""


def pairs_of(classes: dict[str, type[Algorithm]]) -> list[Pair]:
    """Judge all pairs of methods by what their classes declare.

    Args:
        classes: Plugin name to class.

    Returns:
        A verdict for each pair; where the order is fixed the first of a pair acts first, whatever
        the order of a user's list.

    Example:
        >>> pairs_of({})
        []
    """
    found = []
    for (first, a), (second, b) in itertools.combinations(classes.items(), 2):
        conflict = next(iter(sorted(conflicts([a, b]), key=lambda c: not c.refused)), None)
        if conflict is not None:
            verdict = "refused" if conflict.refused else "warned"
            found.append(Pair(first, second, verdict, conflict.reason))
            continue
        remark = a.remarks.get(second) or b.remarks.get(first) or ""
        before = _acts_first(first, a, second, b)
        if before is None:
            found.append(Pair(first, second, "safe", remark))
        else:
            other = second if before == first else first
            found.append(Pair(before, other, "safe in this order", remark))
    return found


def markdown_of(pairs: Sequence[Pair]) -> str:
    """Write pairs as a table for a page.

    Args:
        pairs: The pairs.

    Returns:
        The table in Markdown.

    Example:
        >>> print(markdown_of([Pair("ema", "swa", "refused", "two averages")]), end="")
        | First | Second | Together | Why |
        |---|---|---|---|
        | `ema` | `swa` | refused | two averages |
    """
    rows = [f"| `{p.first}` | `{p.second}` | {p.verdict} | {p.reason} |" for p in pairs]
    return "\n".join(("| First | Second | Together | Why |", "|---|---|---|---|", *rows, ""))


def _acts_first(first: str, a: type[Algorithm], second: str, b: type[Algorithm]) -> str | None:
    """Which of two acts first where both act, if the user's order does not decide."""
    if not (a.events or frozenset()) & (b.events or frozenset()):
        return None
    orders = [sort_by_phase(both)[0] for both in ([a, b], [b, a])]
    if orders[0] is not orders[1]:
        return None
    return first if orders[0] is a else second


def _load(wanted: Sequence[str]) -> tuple[dict[str, type[Algorithm]], dict[str, str]]:
    """The classes, and what is wrong with those that cannot be imported."""
    classes, broken = {}, {}
    for name in dict.fromkeys(wanted) or plugins.names(_GROUP):
        try:
            classes[name] = plugins.load(_GROUP, name)
        except plugins.PluginLoadError as error:
            broken[name] = str(error).splitlines()[0]
    return classes, broken


def _say_pairs(
    classes: dict[str, type[Algorithm]], args: argparse.Namespace, *, everything: bool
) -> int:
    pairs = pairs_of(classes)
    refused = any(pair.verdict == "refused" for pair in pairs)
    if everything:
        pairs = [pair for pair in pairs if pair.reason]
    if args.json:
        print(json.dumps([asdict(pair) for pair in pairs], indent=2))
    elif args.markdown:
        print(markdown_of(pairs), end="")
    else:
        for pair in pairs:
            why = pair.reason.replace("`", "")
            print(f"{pair.first} + {pair.second}: {pair.verdict}{f': {why}' if why else ''}")
        if everything:
            print("all other pairs: safe, in the order of your list, and always in this one:")
            for line in _places(classes):
                print(f"  {line}")
    # A table of what there is has no verdict of its own.
    return int(refused and not everything)


def _places(classes: dict[str, type[Algorithm]]) -> list[str]:
    """Who acts before and behind all others, and who behind whom."""
    lines = []
    for word, phase in (("first", Phase.FIRST), ("last", Phase.LAST)):
        names = [name for name, cls in classes.items() if cls.phase is phase]
        if names:
            lines.append(f"{word} at their events: {', '.join(names)}")
    for name, cls in classes.items():
        behind = [other for other in cls.after if other in classes]
        if behind:
            lines.append(f"{name} behind {', '.join(behind)}")
    return lines


def _say_methods(
    classes: dict[str, type[Algorithm]], args: argparse.Namespace, *, closely: bool
) -> None:
    facts = [_facts(name, cls) for name, cls in classes.items()]
    if args.json:
        print(json.dumps(facts, indent=2))
    elif closely and not args.markdown:
        for fact in facts:
            _print_one(fact)
    elif args.markdown:
        print("| Method | What | Kind | Events | Cost | Source |")
        print("|---|---|---|---|---|---|")
        for fact in facts:
            row = [f"`{fact['name']}`", *(fact[key] for key in ("what", *_COLUMNS))]
            print(f"| {' | '.join(_cell(value) for value in row)} |")
    else:
        header = ["name", *_COLUMNS, "what"]
        rows = [header, *([_cell(fact[key]) or "-" for key in header] for fact in facts)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
        for row in rows:
            padded = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
            print("  ".join(padded).rstrip())


_COLUMNS = ("kind", "events", "cost", "source")


def _cell(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def _facts(name: str, cls: type[Algorithm]) -> dict[str, Any]:
    return {
        "name": name,
        "class": f"{cls.__module__}.{cls.__qualname__}",
        "what": (inspect.getdoc(cls) or "").split("\n")[0],
        "events": [event.value for event in Event if event in (cls.events or ())] or ["any"],
        "kind": cls.kind,
        "cost": cls.cost,
        "source": cls.source,
        "phase": cls.phase.name.lower(),
        "after": list(cls.after),
        "excludes": dict(cls.excludes),
        "cautions": dict(cls.cautions),
        "remarks": dict(cls.remarks),
        "arguments": {
            key: None if parameter.default is parameter.empty else repr(parameter.default)
            for key, parameter in inspect.signature(cls).parameters.items()
        },
    }


def _print_one(fact: dict[str, Any]) -> None:
    print(fact["name"])
    print(f"  {fact['what']}")
    for key in ("class", "kind", "phase", "cost", "source"):
        if fact[key]:
            print(f"  {key:<8}{fact[key]}")
    print(f"  {'events':<8}{', '.join(fact['events'])}")
    if fact["after"]:
        print(f"  {'behind':<8}{', '.join(fact['after'])}")
    for key, word in (("excludes", "not with"), ("cautions", "seldom with"), ("remarks", "with")):
        for name, why in fact[key].items():
            print(f"  {word} {name}: {why}")
    if fact["arguments"]:
        print("  arguments")
    for key, default in fact["arguments"].items():
        print(f"    {key}" + ("" if default is None else f" = {default}"))
