"""What the metadata of installed distributions says of plugins, read without importing any.

One damaged distribution costs a sentence about it and hides none of the others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib import import_module, metadata
from typing import Any

from composer.utils.plugin_table import GROUPS

__all__ = ["PluginEntry", "find_hidden_entries", "normalize_name", "read_entries"]


@dataclass(frozen=True)
class PluginEntry:
    """One line of entry-point metadata; making it imports nothing.

    Args:
        group: The entry-point group.
        name: The name under which the plugin is asked for.
        value: ``module:attribute`` that it points to.
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
        """``distribution:name``, the spelling that chooses among several of one name."""
        return f"{self.distribution}:{self.name}"

    @property
    def module(self) -> str:
        """The module part of the value."""
        return self.value.partition(":")[0].strip()

    @property
    def attribute(self) -> str:
        """The attribute part of the value without extras; empty if it is a whole module."""
        return self.value.partition(":")[2].partition("[")[0].strip()

    def load(self) -> Any:
        """Import what the value points to.

        Returns:
            The object.

        Raises:
            ValueError: If the value is malformed.

        Example:
            >>> PluginEntry("composer.models", "root", "math:sqrt", "cool", "1.0").load()(9)
            3.0
        """
        if not re.fullmatch(r"[\w.]+(\s*:\s*[\w.]+)?(\s*\[.*\])?", self.value):
            raise ValueError(
                f"entry point value {self.value!r} is not of the form module:attribute"
            )
        found: Any = import_module(self.module)
        for part in filter(None, self.attribute.split(".")):
            found = getattr(found, part)
        return found


def read_entries(path: list[str] | None = None) -> tuple[dict[str, list[PluginEntry]], list[str]]:
    """Read the metadata of all groups.

    Args:
        path: Folders to search; ``sys.path`` if None.

    Returns:
        The entries of each group, sorted by name, and a sentence for each distribution whose
        metadata is damaged.

    Example:
        >>> read_entries([])
        ({}, [])
    """
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


def find_hidden_entries(path: list[str] | None, group: str, name: str) -> list[tuple[str, str]]:
    """Find metadata that offers a name behind other metadata of the same distribution.

    Args:
        path: Folders to search; ``sys.path`` if None.
        group: The entry-point group.
        name: The plugin's name.

    Returns:
        What is hidden and what hides it, in words.

    Example:
        >>> find_hidden_entries([], "composer.loggers", "console")
        []
    """
    where: dict[str, Any] = {} if path is None else {"path": path}
    first: dict[str, metadata.Distribution] = {}
    hidden = []
    for distribution in metadata.distributions(**where):
        try:
            key = normalize_name(distribution.metadata["Name"] or "")
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


def normalize_name(distribution: str) -> str:
    """Spell the name of a distribution as package indexes compare it.

    Args:
        distribution: The name.

    Returns:
        In lower case, with single dashes.

    Example:
        >>> normalize_name("Composer_Cool")
        'composer-cool'
    """
    return re.sub(r"[-_.]+", "-", distribution).lower()
