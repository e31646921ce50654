"""The one door through which methods, callbacks, loggers, models, data and commands come in.

Whatever is asked for by name is an entry point of an installed distribution, ours included, so a
third party's plugin and a first-party one are found, loaded and reported in the same way. Reading
the metadata imports nothing; a plugin is imported when it is asked for, alone, so that a broken
one costs a record and a warning and never an unrelated run. Nothing becomes active by being
installed.

This module does not import torch: the command line uses it before anything heavy is needed.
"""

from __future__ import annotations

import inspect
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module, invalidate_caches, metadata
from types import MappingProxyType
from typing import Any, Literal

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

PluginState = Literal["ok", "broken", "unloaded", "duplicate"]


@dataclass(frozen=True)
class Group:
    """What one entry-point group holds.

    Args:
        noun: What one of its members is called in messages.
        contract: `module:Class` that instances belong to, or None where any object will do.

    Example:
        >>> GROUPS["composer.callbacks"].noun
        'callback'
    """

    noun: str
    contract: str | None = None


GROUPS: Mapping[str, Group] = MappingProxyType(
    {
        "composer.algorithms": Group("algorithm", "composer.core.algorithm:Algorithm"),
        "composer.callbacks": Group("callback", "composer.core.callback:Callback"),
        "composer.commands": Group("command"),
        "composer.datasets": Group("data set"),
        "composer.devices": Group("device", "composer.devices.base:Device"),
        "composer.loggers": Group("logger", "composer.core.logger:LoggerDestination"),
        "composer.models": Group("model"),
        "composer.object_stores": Group(
            "object store", "composer.utils.object_store.base:ObjectStore"
        ),
        "composer.optimizers": Group("optimizer"),
        "composer.recipes": Group("recipe"),
        "composer.schedulers": Group("scheduler"),
        "composer.streaming.encodings": Group("encoding"),
        "composer.streaming.shuffles": Group("shuffle"),
        "composer.trace_handlers": Group("trace handler"),
    }
)

# What our own distributions bring, as data, so that a name whose distribution is not installed
# leads to the command that installs it. A repository test compares it with their metadata.
FIRST_PARTY: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "composer.algorithms": {
            "composer-algorithms": (
                "blurpool",
                "channels_last",
                "cutmix",
                "cutout",
                "ema",
                "gradient_clipping",
                "label_smoothing",
                "mixup",
                "progressive_resizing",
                "selective_backprop",
            ),
        },
        "composer.callbacks": {
            "composer-trainer": (
                "checkpoint_saver",
                "early_stopper",
                "lr_monitor",
                "threshold_stopper",
            ),
        },
        "composer.commands": {
            "composer-recipes": ("train",),
            "composer-trainer": ("plugins",),
        },
        "composer.datasets": {
            "composer-recipes": ("fashion_mnist",),
        },
        "composer.devices": {
            "composer-core": ("cpu", "gpu", "mps"),
        },
        "composer.loggers": {
            "composer-loggers": ("console", "file", "in_memory", "progress_bar"),
        },
        "composer.models": {
            "composer-models": ("composer_classifier", "composer_resnet_cifar"),
        },
        "composer.object_stores": {
            "composer-core": ("file",),
        },
        "composer.optimizers": {
            "composer-trainer": ("decoupled_adamw", "decoupled_sgdw"),
        },
        "composer.recipes": {
            "composer-recipes": ("fashion_mnist_resnet8",),
        },
        "composer.schedulers": {
            "composer-trainer": (
                "constant",
                "constant_with_warmup",
                "cosine_annealing",
                "cosine_annealing_warm_restarts",
                "cosine_annealing_with_warmup",
                "exponential",
                "linear",
                "linear_with_warmup",
                "multi_step",
                "multi_step_with_warmup",
                "polynomial",
                "polynomial_with_warmup",
                "step",
            ),
        },
    }
)


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


