"""The contract of a sub-command, in one short file for those who write one.

A command is a class without constructor arguments that an entry point of the group
``composer.commands`` names. Its module should import nothing heavy: ``composer --help`` loads every
command to show one line of help for each.
"""

from __future__ import annotations

import argparse
from typing import ClassVar, Protocol, runtime_checkable

__all__ = ["Command"]


@runtime_checkable
class Command(Protocol):
    """What the ``composer`` command expects of a sub-command.

    Example:
        >>> from composer.cli.plugins import PluginsCommand
        >>> isinstance(PluginsCommand(), Command)
        True
    """

    name: ClassVar[str]
    """The word after `composer`."""

    help: ClassVar[str]
    """One line for the overview."""

    examples: ClassVar[str]
    """Command lines with comments, shown under `--help`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options.

        Args:
            parser: The parser of this sub-command.

        Example:
            >>> from composer.cli.plugins import PluginsCommand
            >>> parser = argparse.ArgumentParser()
            >>> PluginsCommand().add_arguments(parser)
            >>> parser.parse_args(["--strict"]).strict
            True
        """

    def run(self, args: argparse.Namespace) -> int:
        """Do the work.

        Args:
            args: The parsed options.

        Returns:
            The exit status: 0 for success, 1 for a failed check, 2 for wrong usage.

        Example:
            >>> class Hello:
            ...     def run(self, args: argparse.Namespace) -> int:
            ...         print("hello")
            ...         return 0
            >>> Hello().run(argparse.Namespace())
            hello
            0
        """
        ...
