"""The door for plugins, by the name under which the library and its users know it.

The door itself is ``composer.utils.plugins``, on the lowest floor, because devices and object
stores come in through it as well.
"""

from __future__ import annotations

from composer.utils.plugins import (
    FIRST_PARTY,
    GROUPS,
    PluginConflictError,
    PluginEntry,
    PluginError,
    PluginFailure,
    PluginLoadError,
    PluginNotFoundError,
    PluginState,
    PluginWarning,
    Registry,
    ambiguous,
    check,
    entries,
    failure,
    load,
    name_of,
    names,
    refresh,
    resolve,
    state,
    unreadable,
)

__all__ = [
    "FIRST_PARTY",
    "GROUPS",
    "PluginConflictError",
    "PluginEntry",
    "PluginError",
    "PluginFailure",
    "PluginLoadError",
    "PluginNotFoundError",
    "PluginState",
    "PluginWarning",
    "Registry",
    "ambiguous",
    "check",
    "entries",
    "failure",
    "load",
    "name_of",
    "names",
    "refresh",
    "resolve",
    "state",
    "unreadable",
]