@dataclass(frozen=True)
class PluginEntry:
    """One line of entry-point metadata; making it imports nothing.

    Args:
        group: The entry-point group.
        name: The name under which the plugin is asked for.
        value: `module:attribute` that it points to.
        distribution: The distribution that ships it.
        version: The version of that distribution.
        location: The folder whose metadata names it.

    Example:
        >>> entry = PluginEntry("composer.loggers", "sink", "cool.sink:Sink", "cool", "1.0")
        >>> entry.qualified_name, entry.module, entry.attribute
        ('cool:sink', 'cool.sink', 'Sink')
    """

    group: str
    name: str
    value: str
    distribution: str
    version: str
    location: str = field(default="", compare=False)

    @property
    def qualified_name(self) -> str:
        """`distribution:name`, the spelling that chooses among several of one name."""
        return f"{self.distribution}:{self.name}"

    @property
    def module(self) -> str:
        """The module part of the value."""
        return self.value.partition(":")[0].strip()

    @property
    def attribute(self) -> str:
        """The attribute part of the value without extras; empty if it is a whole module."""
        return self.value.partition(":")[2].partition("[")[0].strip()


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


class Registry:
    """The plugins of one search path.

    The functions of this module speak to one registry that reads `sys.path`. Metadata is read at
    the first question and kept until `refresh`.

    Args:
        path: Folders to search; `sys.path` as it is at the time of reading if None.

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
                self._entries, self._unreadable = _read_entries(self._path)
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
            name: The plugin's name, or `distribution:name`.

        Returns:
            The entry.

        Raises:
            PluginNotFoundError: If nothing installed offers the name.
            PluginConflictError: If several distributions offer it with different targets.

        Example:
            >>> Registry(path=[]).find("composer.loggers", "console")
            Traceback (most recent call last):
            composer.core.plugins.PluginNotFoundError: no logger named 'console' is installed...
        """
        if not isinstance(name, str):
            raise TypeError(
                f"name must be a string, the name of a {GROUPS[group].noun}; got {name!r}"
            )
        distribution, _, short = name.rpartition(":")
        found = [entry for entry in self.entries(group) if entry.name == short]
        if distribution:
            wanted = _normalize(distribution)
            found = [entry for entry in found if _normalize(entry.distribution) == wanted]
        if not found:
            raise PluginNotFoundError(self._explain_unknown(group, name))
        if len({entry.value for entry in found}) > 1:
            raise PluginConflictError(_explain_conflict(group, name, found))
        return found[0]

    def load(self, group: str, name: str) -> Any:
        """Import a plugin and return what its entry points to.

        A failure is kept as a record and the next call tries again.

        Args:
            group: The entry-point group.
            name: The plugin's name, or `distribution:name`.

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
            PluginLoadError: If it fails and `strict` is set.

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

    def state(self, entry: PluginEntry) -> PluginState:
        """Say what is known of an entry without importing it.

        Args:
            entry: The entry.

        Returns:
            `duplicate` if another distribution offers the name with another target, `broken` if
            the last try to load it failed, `ok` if it was loaded, else `unloaded`.

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
        others = (other for other in self.entries(entry.group) if other.name == entry.name)
        if any(other.value != entry.value for other in others):
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

    def resolve(self, group: str, thing: Any, **arguments: Any) -> Any:
        """Turn an instance, a class or a name into an instance.

        Args:
            group: The entry-point group.
            thing: An instance, returned as it is, or a class or a name, which are called.
            **arguments: What a class or name is called with.

        Returns:
            The instance.

        Raises:
            PluginError: If a name cannot be loaded.
            TypeError: If `thing` is none of these, or an argument is unknown or missing.

        Example:
            >>> Registry().resolve("composer.devices", "cpu").name
            'cpu'
        """
        _check_group(group)
        if isinstance(thing, str):
            label = f"{GROUPS[group].noun} {thing!r}"
            return _call(self.load(group, thing), arguments, label=label)
        contract = _contract(group)
        if inspect.isclass(thing):
            if contract is not None and not issubclass(thing, contract):
                raise TypeError(f"{thing!r} is not a subclass of {contract.__name__}")
            label = f"{GROUPS[group].noun} {thing.__qualname__}"
            return _call(thing, arguments, label=label)
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
            The plugin name, spelled `distribution:name` where the bare name is not unique, or
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
                unique = self.state(entry) != "duplicate"
                return entry.name if unique else entry.qualified_name
        return None

    def _load_entry(self, entry: PluginEntry) -> Any:
        with self._lock:
            if entry in self._loaded:
                return self._loaded[entry]
        # Not under the lock: an import runs foreign code, which may ask this registry.
        before = set(sys.modules)
        try:
            found = _import_value(entry)
        except (Exception, SystemExit) as error:
            _undo_imports(entry.module, before)
            text = _format_traceback(error)
            failure = PluginFailure(entry, error, text)
            with self._lock:
                self._failures[entry] = failure
            raise PluginLoadError(
                f"the {GROUPS[entry.group].noun} {entry.name!r} of {entry.distribution} "
                f"{entry.version} (entry point {entry.value!r} in {entry.location}) cannot be "
                f"loaded: {failure.summary}. "
                f"`composer plugins doctor {entry.name}` shows the traceback.",
                name=entry.module,
            ) from error
        with self._lock:
            self._failures.pop(entry, None)
            self._loaded[entry] = found
        return found

    def _explain_unknown(self, group: str, name: str) -> str:
        noun = GROUPS[group].noun
        distribution, _, short = name.rpartition(":")
        known = self.names(group)
        lines = [f"no {noun} named {name!r} is installed."]
        offered = {
            offered: owner
            for owner, names in FIRST_PARTY.get(group, {}).items()
            for offered in names
        }
        same = [entry for entry in self.entries(group) if entry.name == short]
        if distribution and same:
            lines.append(
                f"The name {short!r} is offered by: "
                f"{', '.join(f'{entry.distribution} {entry.version}' for entry in same)}."
            )
        elif short in offered:
            lines.append(
                f"{short!r} comes with {offered[short]}. "
                f"Install it with: pip install {offered[short]}"
            )
        else:
            # Two passes, since what is installed is the better guess.
            if hint := did_you_mean(_snake_case(short), known).strip():
                lines.append(hint)
            elif hint := did_you_mean(_snake_case(short), offered).strip():
                owners = {owner for name_, owner in offered.items() if f'"{name_}"' in hint}
                owner = min(owners)
                lines.append(f"{hint} It comes with {owner}. Install it with: pip install {owner}")
        lines.append(f"Known names of {group}: {', '.join(known) or 'none'}.")
        for hidden, hiding in _hidden_entries(self._path, group, short):
            lines.append(
                f"{hidden} offers it, but {hiding} comes first and hides it; "
                f"remove the stale metadata."
            )
        folders = self._path if self._path is not None else sys.path
        lines.append(f"Folders searched: {', '.join(folder or '.' for folder in folders)}.")
        lines.append(
            "An entry point that was added to an editable package is seen after the package is "
            "installed again."
        )
        return "\n".join(lines)


