"""Get a file from anywhere: a path, a URI, a web address, or a name in a store."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer.utils import plugins
from composer.utils.object_store.base import ObjectStore
from composer.utils.object_store.registry import maybe_create_object_store_from_uri
from composer.utils.paths import complete_or_absent, is_uri, local_path, location, parse_uri

if TYPE_CHECKING:
    from composer.core.logger import LoggerDestination

__all__ = [
    "extract_path_from_symlink",
    "follow_links",
    "get_file",
    "list_remote_objects",
    "maybe_create_remote_uploader_downloader_from_uri",
    "validate_credentials",
]

_CHUNK_SIZE = 1 << 20
_LINK_ENDING = ".symlink"
_MOST_LINKS = 8


def get_file(
    path: str,
    destination: str,
    object_store: ObjectStore | LoggerDestination | None = None,
    overwrite: bool = False,
    progress_bar: bool = True,
) -> None:
    """Get a file. It appears complete or not at all.

    A ``path`` that ends in ``.symlink`` is a small text file which names the file to get: a name in
    the same bucket, or a path in the folder of the link. A link that leads elsewhere is refused.

    Args:
        path: A local path, a URI, a web address, or with ``object_store`` a name in it.
        destination: The file to write.
        object_store: An object store, or a logger destination that keeps files.
        overwrite: Replace an existing file.
        progress_bar: Show progress on a terminal.

    Raises:
        FileNotFoundError: If there is no such file.
        FileExistsError: If the destination exists and may not be replaced.
        ValueError: If no store for the scheme of a URI is installed, or a link leads elsewhere.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a").write_text("hello")
        ...     get_file(f"{folder}/a", f"{folder}/b")
        ...     Path(folder, "b").read_text()
        'hello'
    """
    path = _source(path, object_store, "path")
    destination = str(local_path(destination, "destination"))
    if Path(destination).exists() and not overwrite:
        raise FileExistsError(
            f"destination={destination!r} exists; set overwrite=True to replace it."
        )
    _fetch(follow_links(path, object_store), destination, object_store, overwrite, progress_bar)


def _source(path: str, object_store: object, argument: str) -> str:
    """Refuse what is no place; a name in a store may be any text."""
    named = object_store is not None and isinstance(path, str) and path
    return path if named else location(path, argument)


def follow_links(path: str, object_store: ObjectStore | LoggerDestination | None = None) -> str:
    """Find out where ``.symlink`` files lead in the end.

    Args:
        path: A local path, a URI, a web address, or with ``object_store`` a name in it.
        object_store: An object store, or a logger destination that keeps files.

    Returns:
        A path, URI or name of the same kind, in the bucket or the folder of the link; ``path``
        itself if it does not end in ``.symlink``.

    Raises:
        FileNotFoundError: If there is no such link.
        ValueError: If a link leads elsewhere or names no file, or links lead to each other.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "latest.symlink").write_text("ep1.pt")
        ...     follow_links(f"file://{folder}/latest.symlink").removeprefix(f"file://{folder}")
        '/ep1.pt'
    """
    start = path = _source(path, object_store, "path")
    for _ in range(_MOST_LINKS + 1):
        if not path.endswith(_LINK_ENDING):
            return path
        path = _follow(path, object_store)
    raise ValueError(f"path={start!r}: more than {_MOST_LINKS} links lead to each other.")


def _follow(path: str, object_store: ObjectStore | LoggerDestination | None) -> str:
    """Return where a link leads, which must be in the bucket or folder that it stands in."""
    target = extract_path_from_symlink(path, object_store)
    scheme, bucket, name = parse_uri(path)
    refused = ValueError(
        f"path={path!r} is a link to {target!r}, which leaves its "
        f"{'folder' if scheme in ('', 'file') and object_store is None else 'bucket'}. Give the "
        "path of the file itself if that is meant."
    )
    if not target or "\0" in target:
        raise ValueError(f"path={path!r} is a link that names no file: {target!r}.")
    if object_store is not None:
        # The name of another object of that store.
        if isinstance(object_store, ObjectStore) and is_uri(target):
            start = object_store.get_uri("x").removesuffix("x")
            if not target.startswith(start):
                raise refused
            target = target.removeprefix(start)
        if is_uri(target) or ".." in target.split("/"):
            raise refused
        return target
    if scheme not in ("", "file"):
        if is_uri(target):
            target_scheme, target_bucket, target = parse_uri(target)
            if (target_scheme, target_bucket) != (scheme, bucket):
                raise refused
        if ".." in target.split("/"):
            raise refused
        return f"{scheme}://{bucket}/{target.lstrip('/')}"
    if is_uri(target):
        target_scheme, _, target = parse_uri(target)
        if target_scheme != "file":
            raise refused
    # A relative target starts where the link stands.
    folder = Path(os.path.normpath(Path(name).absolute())).parent
    whole = os.path.normpath(folder / target)
    if not Path(whole).is_relative_to(folder):
        raise refused
    return f"file://{whole}" if scheme else whole


def _fetch(
    path: str,
    destination: str,
    object_store: ObjectStore | LoggerDestination | None,
    overwrite: bool,
    progress_bar: bool,
) -> None:
    if object_store is not None and not isinstance(object_store, ObjectStore):
        object_store.download_file(path, destination, overwrite, progress_bar)
        return
    name = path
    if object_store is None:
        scheme, _, name = parse_uri(path)
        if scheme in ("http", "https"):
            with _progress(path, progress_bar) as callback:
                _fetch_web(path, destination, callback)
            return
        if not scheme:
            _copy_local(path, destination)
            return
        opened = maybe_create_object_store_from_uri(path)
        assert opened is not None
        with opened, _progress(path, progress_bar) as callback:
            opened.download_object(name, destination, overwrite, callback)
        return
    with _progress(path, progress_bar) as callback:
        object_store.download_object(name, destination, overwrite, callback)


def _copy_local(path: str, destination: str) -> None:
    source, target = Path(path), Path(destination)
    if not source.is_file():
        raise FileNotFoundError(f"path={path!r}: there is no such file.")
    if target.exists() and target.samefile(source):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    # A copy and not a link: the original may be removed while this one is in use.
    with complete_or_absent(target) as temporary:
        shutil.copyfile(source, temporary)


def _fetch_web(address: str, destination: str, callback: Callable[[int, int], None] | None) -> None:
    try:
        with urllib.request.urlopen(address, timeout=60) as response:
            total = int(response.headers.get("Content-Length") or 0)
            done = 0
            target = Path(destination)
            target.parent.mkdir(parents=True, exist_ok=True)
            with complete_or_absent(target) as temporary:
                with temporary.open("wb") as out:
                    while chunk := response.read(_CHUNK_SIZE):
                        out.write(chunk)
                        done += len(chunk)
                        if callback is not None:
                            callback(done, total)
                if total and done != total:
                    raise OSError(f"path={address!r}: {done} of {total} bytes arrived.")
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise FileNotFoundError(f"path={address!r}: there is no such file (404).") from error
        raise


@contextlib.contextmanager
def _progress(name: str, wanted: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a callback that draws a bar, or ``None`` where there is no terminal to draw on."""
    if not (wanted and sys.stderr is not None and sys.stderr.isatty()):
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield None
        return
    bar: Any = tqdm(desc=f"Downloading {name}", unit="B", unit_scale=True, total=None)

    def show(done: int, total: int) -> None:
        bar.total = total or None
        bar.update(done - bar.n)

    try:
        yield show
    finally:
        bar.close()


