"""The one door through which methods, callbacks, loggers, models, data and commands come in.

Whatever is asked for by name is an entry point of an installed distribution, ours included, so a
third party's plugin and a first-party one are found, loaded and reported in the same way. Reading
the metadata imports nothing; a plugin is imported when it is asked for, alone, so that a broken
one costs a record and a warning and never an unrelated run. Nothing becomes active by being
installed.

The functions are those of one registry, which reads ``sys.path``. This module does not import
torch: the command line uses it before anything heavy is needed.
"""

from __future__ import annotations

import inspect
import sys
import threading
import warnings
from collections.abc import Iterable
from importlib import import_module, invalidate_caches
from typing import Any

from composer.utils.plugin_metadata import PluginEntry, normalize_name, read_entries
from composer.utils.plugin_report import (
    PluginFailure,
    PluginState,
    explain_conflict,
    explain_failure,
    explain_unknown,
    format_traceback,
)
from composer.utils.plugin_table import FIRST_PARTY, GROUPS
from composer.utils.signatures import check_arguments
from composer.utils.suggestions import did_you_mean

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


class PluginWarning(UserWarning):
    """A plugin or its metadata cannot be used; what did not ask for it goes on."""


class PluginError(Exception):
    """Anything wrong with a plugin that was asked for."""


class PluginNotFoundError(PluginError, ValueError):
    """No installed distribution offers the name."""


class PluginConflictError(PluginError, ValueError):
    """Several distributions offer the name with different targets."""


class PluginLoadError(PluginError, ImportError):
    """The plugin is installed, and importing it fails."""


