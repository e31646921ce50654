"""Names of files: templates, URIs, and writing so that a file is complete or absent.

A template such as ``"{run_name}/ep{epoch}-rank{rank}.pt"`` is filled in with facts about the rank
and, where given, the moment. Fields that nobody knows yet are left in place for a later pass; a
field that looks like a misspelt one is an error, since the file would be written under a strange
name.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import pathlib
import re
import string
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from composer.utils import dist
from composer.utils.suggestions import did_you_mean
from composer.utils.temporaries import temporary_beside

if TYPE_CHECKING:
    from composer.core.timestamp import Timestamp

__all__ = [
    "FORMAT_NAME_WITH_DIST_AND_TIME_TABLE",
    "FORMAT_NAME_WITH_DIST_TABLE",
    "atomic_write",
    "create_symlink_file",
    "ensure_folder_is_empty",
    "format_name_with_dist",
    "format_name_with_dist_and_time",
    "is_inside",
    "is_tar",
    "is_uri",
    "local_path",
    "location",
    "parse_uri",
    "partial_format",
]

DIST_FIELDS = {
    "run_name": "the name of the run",
    "rank": "the global rank",
    "local_rank": "the rank on the node",
    "world_size": "the number of ranks",
    "local_world_size": "the number of ranks on the node",
    "node_rank": "the number of the node",
}
TIME_FIELDS = {
    "iteration": "finished iterations",
    "epoch": "finished epochs",
    "epoch_in_iteration": "finished epochs of the iteration",
    "batch": "finished batches",
    "batch_in_epoch": "finished batches of the epoch",
    "sample": "samples seen",
    "sample_in_epoch": "samples seen in the epoch",
    "token": "tokens seen",
    "token_in_epoch": "tokens seen in the epoch",
    "token_in_iteration": "tokens seen in the iteration",
    "total_wct": "seconds of training",
    "epoch_wct": "seconds of training in the epoch",
    "batch_wct": "seconds of the last batch",
    "iteration_wct": "seconds of training in the iteration",
}


def _as_table(fields: dict[str, str]) -> str:
    return "\n".join(f"{{{name}}}: {meaning}" for name, meaning in fields.items())


#: The fields of ``format_name_with_dist``, for help texts.
FORMAT_NAME_WITH_DIST_TABLE = _as_table(DIST_FIELDS)
#: The fields of ``format_name_with_dist_and_time``, for help texts.
FORMAT_NAME_WITH_DIST_AND_TIME_TABLE = _as_table({**DIST_FIELDS, **TIME_FIELDS})


def partial_format(s: str, *args: Any, **kwargs: Any) -> str:
    """Format a string as ``str.format`` does, leaving fields that are not given in place.

    Args:
        s: The template.
        *args: Values of positional fields.
        **kwargs: Values of named fields.

    Returns:
        The string.

    Example:
        >>> partial_format("{run_name}-{epoch:03d}", run_name="a")
        'a-{epoch:03d}'
    """
    formatter = string.Formatter()
    parts: list[str] = []
    next_position = 0
    for literal, field, spec, conversion in formatter.parse(s):
        parts.append(literal)
        if field is None:
            continue
        original = field
        first = re.match(r"[^.\[]*", field)
        name = first.group() if first else ""
        if name == "":
            name = str(next_position)
            field = name + field
            next_position += 1
        known = int(name) < len(args) if name.isdigit() else name in kwargs
        if known:
            value, _ = formatter.get_field(field, args, kwargs)
            value = formatter.convert_field(value, conversion)
            parts.append(format(value, partial_format(spec or "", *args, **kwargs)))
        else:
            parts.append("{" + original)
            parts.append("" if conversion is None else "!" + conversion)
            parts.append(f":{spec}" if spec else "")
            parts.append("}")
    return "".join(parts)


def _format_name(format_str: str, values: dict[str, Any]) -> str:
    known = {*values, *DIST_FIELDS, *TIME_FIELDS}
    for _, field, _, _ in string.Formatter().parse(format_str):
        if field is not None and field.isidentifier() and field not in known:
            hint = did_you_mean(field, known)
            # A field of one letter's difference is a slip; others may be filled in later.
            if hint and _edit_distance_is_small(field, hint.split('"')[1]):
                raise ValueError(
                    f"format_str={format_str!r} has the unknown field {{{field}}}.{hint} "
                    f"Known are: {', '.join(sorted(known))}."
                )
    return partial_format(format_str, **values)


def _edit_distance_is_small(a: str, b: str) -> bool:
    return difflib.SequenceMatcher(None, a, b).ratio() >= 0.8


def _dist_values(run_name: str) -> dict[str, Any]:
    return {
        "run_name": run_name,
        "rank": dist.get_global_rank(),
        "local_rank": dist.get_local_rank(),
        "world_size": dist.get_world_size(),
        "local_world_size": dist.get_local_world_size(),
        "node_rank": dist.get_node_rank(),
    }


def format_name_with_dist(format_str: str, run_name: str, **extra_format_kwargs: object) -> str:
    """Fill in the facts about this rank.

    Args:
        format_str: The template; see ``FORMAT_NAME_WITH_DIST_TABLE``.
        run_name: The name of the run.
        **extra_format_kwargs: More fields.

    Returns:
        The name. Fields that are not known yet stay in place.

    Raises:
        ValueError: If a field looks like a misspelt one.

    Example:
        >>> format_name_with_dist("{run_name}/rank{rank}.txt", "my-run")
        'my-run/rank0.txt'
    """
    return _format_name(format_str, {**_dist_values(run_name), **extra_format_kwargs})


def format_name_with_dist_and_time(
    format_str: str, run_name: str, timestamp: Timestamp, **extra_format_kwargs: object
) -> str:
    """Fill in the facts about this rank and the moment.

    Args:
        format_str: The template; see ``FORMAT_NAME_WITH_DIST_AND_TIME_TABLE``.
        run_name: The name of the run.
        timestamp: The moment.
        **extra_format_kwargs: More fields.

    Returns:
        The name. Fields that are not known stay in place.

    Raises:
        ValueError: If a field looks like a misspelt one.

    Example:
        >>> from composer.core.timestamp import Timestamp
        >>> format_name_with_dist_and_time("{run_name}/ep{epoch}-ba{batch}", "my-run", Timestamp())
        'my-run/ep0-ba0'
    """
    values = {**_dist_values(run_name), **time_values(timestamp), **extra_format_kwargs}
    return _format_name(format_str, values)


def time_values(timestamp: Timestamp) -> dict[str, Any]:
    """Return what the fields of a moment are filled with.

    Args:
        timestamp: The moment.

    Returns:
        Field to number; clocks in seconds.

    Example:
        >>> from composer.core.timestamp import Timestamp
        >>> time_values(Timestamp(batch=3))["batch"]
        3
    """
    values: dict[str, Any] = {}
    for name in TIME_FIELDS:
        value = getattr(timestamp, name)
        values[name] = value.total_seconds() if name.endswith("_wct") else int(value)
    return values


def parse_uri(uri: str) -> tuple[str, str, str]:
    """Take a URI apart. Nothing is decoded: ``%``, ``#``, ``?`` and spaces are part of the path.

    Args:
        uri: A URI or a local path.

    Returns:
        The scheme in lower case, the bucket, and the path in the bucket without a leading slash.
        For a local path scheme and bucket are empty and the path is as given; for ``file://`` the
        bucket is empty and the path absolute.

    Example:
        >>> parse_uri("s3://my-bucket/folder/a b.pt")
        ('s3', 'my-bucket', 'folder/a b.pt')
        >>> parse_uri("folder/file.pt")
        ('', '', 'folder/file.pt')
    """
    match = _URI.match(uri)
    if match is None:
        return "", "", uri
    scheme, rest = match.group(1).lower(), uri[match.end() :]
    if scheme == "file":
        path = rest if rest.startswith("/") else "/" + rest.removeprefix("localhost").lstrip("/")
        return scheme, "", path
    bucket, _, path = rest.partition("/")
    return scheme, bucket, path.lstrip("/")


_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://")


def is_uri(path: str) -> bool:
    """Tell whether a string is a URI and not a local path.

    Args:
        path: The string.

    Returns:
        True if it starts with a scheme and ``://``.

    Example:
        >>> is_uri("s3://bucket/x"), is_uri("/tmp/x"), is_uri("C:/x")
        (True, False, False)
    """
    return _URI.match(path) is not None


def location(path: str | os.PathLike[str], argument: str) -> str:
    """Take a path, a URI or a path object as the string that it stands for.

    Args:
        path: What a user gave.
        argument: Name of the argument, for the message.

    Returns:
        The path or URI.

    Raises:
        TypeError: If it is none of these.
        ValueError: If it is empty, or would be taken for another place than is meant: a URI in
            which a slash is missing, or a home folder that nobody fills in.

    Example:
        >>> location(pathlib.Path("runs/a.pt"), "path"), location("s3://b/a.pt", "path")
        ('runs/a.pt', 's3://b/a.pt')
        >>> location(pathlib.Path("s3://b/a.pt"), "path")
        Traceback (most recent call last):
        ValueError: path='s3:/b/a.pt' is a URI in a path object, ... pass it as a str
        >>> location("s3:/b/a.pt", "path")
        Traceback (most recent call last):
        ValueError: path='s3:/b/a.pt' looks like a URI in which a slash is missing; ...
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise TypeError(
            f"{argument}={path!r} must be a path or a URI, a str or a Path, not "
            f"{type(path).__name__}"
        )
    if not text:
        raise ValueError(
            f"{argument}='' names no place; give a path such as 'runs/a' ('.' is the working "
            f"folder), or a URI such as 's3://bucket/a'"
        )
    if "\0" in text:
        raise ValueError(f"{argument}={text!r} holds a NUL character, which no path may")
    first = text.partition("/")[0]
    # A single letter is a drive.
    if first.endswith(":") and not re.fullmatch("[A-Za-z]:", first) and not is_uri(text):
        if not isinstance(path, str):
            raise ValueError(
                f"{argument}={text!r} is a URI in a path object, which leaves out one of its "
                f"slashes; pass it as a str"
            )
        raise ValueError(
            f"{argument}={text!r} looks like a URI in which a slash is missing; write "
            f"'{first.strip(':') or 's3'}://...', or {'./' + text!r} for a folder of this name"
        )
    if first == "~":
        raise ValueError(
            f"{argument}={text!r}: a home folder is not filled in; pass "
            f"os.path.expanduser({text!r}), or {'./' + text!r} for a folder of this name"
        )
    return text