def _check_group(group: str) -> None:
    if group not in GROUPS:
        raise ValueError(
            f"no plugin group {group!r}.{did_you_mean(str(group), GROUPS)} "
            f"Groups: {', '.join(sorted(GROUPS))}."
        )


def _read_entries(path: list[str] | None) -> tuple[dict[str, list[PluginEntry]], list[str]]:
    """Read the metadata of all groups; one damaged distribution does not hide the rest."""
    where: dict[str, Any] = {} if path is None else {"path": path}
    table: dict[str, list[PluginEntry]] = {}
    unreadable = []
    for distribution in metadata.distributions(**where):
        try:
            # Most distributions have nothing for us; reading their names would cost far more.
            if "composer." not in (distribution.read_text("entry_points.txt") or ""):
                continue
            points = [point for point in distribution.entry_points if point.group in GROUPS]
            if not points:
                continue
            name = distribution.metadata["Name"]
            version = distribution.version
            # As for imports, the first folder on the path that has the distribution counts.
            front = next(iter(metadata.distributions(name=name, **where)), distribution)
        except Exception as error:
            unreadable.append(
                f"the plugin metadata in {_location(distribution)} cannot be read and is left "
                f"out: {type(error).__name__}: {error}"
            )
            continue
        location = _location(distribution)
        if _location(front) != location:
            continue
        for point in points:
            entry = PluginEntry(
                group=point.group,
                name=point.name,
                value=point.value,
                distribution=name,
                version=version,
                location=location,
            )
            known = table.setdefault(point.group, [])
            if entry not in known:
                known.append(entry)
    for known in table.values():
        known.sort(key=lambda entry: (entry.name, entry.distribution, entry.value))
    return table, unreadable