class Registry:
    """The plugins of one search path.

    Metadata is read at the first question and kept until ``refresh``.

    Args:
        path: Folders to search; ``sys.path`` as it is at the time of reading if None.

    Example:
        >>> Registry(path=[]).names("composer.algorithms")
        []
    """

    def __init__(self, path: Iterable[str] | None = None) -> None:
        self._path = None if path is None else [str(folder) for folder in path]
        self._lock = threading.RLock()
        self._entries: dict[str, list[PluginEntry]] | None = None
        self._unreadable: list[str] = []
        self._loaded: dict[PluginEntry, Any] = {}
        self._failures: dict[PluginEntry, PluginFailure] = {}

    def refresh(self) -> None:
        """Forget what was read and what failed, so that the next question reads again.

        Example:
            >>> Registry(path=[]).refresh()
        """
        with self._lock:
            self._entries = None
            self._unreadable = []
            self._loaded.clear()
            self._failures.clear()
        invalidate_caches()

    def entries(self, group: str) -> list[PluginEntry]:
        """List the entries of a group, sorted by name, without importing any of them.

        Args:
            group: The entry-point group.

        Returns:
            The entries; two distributions that offer one name give two of them.

        Raises:
            ValueError: If there is no such group.

        Example:
            >>> Registry(path=[]).entries("composer.loggers")
            []
        """
        _check_group(group)
        with self._lock:
            if self._entries is None:
                self._entries, self._unreadable = read_entries(self._path)
                for message in self._unreadable:
                    warnings.warn(message, PluginWarning, stacklevel=3)
            return list(self._entries.get(group, ()))

    def unreadable(self) -> list[str]:
        """List the distributions whose metadata is damaged, and how.

        Returns:
            One sentence for each, of which a warning was given when it was read.

        Example:
            >>> Registry(path=[]).unreadable()
            []
        """
        self.entries(next(iter(GROUPS)))
        return list(self._unreadable)

    def names(self, group: str) -> list[str]:
        """List the names of a group.

        Args:
            group: The entry-point group.

        Returns:
            The names, sorted, each once.

        Example:
            >>> Registry(path=[]).names("composer.loggers")
            []
        """
        return sorted({entry.name for entry in self.entries(group)})

    def find(self, group: str, name: str) -> PluginEntry:
        """Find the entry that a name stands for.

        Args:
            group: The entry-point group.
            name: The plugin's name, or ``distribution:name``.

        Returns:
            The entry.

        Raises:
            PluginNotFoundError: If nothing installed offers the name.
            PluginConflictError: If several distributions offer it with different targets.

        Example:
            >>> Registry(path=[]).find("composer.loggers", "console")
            Traceback (most recent call last):
            composer.utils.plugins.PluginNotFoundError: no logger named 'console' is installed...
        """
        if not isinstance(name, str):
            raise TypeError(
                f"name must be a string, the name of a {GROUPS[group].noun}; got {name!r}"
            )
        distribution, _, short = name.rpartition(":")
        known = self.entries(group)
        found = [entry for entry in known if entry.name == short]
        if distribution:
            wanted = normalize_name(distribution)
            found = [entry for entry in found if normalize_name(entry.distribution) == wanted]
        if not found:
            raise PluginNotFoundError(explain_unknown(group, name, known, self._path))
        if _differ(found):
            raise PluginConflictError(explain_conflict(found, name))
        return found[0]

    def load(self, group: str, name: str) -> Any:
        """Import a plugin and return what its entry points to.

        A failure is kept as a record and the next call tries again.

        Args:
            group: The entry-point group.
            name: The plugin's name, or ``distribution:name``.

        Returns:
            The object, most often a class.

        Raises:
            PluginNotFoundError: If nothing installed offers the name.
            PluginConflictError: If several distributions offer it with different targets.
            PluginLoadError: If importing it fails; the cause is chained.

        Example:
            >>> Registry().load("composer.devices", "cpu").__name__
            'DeviceCPU'
        """
        return self._load_entry(self.find(group, name))

    def check(self, entry: PluginEntry, *, strict: bool = False) -> PluginFailure | None:
        """Try to load one entry, for listings that go over all of them.

        Args:
            entry: The entry to try.
            strict: Raise the failure instead of warning of it.

        Returns:
            None if it loads, else the record of the failure, of which a warning was given.

        Raises:
            PluginLoadError: If it fails and ``strict`` is set.

        Example:
            >>> registry = Registry()
            >>> registry.check(registry.find("composer.devices", "cpu")) is None
            True
        """
        try:
            self._load_entry(entry)
        except PluginLoadError as error:
            if strict:
                raise
            warnings.warn(str(error), PluginWarning, stacklevel=2)
        return self._failures.get(entry)

    def ambiguous(self, entry: PluginEntry) -> bool:
        """Say whether the name of an entry is offered with another target as well.

        Args:
            entry: The entry.

        Returns:
            True if only ``distribution:name`` can choose it.

        Example:
            >>> registry = Registry()
            >>> registry.ambiguous(registry.find("composer.devices", "cpu"))
            False
        """
        return _differ(other for other in self.entries(entry.group) if other.name == entry.name)

    def state(self, entry: PluginEntry) -> PluginState:
        """Say what is known of an entry without importing it.

        Args:
            entry: The entry.

        Returns:
            ``duplicate`` if another distribution offers the name with another target, ``broken`` if
            the last try to load it failed, ``ok`` if it was loaded, else ``unloaded``.

        Example:
            >>> registry = Registry()
            >>> entry = registry.find("composer.devices", "cpu")
            >>> registry.state(entry)
            'unloaded'
            >>> _ = registry.check(entry)
            >>> registry.state(entry)
            'ok'
        """
        if entry in self._failures:
            return "broken"
        if self.ambiguous(entry):
            return "duplicate"
        return "ok" if entry in self._loaded else "unloaded"

    def failure(self, entry: PluginEntry) -> PluginFailure | None:
        """Return the record of the last failed load of an entry.

        Args:
            entry: The entry.

        Returns:
            The record, or None if it did not fail.

        Example:
            >>> registry = Registry()
            >>> registry.failure(registry.find("composer.devices", "cpu")) is None
            True
        """
        return self._failures.get(entry)

    def resolve(self, group: str, thing: Any, /, **arguments: Any) -> Any:
        """Turn an instance, a class or a name into an instance.

        Args:
            group: The entry-point group.
            thing: An instance, returned as it is, or a class or a name, which are called.
            **arguments: What a class or name is called with.

        Returns:
            The instance.

        Raises:
            PluginError: If a name cannot be loaded.
            TypeError: If ``thing`` is none of these, or an argument is unknown or missing.

        Example:
            >>> Registry().resolve("composer.devices", "cpu").name
            'cpu'
        """
        _check_group(group)
        noun = GROUPS[group].noun
        if isinstance(thing, str):
            plugin = self.load(group, thing)
            made = _call(plugin, arguments, label=f"{noun} {thing!r}")
            contract = _contract(group)
            if contract is not None and not isinstance(made, contract):
                raise TypeError(f"the {noun} {thing!r}, {plugin!r}, gave {made!r}, which is none")
            return made
        contract = _contract(group)
        if inspect.isclass(thing):
            if contract is not None and not issubclass(thing, contract):
                raise TypeError(f"{thing!r} is not a subclass of {contract.__name__}")
            return _call(thing, arguments, label=f"{noun} {thing.__qualname__}")
        if contract is not None and not isinstance(thing, contract):
            raise TypeError(
                f"expected an instance or subclass of {contract.__name__}, or the name of one "
                f"({', '.join(self.names(group)) or 'none is installed'}); got {thing!r}"
            )
        if arguments:
            raise TypeError(
                f"the arguments {sorted(arguments)} need a class or a name to go to; got the "
                f"finished {type(thing).__name__} {thing!r}"
            )
        return thing

    def name_of(self, group: str, cls: Any) -> str | None:
        """Return the name under which a class is registered.

        Args:
            group: The entry-point group.
            cls: The class or other object that an entry may point to.

        Returns:
            The plugin name, spelled ``distribution:name`` where the bare name is not unique, or
            None if no entry points to it.

        Example:
            >>> from composer.devices.cpu import DeviceCPU
            >>> Registry().name_of("composer.devices", DeviceCPU)
            'cpu'
        """
        qualified = getattr(cls, "__qualname__", None)
        defined_in = getattr(cls, "__module__", None)
        if qualified is None or defined_in is None:
            return None
        for entry in self.entries(group):
            if entry.attribute != qualified:
                continue
            # A class exists, so its own project was imported; no other is worth importing.
            if entry.module not in sys.modules and (
                entry.module.partition(".")[0] != defined_in.partition(".")[0]
            ):
                continue
            try:
                found = self._load_entry(entry)
            except PluginLoadError:
                continue
            if found is cls:
                return entry.qualified_name if self.ambiguous(entry) else entry.name
        return None

    def _load_entry(self, entry: PluginEntry) -> Any:
        with self._lock:
            if entry in self._loaded:
                return self._loaded[entry]
        # Not under the lock: an import runs foreign code, which may ask this registry.
        before = set(sys.modules)
        try:
            found = entry.load()
        except (Exception, SystemExit) as error:
            _undo_imports(entry.module, before)
            failure = PluginFailure(entry, error, format_traceback(error))
            with self._lock:
                self._failures[entry] = failure
            raise PluginLoadError(explain_failure(failure), name=entry.module) from error
        with self._lock:
            self._failures.pop(entry, None)
            self._loaded[entry] = found
        return found


