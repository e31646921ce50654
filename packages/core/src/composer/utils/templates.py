"""Names that a template can give, told from others; filling one in is the business of ``paths``."""

from __future__ import annotations

import os
import pathlib
import re
import string
from collections.abc import Iterable
from typing import TYPE_CHECKING

from composer.utils.paths import TIME_FIELDS, time_values

if TYPE_CHECKING:
    from composer.core.timestamp import Timestamp

__all__ = [
    "conflicting_names",
    "ensure_folder_has_no_conflicting_files",
    "fixed_folder",
    "folders_of_template",
    "matches_template",
    "names_of_template",
]


def conflicting_names(
    names: Iterable[str], filename: str, timestamp: Timestamp, *, run_name: str | None = None
) -> list[str]:
    """Find the names that a run would write at a later moment.

    Args:
        names: Names that exist.
        filename: The template of the names that the run will write.
        timestamp: The present moment. Names of earlier moments, or of this one, are fine.
        run_name: The name of the run; by default any could be.

    Returns:
        Those that conflict, sorted.

    Example:
        >>> from composer.core.timestamp import Timestamp
        >>> conflicting_names(["ep3.pt", "notes.txt"], "ep{epoch}.pt", Timestamp())
        ['ep3.pt']
    """
    now = time_values(timestamp)
    pattern, has_time = _template_to_pattern(filename, run_name)
    conflicts = []
    for name in sorted(names):
        match = pattern.fullmatch(name)
        if match is None:
            continue
        times = {field: text for field, text in match.groupdict().items() if field in TIME_FIELDS}
        later = [float(text) > now[field] for field, text in times.items() if text is not None]
        if not has_time or any(later):
            conflicts.append(name)
    return conflicts


def ensure_folder_has_no_conflicting_files(
    folder_name: str | pathlib.Path, filename: str, timestamp: Timestamp
) -> None:
    """Refuse a folder that holds files which this run would write at a later moment.

    Args:
        folder_name: The folder. It need not exist.
        filename: The template of the names that the run will write.
        timestamp: The present moment. Files of earlier moments, or of this one, are fine.

    Raises:
        FileExistsError: If there are such files; all of them are named.

    Example:
        >>> from composer.core.timestamp import Timestamp
        >>> ensure_folder_has_no_conflicting_files("/nowhere", "ep{epoch}.pt", Timestamp())
    """
    found = names_of_template(folder_name, filename)
    conflicts = conflicting_names(found, filename, timestamp)
    if conflicts:
        raise FileExistsError(
            f"The folder {str(folder_name)!r} holds files that this run would write again: "
            f"{', '.join(conflicts)}. Remove them, choose another folder, or allow overwriting."
        )


def matches_template(name: str, filename: str, *, run_name: str | None = None) -> bool:
    """Tell whether a name is one that a template can give.

    Args:
        name: The name.
        filename: The template; see ``FORMAT_NAME_WITH_DIST_AND_TIME_TABLE``.
        run_name: The name of the run; by default any could be.

    Returns:
        True if it is.

    Example:
        >>> matches_template("ep1-ba20.pt", "ep{epoch}-ba{batch}.pt")
        True
        >>> matches_template("a-ep1.pt", "{run_name}-ep{epoch}.pt", run_name="b")
        False
    """
    return _template_to_pattern(filename, run_name)[0].fullmatch(name) is not None


def names_of_template(
    folder: str | os.PathLike[str], filename: str, *, run_name: str | None = None
) -> list[str]:
    """List the files of a folder that have a name which a template can give.

    Args:
        folder: The folder. It need not exist.
        filename: The template, relative to the folder. Only the folders that it can give are
            looked into, however many others there are.
        run_name: The name of the run; by default any without a slash could be.

    Returns:
        The names, relative to the folder, sorted.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     (pathlib.Path(folder) / "ep1").mkdir()
        ...     _ = (pathlib.Path(folder) / "ep1" / "a.pt").write_bytes(b"")
        ...     names_of_template(folder, "ep{epoch}/a.pt")
        ['ep1/a.pt']
    """
    root = pathlib.Path(folder)
    pattern = _template_to_pattern(filename, run_name)[0]
    found = []
    for inner in folders_of_template(root, filename, run_name=run_name):
        for path in inner.iterdir():
            name = path.relative_to(root).as_posix()
            if pattern.fullmatch(name) and not path.is_dir():
                found.append(name)
    return sorted(found)


def folders_of_template(
    folder: pathlib.Path, filename: str, *, run_name: str | None = None
) -> list[pathlib.Path]:
    """List the folders below a folder in which files of a template can lie.

    Args:
        folder: The folder. It need not exist.
        filename: The template, relative to the folder.
        run_name: The name of the run; by default any without a slash could be.

    Returns:
        Those that exist.

    Example:
        >>> folders_of_template(pathlib.Path("/nowhere"), "ep{epoch}/a.pt")
        []
    """
    found = [folder]
    for part in _with_run_name(filename, run_name).split("/")[:-1]:
        if part in ("", "."):
            continue
        if _is_literal(part):
            found = [inner / part.replace("{{", "{").replace("}}", "}") for inner in found]
        else:
            # Links to folders count, as they do when the file is written.
            below = [inner.iterdir() for inner in found if inner.is_dir()]
            match = _template_to_pattern(part)[0].fullmatch
            found = [p for paths in below for p in paths if p.is_dir() and match(p.name)]
    return [inner for inner in found if inner.is_dir()]


def fixed_folder(filename: str, *, run_name: str | None = None) -> str:
    """Return the folder in which all names of a template lie.

    Args:
        filename: The template.
        run_name: The name of the run; by default any could be.

    Returns:
        The folder with a slash at its end, or nothing.

    Example:
        >>> fixed_folder("a/{run_name}/ep{epoch}/x.pt", run_name="b")
        'a/b/'
    """
    literal = ""
    for text, field, _, _ in string.Formatter().parse(_with_run_name(filename, run_name)):
        literal += text
        if field is not None:
            break
    return literal[: literal.rfind("/") + 1]


def _with_run_name(filename: str, run_name: str | None) -> str:
    """Fill the run's name into a template, and nothing else."""
    if run_name is None:
        return filename
    parts = []
    for literal, field, spec, conversion in string.Formatter().parse(filename):
        parts.append(_escaped(literal))
        if field == "run_name":
            given = string.Formatter().convert_field(run_name, conversion)
            parts.append(_escaped(format(given, spec or "")))
        elif field is not None:
            parts.append("{" + field + (f"!{conversion}" if conversion else ""))
            parts.append((f":{spec}" if spec else "") + "}")
    return "".join(parts)


def _escaped(literal: str) -> str:
    return literal.replace("{", "{{").replace("}", "}}")


def _is_literal(template: str) -> bool:
    return all(field is None for _, field, _, _ in string.Formatter().parse(template))


def _template_to_pattern(
    filename: str, run_name: str | None = None
) -> tuple[re.Pattern[str], bool]:
    parts: list[str] = []
    seen: set[str] = set()
    has_time = False
    for literal, field, _, _ in string.Formatter().parse(_with_run_name(filename, run_name)):
        parts.append(re.escape(literal))
        if field is None:
            continue
        if field in TIME_FIELDS:
            has_time = True
            number = r"[0-9]+(?:\.[0-9]+)?" if field.endswith("_wct") else r"[0-9]+"
            parts.append(f"(?P={field})" if field in seen else f"(?P<{field}>{number})")
            seen.add(field)
        else:
            # Names of runs may have slashes; what else there is are numbers.
            parts.append(".+?" if field == "run_name" else "[^/]+?")
    return re.compile("".join(parts)), has_time
