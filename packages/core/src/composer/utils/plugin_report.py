"""What to tell whoever asked for a plugin that cannot be had."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from composer.utils.plugin_metadata import PluginEntry, find_hidden_entries
from composer.utils.plugin_table import FIRST_PARTY, GROUPS
from composer.utils.suggestions import did_you_mean

__all__ = [
    "PluginFailure",
    "PluginState",
    "explain_conflict",
    "explain_failure",
    "explain_unknown",
    "format_traceback",
]

PluginState = Literal["ok", "broken", "unloaded", "duplicate"]

# Frames of the door itself and of the import machinery say nothing about a plugin.
_MACHINERY = (
    str(Path(__file__).with_name("plugin")),
    import_module.__code__.co_filename,
    "<frozen importlib._bootstrap",
)


@dataclass(frozen=True)
class PluginFailure:
    """Why a plugin could not be loaded, kept for whoever asks later.

    Args:
        entry: The plugin.
        error: What importing it raised.
        text: The traceback as text.

    Example:
        >>> entry = PluginEntry("composer.loggers", "sink", "cool.sink:Sink", "cool", "1.0")
        >>> PluginFailure(entry, OSError("no disk"), "Traceback ...").summary
        'OSError: no disk'
    """

    entry: PluginEntry
    error: BaseException
    text: str

    @property
    def summary(self) -> str:
        """The error in one line."""
        message = str(self.error).strip().splitlines()
        return f"{type(self.error).__name__}: {message[0] if message else ''}".rstrip(": ")


def format_traceback(error: BaseException) -> str:
    """Format what a plugin raised, without the frames that led to it.

    Args:
        error: What importing it raised.

    Returns:
        The traceback as text.

    Example:
        >>> format_traceback(OSError("no disk"))
        'OSError: no disk\\n'
    """
    formatted = traceback.TracebackException.from_exception(error)
    kept = [frame for frame in formatted.stack if not frame.filename.startswith(_MACHINERY)]
    formatted.stack = traceback.StackSummary.from_list(kept)
    return "".join(formatted.format())


def explain_failure(failure: PluginFailure) -> str:
    """Say which plugin cannot be loaded, whose it is and what it raised.

    Args:
        failure: The record.

    Returns:
        The message.

    Example:
        >>> entry = PluginEntry("composer.loggers", "sink", "cool.sink:Sink", "cool", "1.0", "/x")
        >>> explain_failure(PluginFailure(entry, OSError("no disk"), ""))
        "the logger 'sink' of cool 1.0 (entry point 'cool.sink:Sink') cannot be loaded: ..."
    """
    entry = failure.entry
    return (
        f"the {GROUPS[entry.group].noun} {entry.name!r} of {entry.distribution} {entry.version} "
        f"(entry point {entry.value!r}) cannot be loaded: {failure.summary}. "
        f"`composer plugins doctor {entry.name}` shows the traceback."
    )


def explain_conflict(found: Sequence[PluginEntry], name: str) -> str:
    """Say who offers a name that has several targets, and how to choose.

    Args:
        found: The entries of the name.
        name: The name as it was asked for.

    Returns:
        The message.

    Example:
        >>> entries = [PluginEntry("composer.loggers", "a", v, v, "1.0") for v in ("x", "y")]
        >>> explain_conflict(entries, "a")
        "several plugins offer the logger 'a': x 1.0 (x); y 1.0 (y). Choose one by writing ..."
    """
    noun = GROUPS[found[0].group].noun
    offers = "; ".join(f"{entry.distribution} {entry.version} ({entry.value})" for entry in found)
    spellings = sorted({entry.qualified_name for entry in found})
    message = f"several plugins offer the {noun} {name!r}: {offers}. "
    if len(spellings) > 1:
        return message + (
            f"Choose one by writing {' or '.join(map(repr, spellings))}, or uninstall the other."
        )
    return message + f"The distribution {found[0].distribution} has to name them apart."


def explain_unknown(
    group: str, name: str, entries: Sequence[PluginEntry], path: list[str] | None = None
) -> str:
    """Say what is known beside a name that nobody offers, and what to install.

    Args:
        group: The entry-point group.
        name: The name as it was asked for.
        entries: The entries of the group.
        path: The folders that were searched; ``sys.path`` if None.

    Returns:
        The message, of several lines.

    Example:
        >>> print(explain_unknown("composer.loggers", "console", [], []))
        no logger named 'console' is installed.
        'console' comes with composer-loggers. Install it with: pip install composer-loggers
        Known names of composer.loggers: none.
        ...
    """
    _, _, short = name.rpartition(":")
    known = sorted({entry.name for entry in entries})
    offered = {
        offered: owner for owner, names in FIRST_PARTY.get(group, {}).items() for offered in names
    }
    lines = [f"no {GROUPS[group].noun} named {name!r} is installed."]
    if same := [entry for entry in entries if entry.name == short]:
        owners = ", ".join(f"{entry.distribution} {entry.version}" for entry in same)
        lines.append(f"The name {short!r} is offered by: {owners}.")
    elif short in offered:
        lines.append(
            f"{short!r} comes with {offered[short]}. Install it with: pip install {offered[short]}"
        )
    # Two passes, since what is installed is the better guess.
    elif hint := did_you_mean(_snake_case(short), known).strip():
        lines.append(hint)
    elif hint := did_you_mean(_snake_case(short), offered).strip():
        owner = min(owner for near, owner in offered.items() if f'"{near}"' in hint)
        lines.append(f"{hint} It comes with {owner}. Install it with: pip install {owner}")
    lines.append(f"Known names of {group}: {', '.join(known) or 'none'}.")
    # Folders are named only where one of them is to be cleaned up; a whole path buries the rest.
    for hidden, hiding in find_hidden_entries(path, group, short):
        lines.append(
            f"{hidden} offers it, but {hiding} comes first and hides it; remove the stale metadata."
        )
    lines.append(
        "An entry point that was added to an editable package is seen after the package is "
        "installed again."
    )
    return "\n".join(lines)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