def _hidden_entries(path: list[str] | None, group: str, name: str) -> list[tuple[str, str]]:
    """Find metadata that offers the name behind other metadata of the same distribution."""
    where: dict[str, Any] = {} if path is None else {"path": path}
    first: dict[str, metadata.Distribution] = {}
    hidden = []
    for distribution in metadata.distributions(**where):
        try:
            key = _normalize(distribution.metadata["Name"] or "")
            front = first.setdefault(key, distribution)
            if front is distribution:
                continue
            points = distribution.entry_points
            if any(point.group == group and point.name == name for point in points):
                hidden.append((_describe(distribution), _describe(front)))
        except Exception:
            # Damaged metadata was reported when it was read.
            continue
    return hidden


def _describe(distribution: metadata.Distribution) -> str:
    return f"{distribution.metadata['Name']} {distribution.version} in {_location(distribution)}"


def _location(distribution: metadata.Distribution) -> str:
    # Only the distributions found in folders know one; others name the place of their files.
    return str(getattr(distribution, "_path", None) or distribution.locate_file(""))


def _import_value(entry: PluginEntry) -> Any:
    if not re.fullmatch(r"[\w.]+(\s*:\s*[\w.]+)?(\s*\[.*\])?", entry.value):
        raise ValueError(f"entry point value {entry.value!r} is not of the form module:attribute")
    found: Any = import_module(entry.module)
    for part in filter(None, entry.attribute.split(".")):
        found = getattr(found, part)
    return found


def _format_traceback(error: BaseException) -> str:
    """Format without the frames of this module and of the import machinery."""
    formatted = traceback.TracebackException.from_exception(error)
    frames = formatted.stack
    machinery = (__file__, import_module.__code__.co_filename, "<frozen importlib._bootstrap")
    kept = [frame for frame in frames if not frame.filename.startswith(machinery)]
    formatted.stack = traceback.StackSummary.from_list(kept)
    return "".join(formatted.format())


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


def _call(thing: Callable[..., Any], arguments: dict[str, Any], *, label: str) -> Any:
    """Call a plugin; a wrong argument is named beside the accepted ones before the call."""
    if not callable(thing):
        if arguments:
            raise TypeError(f"{label} takes no arguments; got {sorted(arguments)}")
        return thing
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        # Classes written in C may not have one; the call itself then judges the arguments.
        return thing(**arguments)
    parameters = signature.parameters.values()
    accepted = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for argument in arguments:
            if argument not in accepted:
                raise TypeError(
                    f"{label} has no argument {argument!r}.{did_you_mean(argument, accepted)} "
                    f"It accepts: {', '.join(accepted) or 'none'}."
                )
    missing = [
        p.name
        for p in parameters
        if p.name in accepted and p.default is p.empty and p.name not in arguments
    ]
    if missing:
        raise TypeError(f"{label} needs the arguments {missing}; got {sorted(arguments)}")
    return thing(**arguments)


def _explain_conflict(group: str, name: str, found: list[PluginEntry]) -> str:
    noun = GROUPS[group].noun
    offers = "; ".join(f"{entry.distribution} {entry.version} ({entry.value})" for entry in found)
    spellings = sorted({entry.qualified_name for entry in found})
    message = f"several plugins offer the {noun} {name!r}: {offers}. "
    if len(spellings) > 1:
        return message + (
            f"Choose one by writing {' or '.join(map(repr, spellings))}, or uninstall the other."
        )
    return message + f"The distribution {found[0].distribution} has to name them apart."