def _check_group(group: str) -> None:
    if group not in GROUPS:
        raise ValueError(
            f"no plugin group {group!r}.{did_you_mean(str(group), GROUPS)} "
            f"Groups: {', '.join(sorted(GROUPS))}."
        )


def _differ(entries: Iterable[PluginEntry]) -> bool:
    """Say whether entries of one name have several targets; the same target twice is harmless."""
    return len({entry.value for entry in entries}) > 1


def _undo_imports(module: str, before: set[str]) -> None:
    """Drop what a failed import left behind, so that a retry starts from nothing.

    Only modules that the import added, and only those of the plugin itself: what it imported from
    others is whole and may be in use.
    """
    top = module.partition(".")[0]
    root = module if top in before else top
    for name in [name for name in sys.modules if name == root or name.startswith(f"{root}.")]:
        if name not in before:
            del sys.modules[name]


def _contract(group: str) -> type | None:
    """Return the class that instances of a group belong to, if the group has one."""
    spelled = GROUPS[group].contract
    if spelled is None:
        return None
    module, _, attribute = spelled.partition(":")
    found = getattr(import_module(module), attribute)
    assert isinstance(found, type)
    return found


def _call(thing: Any, arguments: dict[str, Any], *, label: str) -> Any:
    """Call a plugin; a wrong argument is named beside the accepted ones before the call."""
    if callable(thing):
        check_arguments(thing, arguments, label=label)
        return thing(**arguments)
    if arguments:
        raise TypeError(f"{label} takes no arguments; got {sorted(arguments)}")
    return thing


_registry = Registry()

ambiguous = _registry.ambiguous
check = _registry.check
entries = _registry.entries
failure = _registry.failure
load = _registry.load
name_of = _registry.name_of
names = _registry.names
refresh = _registry.refresh
resolve = _registry.resolve
state = _registry.state
unreadable = _registry.unreadable