def local_path(path: str | os.PathLike[str], argument: str) -> pathlib.Path:
    """Take a path of this machine, which may be written as a URI of ``file://``.

    Args:
        path: What a user gave.
        argument: Name of the argument, for the message.

    Returns:
        The path.

    Raises:
        TypeError: If it is no path.
        ValueError: If it is the URI of another place.

    Example:
        >>> str(local_path("file:///data/a.pt", "path"))
        '/data/a.pt'
        >>> local_path("s3://b/a.pt", "path")
        Traceback (most recent call last):
        ValueError: path='s3://b/a.pt' must be a file of this machine, not the URI of a store
    """
    text = location(path, argument)
    scheme, _, inner = parse_uri(text)
    if scheme not in ("", "file"):
        raise ValueError(
            f"{argument}={text!r} must be a file of this machine, not the URI of a store"
        )
    return pathlib.Path(inner)


_TAR_ENDINGS = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.lzma", ".tar.xz", ".tar.zst")


def is_tar(name: str | pathlib.Path) -> bool:
    """Tell from its name whether a file is a tar archive.

    Args:
        name: The file name.

    Returns:
        True if it ends as tar archives do.

    Example:
        >>> is_tar("a.tar.gz"), is_tar("a.pt")
        (True, False)
    """
    return str(name).endswith(_TAR_ENDINGS)


