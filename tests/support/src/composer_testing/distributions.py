"""Installed distributions made of a few files, for tests of discovery."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

__all__ = ["write_distribution"]


def write_distribution(
    folder: Path,
    name: str,
    *,
    version: str = "1.0",
    entry_points: Mapping[str, Mapping[str, str]] | None = None,
    modules: Mapping[str, str] | None = None,
) -> Path:
    """Write what an installer would leave in a folder of the search path.

    Args:
        folder: The folder; put it on `sys.path` to install it.
        name: Name of the distribution.
        version: Its version.
        entry_points: Group to name to value.
        modules: File path under the folder to source text.

    Returns:
        The metadata folder.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_distribution(Path(folder), "cool").name
        'cool-1.0.dist-info'
    """
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, table in (entry_points or {}).items():
        lines.append(f"[{group}]")
        lines += [f"{key} = {value}" for key, value in table.items()]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    record = []
    for path, source in (modules or {}).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(source))
        record.append(f"{path},,")
    (info / "RECORD").write_text("\n".join(record) + "\n")
    return info
