"""`composer plugins`: what is installed, from where, and whether it works.

A listing has to import the plugins to know which are broken; each is tried alone, so the list is
complete whatever some of them do. `--no-import` reads metadata only.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from typing import Any, ClassVar

from composer.core import plugins
from composer.utils.suggestions import did_you_mean

__all__ = ["PluginsCommand"]


class PluginsCommand:
    """List the installed plugins or look at one closely.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> command = PluginsCommand()
        >>> command.add_arguments(parser)
        >>> command.run(parser.parse_args(["--no-import", "--group", "composer.devices"]))
        group             name  distribution   version  state
        composer.devices  cpu   composer-core  0.1.0    ...
        composer.devices  gpu   composer-core  0.1.0    ...
        composer.devices  mps   composer-core  0.1.0    ...
        0
    """

    name: ClassVar[str] = "plugins"
    help: ClassVar[str] = "list installed plugins, find broken ones"
    examples: ClassVar[str] = """\
  composer plugins                                 group, name, distribution, version, state
  composer plugins --strict                        exit with 1 if one is broken or ambiguous
  composer plugins --group composer.loggers        one group
  composer plugins --no-import                     metadata only, quick
  composer plugins --json                          for programs
  composer plugins doctor mixup                    where it comes from, its traceback if broken
"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options.

        Args:
            parser: The parser of this sub-command.

        Example:
            >>> parser = argparse.ArgumentParser()
            >>> PluginsCommand().add_arguments(parser)
            >>> parser.parse_args(["doctor", "mixup"]).plugin
            'mixup'
        """
        parser.add_argument(
            "--strict",
            action="store_true",
            help="exit with 1 if a plugin is broken or two of one name differ",
        )
        parser.add_argument(
            "--group",
            metavar="GROUP",
            choices=sorted(plugins.GROUPS),
            help="list one group only, such as composer.loggers",
        )
        parser.add_argument(
            "--no-import",
            dest="import_plugins",
            action="store_false",
            help="read metadata only; a state is known only of what was loaded already",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON list")
        actions = parser.add_subparsers(dest="action", metavar="[doctor NAME]")
        doctor = actions.add_parser("doctor", help="look at one plugin closely")
        doctor.add_argument("plugin", metavar="NAME", help="plugin name, or distribution:name")

    def run(self, args: argparse.Namespace) -> int:
        """List the plugins, or look at one.

        Args:
            args: The parsed options.

        Returns:
            0 if all is well, 1 if a check failed, 2 if no plugin has the name.

        Example:
            >>> parser = argparse.ArgumentParser()
            >>> command = PluginsCommand()
            >>> command.add_arguments(parser)
            >>> command.run(parser.parse_args(["doctor", "cpu"]))
            cpu of composer.devices
              distribution  composer-core 0.1.0
              entry point   composer.devices.cpu:DeviceCPU
              metadata      ...
              state         ok
            0
        """
        if args.action == "doctor":
            return _doctor(args.plugin)
        return _list(args)


def _list(args: argparse.Namespace) -> int:
    groups = [args.group] if args.group else sorted(plugins.GROUPS)
    found = [entry for group in groups for entry in plugins.entries(group)]
    if args.import_plugins or args.strict:
        for entry in found:
            _try(entry)
    if args.json:
        print(json.dumps([_record(entry) for entry in found], indent=2))
    else:
        header = ("group", "name", "distribution", "version", "state")
        rows = [tuple(_record(entry)[column] for column in header) for entry in found]
        widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
        for row in [header, *rows]:
            cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
            print("  ".join(cells).rstrip())
        for entry in found:
            if failure := plugins.failure(entry):
                print(f"\n{entry.group} {entry.qualified_name} is broken: {failure.summary}")
                print(f"  see: composer plugins doctor {entry.qualified_name}")
        for group, name in sorted({(e.group, e.name) for e in found if plugins.ambiguous(e)}):
            same = [entry for entry in found if (entry.group, entry.name) == (group, name)]
            choices = " or ".join(entry.qualified_name for entry in same)
            print(f"\n{group} {name} is offered more than once; choose by writing {choices}")
    failed = any(plugins.failure(entry) or plugins.ambiguous(entry) for entry in found)
    return 1 if args.strict and (failed or plugins.unreadable()) else 0


def _doctor(name: str) -> int:
    distribution, _, short = name.rpartition(":")
    found = [
        entry
        for group in sorted(plugins.GROUPS)
        for entry in plugins.entries(group)
        if entry.name == short and distribution in ("", entry.distribution)
    ]
    if not found:
        searched = ", ".join(folder or "." for folder in sys.path)
        print(f"{_explain_unknown(name)}\nFolders searched: {searched}", file=sys.stderr)
        return 2
    broken = False
    for number, entry in enumerate(found):
        failure = _try(entry)
        if number:
            print()
        print(f"{entry.name} of {entry.group}")
        print(f"  distribution  {entry.distribution} {entry.version}")
        print(f"  entry point   {entry.value}")
        print(f"  metadata      {entry.location}")
        print(f"  state         {plugins.state(entry)}")
        if failure:
            broken = True
            print()
            print("\n".join(f"  {line}" for line in failure.text.splitlines()))
        elif plugins.ambiguous(entry):
            broken = True
            print(f"  to choose it, write {entry.qualified_name}")
    return 1 if broken else 0


def _explain_unknown(name: str) -> str:
    """Reuse the registry's words for the group that comes nearest."""
    short = name.rpartition(":")[2]
    offers = {
        candidate: group
        for group in plugins.GROUPS
        for candidate in [
            *plugins.names(group),
            *(n for names in plugins.FIRST_PARTY.get(group, {}).values() for n in names),
        ]
    }
    hint = did_you_mean(short, offers)
    near = [group for candidate, group in offers.items() if f'"{candidate}"' in hint]
    group = offers.get(short) or (near[0] if near else None)
    if group is not None:
        try:
            plugins.load(group, name)
        except plugins.PluginNotFoundError as error:
            return f"composer plugins: {error}"
    return (
        f"composer plugins: no plugin named {name!r} is installed in any group. "
        f"`composer plugins` lists what is."
    )


def _try(entry: plugins.PluginEntry) -> plugins.PluginFailure | None:
    with warnings.catch_warnings():
        # The failure is printed with the list; a warning beside it would say it twice.
        warnings.simplefilter("ignore", plugins.PluginWarning)
        return plugins.check(entry)


def _record(entry: plugins.PluginEntry) -> dict[str, Any]:
    failure = plugins.failure(entry)
    return {
        "group": entry.group,
        "name": entry.name,
        "distribution": entry.distribution,
        "version": entry.version,
        "state": plugins.state(entry),
        "value": entry.value,
        "error": failure.summary if failure else None,
    }
