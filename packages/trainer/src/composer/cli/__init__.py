"""The ``composer`` command: it finds a sub-command among the plugins and runs it.

Whatever is under ``composer NAME`` is an entry point of the group ``composer.commands``, ours
included. Starting the command reads metadata only; torch is imported by the sub-commands that need
it.
"""

from composer.cli.checkpoint import CheckpointCommand
from composer.cli.command import Command
from composer.cli.main import main
from composer.cli.plugins import PluginsCommand

__all__ = ["CheckpointCommand", "Command", "PluginsCommand", "main"]