def extract_path_from_symlink(
    source_path: str, object_store: LoggerDestination | ObjectStore | None = None
) -> str:
    """Read where a ``.symlink`` file points to.

    Args:
        source_path: The ``.symlink`` file: a path, a URI, or with ``object_store`` a name in it.
        object_store: An object store, or a logger destination that keeps files.

    Returns:
        What is written in it.

    Raises:
        FileNotFoundError: If there is no such file.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "latest.symlink").write_text("ep1.pt")
        ...     extract_path_from_symlink(f"{folder}/latest.symlink")
        'ep1.pt'
    """
    source_path = _source(source_path, object_store, "source_path")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "link")
        _fetch(source_path, str(copy), object_store, overwrite=False, progress_bar=False)
        return copy.read_text(encoding="utf-8").strip()


def list_remote_objects(remote_path: str) -> list[str]:
    """List what is stored under a URI.

    Args:
        remote_path: The URI of a folder.

    Returns:
        The names of the objects, sorted.

    Raises:
        ValueError: If it is no URI, or no store for its scheme is installed.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a").write_text("hello")
        ...     [name.rpartition("/")[2] for name in list_remote_objects(f"file://{folder}/")]
        ['a']
    """
    remote_path = location(remote_path, "remote_path")
    store = maybe_create_object_store_from_uri(remote_path)
    if store is None:
        raise ValueError(f"remote_path={remote_path!r} is no URI such as file:///folder.")
    with store:
        return store.list_objects(parse_uri(remote_path)[2])


def maybe_create_remote_uploader_downloader_from_uri(
    uri: str, loggers: Sequence[LoggerDestination]
) -> LoggerDestination | None:
    """Make the logger destination that uploads what is logged to a bucket.

    Args:
        uri: A URI or a local path.
        loggers: The destinations that there are.

    Returns:
        The destination, or ``None`` for a local path and where one for the bucket is there.

    Raises:
        ValueError: If no logger of that name is installed.

    Example:
        >>> maybe_create_remote_uploader_downloader_from_uri("folder", []) is None
        True
    """
    scheme, bucket, _ = parse_uri(location(uri, "uri"))
    if scheme in ("", "file"):
        return None
    # It stands on an upper floor; the door for plugins leads there.
    kind = plugins.load("composer.loggers", "remote_uploader_downloader")
    for logger in loggers:
        known = (
            getattr(logger, "remote_backend_name", None),
            getattr(logger, "remote_bucket_name", None),
        )
        if isinstance(logger, kind) and known == (scheme, bucket):
            warnings.warn(f"A logger that uploads to {scheme}://{bucket} is there already.")
            return None
    made: LoggerDestination = kind(bucket_uri=f"{scheme}://{bucket}")
    return made


def validate_credentials(remote_backend: ObjectStore, remote_file_name_to_test: str) -> None:
    """Find out now whether a store may be written to, by storing a few bytes.

    Args:
        remote_backend: The store.
        remote_file_name_to_test: The name to store them under.

    Raises:
        Exception: Whatever the store raises if it may not.

    Example:
        >>> from composer.utils.object_store.local import LocalObjectStore
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     validate_credentials(LocalObjectStore(folder), "probe")
    """
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder, "probe")
        probe.write_text("credentials validated", encoding="utf-8")
        remote_backend.upload_object(remote_file_name_to_test, probe)