def ensure_folder_is_empty(folder_name: str | pathlib.Path) -> None:
    """Create a folder, and refuse one that holds files.

    Args:
        folder_name: The folder. Empty folders inside it do not count.

    Raises:
        FileExistsError: If there is a file in it, at any depth.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ensure_folder_is_empty(folder)
    """
    pathlib.Path(folder_name).mkdir(parents=True, exist_ok=True)
    for root, _, files in os.walk(folder_name):
        if files:
            found = str(pathlib.Path(root, sorted(files)[0]))
            raise FileExistsError(
                f"The folder {str(folder_name)!r} must be empty and holds {found!r}. Remove its "
                "files, choose another folder, or allow overwriting."
            )


def is_inside(path: str, folder: str | os.PathLike[str]) -> bool:
    """Tell whether a path lies in a folder, links of the folders resolved.

    Args:
        path: A path; a URI lies in no folder.
        folder: The folder.

    Returns:
        True if it does.

    Example:
        >>> is_inside("/a/b/c.pt", "/a"), is_inside("/a/../c.pt", "/a")
        (True, False)
    """
    if is_uri(path):
        return False
    # The last part may be a link to a file elsewhere; what counts is where the name is.
    whole = pathlib.Path(path)
    return (whole.parent.resolve() / whole.name).is_relative_to(pathlib.Path(folder).resolve())