def _normalize(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


_registry = Registry()


def refresh() -> None:
    """Read the metadata again at the next question, after an install in a running process.

    Example:
        >>> refresh()
    """
    _registry.refresh()


def entries(group: str) -> list[PluginEntry]:
    """List the entries of a group, sorted by name, without importing any of them.

    Args:
        group: The entry-point group.

    Returns:
        The entries; two distributions that offer one name give two of them.

    Example:
        >>> [entry.name for entry in entries("composer.devices")]
        ['cpu', 'gpu', 'mps']
    """
    return _registry.entries(group)


def names(group: str) -> list[str]:
    """List the names of a group.

    Args:
        group: The entry-point group.

    Returns:
        The names, sorted, each once.

    Example:
        >>> names("composer.devices")
        ['cpu', 'gpu', 'mps']
    """
    return _registry.names(group)


def load(group: str, name: str) -> Any:
    """Import a plugin and return what its entry points to.

    Args:
        group: The entry-point group.
        name: The plugin's name, or `distribution:name` to choose among several of one name.

    Returns:
        The object, most often a class.

    Raises:
        PluginNotFoundError: If nothing installed offers the name.
        PluginConflictError: If several distributions offer it with different targets.
        PluginLoadError: If importing it fails; the cause is chained.

    Example:
        >>> load("composer.devices", "cpu").__name__
        'DeviceCPU'
    """
    return _registry.load(group, name)


def resolve(group: str, thing: Any, **arguments: Any) -> Any:
    """Turn an instance, a class or a name into an instance.

    Args:
        group: The entry-point group.
        thing: An instance, returned as it is, or a class or a name, which are called.
        **arguments: What a class or name is called with.

    Returns:
        The instance.

    Raises:
        PluginError: If a name cannot be loaded.
        TypeError: If `thing` is none of these, or an argument is unknown or missing.

    Example:
        >>> resolve("composer.devices", "cpu").name
        'cpu'
    """
    return _registry.resolve(group, thing, **arguments)


def name_of(group: str, cls: Any) -> str | None:
    """Return the name under which a class is registered.

    Args:
        group: The entry-point group.
        cls: The class or other object that an entry may point to.

    Returns:
        The plugin name, spelled `distribution:name` where the bare name is not unique, or None
        if no entry points to it.

    Example:
        >>> from composer.devices.cpu import DeviceCPU
        >>> name_of("composer.devices", DeviceCPU)
        'cpu'
    """
    return _registry.name_of(group, cls)


def check(entry: PluginEntry, *, strict: bool = False) -> PluginFailure | None:
    """Try to load one entry, for listings that go over all of them.

    Args:
        entry: The entry to try.
        strict: Raise the failure instead of warning of it.

    Returns:
        None if it loads, else the record of the failure, of which a warning was given.

    Raises:
        PluginLoadError: If it fails and `strict` is set.

    Example:
        >>> check(entries("composer.devices")[0]) is None
        True
    """
    return _registry.check(entry, strict=strict)


def state(entry: PluginEntry) -> PluginState:
    """Say what is known of an entry without importing it.

    Args:
        entry: The entry.

    Returns:
        `broken` if the last try to load it failed, `duplicate` if another distribution offers the
        name with another target, `ok` if it was loaded, else `unloaded`.

    Example:
        >>> _ = load("composer.devices", "cpu")
        >>> state(entries("composer.devices")[0])
        'ok'
    """
    return _registry.state(entry)


def failure(entry: PluginEntry) -> PluginFailure | None:
    """Return the record of the last failed load of an entry.

    Args:
        entry: The entry.

    Returns:
        The record, or None if it did not fail.

    Example:
        >>> failure(entries("composer.devices")[0]) is None
        True
    """
    return _registry.failure(entry)


def unreadable() -> list[str]:
    """List the distributions whose metadata is damaged, and how.

    Returns:
        One sentence for each, of which a warning was given when it was read.

    Example:
        >>> unreadable()
        []
    """
    return _registry.unreadable()
