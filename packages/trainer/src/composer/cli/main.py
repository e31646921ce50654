"""Where ``composer`` starts: pick the sub-command, parse its options, run it.

Only the sub-command that was asked for is imported, so one that is broken or slow does not touch
the others; the overview loads all of them, each on its own.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from typing import cast

from composer.cli.command import Command
from composer.core import plugins

__all__ = ["main"]

_GROUP = "composer.commands"

_EXAMPLES = """\
examples:
  composer train                      train the default recipe
  composer plugins                    list what is installed
  composer plugins doctor mixup       look at one plugin closely
  composer train --help               options and examples of one command
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ``composer`` command.

    Args:
        argv: The words after ``composer``; those of the process if None.

    Returns:
        The exit status.

    Example:
        >>> main(["--version"])
        composer 0.1.0
        0
    """
    words = list(sys.argv[1:] if argv is None else argv)
    with warnings.catch_warnings():
        # Told in one line each; the form with a source line is for programs.
        warnings.simplefilter("ignore", plugins.PluginWarning)
        for message in plugins.unreadable():
            print(f"composer: {message}", file=sys.stderr)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview(), end="")
        return 0
    if words[0] in ("-V", "--version"):
        from composer._version import __version__

        print(f"composer {__version__}")
        return 0
    name = words[0]
    if _looks_like_launch(name):
        print(
            f"composer: {name!r} is not a command. Starting a script on several ranks comes with "
            f"`composer launch` in a later release; a script on one process is started with: "
            f"python SCRIPT.py",
            file=sys.stderr,
        )
        return 2
    try:
        command = _load(name)
    except plugins.PluginError as error:
        print(f"composer: {error}", file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(
        prog=f"composer {name}",
        description=command.help,
        epilog=f"examples:\n{command.examples.rstrip()}\n" if command.examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_arguments(parser)
    args = parser.parse_args(words[1:])
    try:
        return int(command.run(args) or 0)
    except plugins.PluginError as error:
        print(f"composer {name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"composer {name}: interrupted", file=sys.stderr)
        return 130


def _load(name: str) -> Command:
    return cast(Command, plugins.load(_GROUP, name)())


def _looks_like_launch(word: str) -> bool:
    """Recognise the way in which the original command starts a script."""
    return word.endswith(".py") or word in ("-n", "--nproc", "-m", "--module_mode", "-c")


def _overview() -> str:
    rows = []
    for name in plugins.names(_GROUP):
        try:
            text = _load(name).help
        except plugins.PluginError:
            text = f"(cannot be loaded; see: composer plugins doctor {name})"
        rows.append((name, text))
    width = max((len(name) for name, _ in rows), default=0)
    lines = ["usage: composer COMMAND [options]", "", "commands:"]
    lines += [f"  {name:<{width}}  {text}" for name, text in rows] or ["  none is installed"]
    lines += [
        "",
        "options:",
        "  -h, --help     show this text",
        "  -V, --version  show the version",
    ]
    return "\n".join([*lines, "", _EXAMPLES])