def create_symlink_file(existing_path: str, destination_filename: str | pathlib.Path) -> None:
    """Write a small text file that points to another file, for stores that have no links.

    Args:
        existing_path: Where it points to.
        destination_filename: The file to write; its name must end in ``.symlink``.

    Raises:
        ValueError: If the name has another ending.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     link = pathlib.Path(folder) / "latest.symlink"
        ...     create_symlink_file("ep1.pt", link)
        ...     link.read_text()
        'ep1.pt'
    """
    if not str(destination_filename).endswith(".symlink"):
        raise ValueError(
            f"destination_filename={str(destination_filename)!r} must end in '.symlink'."
        )
    with atomic_write(destination_filename) as file:
        file.write(existing_path.encode("utf-8"))


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file for writing that appears under its name only when it is complete and on disk.

    The bytes go to a temporary file in the same folder, which must exist. Without an error it is
    flushed to the disk and renamed; with one it is removed, and whatever had the name before is
    untouched.

    Args:
        path: The file to write or replace.

    Yields:
        The temporary file, open for writing bytes.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "a"
        ...     with atomic_write(path) as file:
        ...         _ = file.write(b"whole")
        ...     path.read_bytes()
        b'whole'
    """
    # A link is followed, so that the file it points to is replaced and not the link.
    target = pathlib.Path(path).resolve()
    with complete_or_absent(target) as temporary, temporary.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    sync_folder(target.parent)


@contextlib.contextmanager
def complete_or_absent(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a temporary path beside another, which takes its place if the block ends well.

    Args:
        path: The file to write or replace, in an existing folder.

    Yields:
        The path to write to. After an error it is removed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "a"
        ...     with complete_or_absent(path) as temporary:
        ...         _ = temporary.write_text("whole")
        ...     path.read_text()
        'whole'
    """
    temporary = temporary_beside(path)
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Bring the names in a folder to the disk, where the system can.

    Args:
        folder: The folder.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sync_folder(folder)
    """
    if os.name != "posix":
        return
    descriptor = os.open(folder or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        # Some network file systems refuse; the file itself is safe by then.
        pass
    finally:
        os.close(descriptor)
