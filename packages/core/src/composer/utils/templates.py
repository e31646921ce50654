"""Names that a template can give, told from others; filling one in is the business of ``paths``."""

from __future__ import annotations

import os
import pathlib
import re
import string
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from composer.utils.paths import (
    DIST_FIELDS,
    TIME_FIELDS,
    format_name_with_dist,
    time_values,
)
from composer.utils.suggestions import did_you_mean

if TYPE_CHECKING:
    from composer.core.timestamp import Timestamp

__all__ = [
    "check_template",
    "conflicting_names",
    "ensure_folder_has_no_conflicting_files",
    "fixed_folder",
    "folders_of_template",
    "matches_template",
    "names_of_template",
    "time_fields",
]


def check_template(template: Any, argument: str, *, timed: bool = True) -> str:
    """Refuse a template in which something would be left as it stands, or not be found again.

    Args:
        template: What a user gave: a str, or a path object.
        argument: Name of the argument, for messages.
        timed: Whether it names a moment, so that the fields of the clock are known.

    Returns:
        The template.

    Raises:
        TypeError: If it is no text.
        ValueError: If it is empty or malformed, if it has a field that is never filled in, or one
            of the clock in a format that cannot be told from other text.

    Example:
        >>> check_template("ep{epoch}.pt", "save_filename")
        'ep{epoch}.pt'
        >>> check_template("{run_nam}", "save_folder", timed=False)
        Traceback (most recent call last):
        ValueError: save_folder='{run_nam}' has the unknown field {run_nam}. Did you mean ...
    """
    text = os.fspath(template) if isinstance(template, os.PathLike) else template
    like = "ep{epoch}-ba{batch}.pt" if timed else "{run_name}-rank{rank}.pt"
    if not isinstance(text, str):
        raise TypeError(
            f"{argument}={template!r} must be a name such as {like!r}, a str or a Path, not "
            f"{type(template).__name__}"
        )
    if not text:
        raise ValueError(f"{argument} must be a name such as {like!r}, not ''")
    if "\0" in text:
        raise ValueError(f"{argument}={text!r} holds a NUL character, which no path may")
    known = {**DIST_FIELDS, **(TIME_FIELDS if timed else {})}
    bad = f"{argument}={text!r} is not a name template"
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(text) if field is not None]
    except ValueError as error:
        raise ValueError(
            f"{bad}: {error}. A brace that is part of a name is written twice"
        ) from None
    for field in fields:
        if field not in known:
            hint = did_you_mean(field, known)
            if field in TIME_FIELDS:
                hint = " It changes while the run goes on, and this name does not."
            raise ValueError(
                f"{argument}={text!r} has the unknown field {{{field}}}.{hint} Accepted are "
                f"{', '.join(f'{{{name}}}' for name in known)}; a brace that is part of a name is "
                f"written twice"
            )
    for number in (7, 123456):
        clock = {n: float(number) if n.endswith("_wct") else number for n in TIME_FIELDS}
        try:
            name = format_name_with_dist(text, "run", **clock)
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"{bad}: {error}") from None
        if timed and not _finds(text, name, number):
            raise ValueError(
                f"{bad}: in its name {name!r} the numbers cannot be found again. Use plain fields, "
                f"or widths such as {{epoch:03d}}"
            )
    return text


def _finds(template: str, name: str, number: int) -> bool:
    """Whether all counters are read from a name as the number that they are."""
    match = _template_to_pattern(template, "run")[0].fullmatch(name)
    return match is not None and all(float(text) == number for text in match.groupdict().values())


def time_fields(template: str) -> set[str]:
    """Return the fields of the clock that a template has.

    Args:
        template: The template.

    Returns:
        Their names.

    Example:
        >>> sorted(time_fields("{run_name}-ep{epoch}-ba{batch}.pt"))
        ['batch', 'epoch']
    """
    return {f for _, f, _, _ in string.Formatter().parse(template) if f in TIME_FIELDS}


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
    folder: str | os.PathLike[str],
    filename: str,
    *,
    run_name: str | None = None,
    folders: bool = False,
) -> list[str]:
    """List the files of a folder that have a name which a template can give.

    Args:
        folder: The folder. It need not exist.
        filename: The template, relative to the folder. Only the folders that it can give are
            looked into, however many others there are.
        run_name: The name of the run; by default any without a slash could be.
        folders: Whether to list folders under such names instead.

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
            if pattern.fullmatch(name) and path.is_dir() == folders:
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
