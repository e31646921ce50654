"""The manifest beside a checkpoint: what the file must be, so that damage is told from data.

It is a small JSON file named like the checkpoint with ``.manifest.json`` added. It is written last,
so that a checkpoint with a manifest is one whose writing came to its end; and it holds the size and
the hash of the file, so that a file which was cut short or changed afterwards is noticed before
anything is read from it.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from composer.checkpoint.layout import NewerFormatError
from composer.utils.paths import atomic_write, local_path

__all__ = [
    "MANIFEST_ENDING",
    "MANIFEST_VERSION",
    "FollowingHash",
    "Manifest",
    "check",
    "file_hash",
    "manifest_name",
    "parse_manifest",
    "read_manifest",
    "write_manifest",
    "wrong_size",
]

#: What a manifest's name adds to its checkpoint's.
MANIFEST_ENDING = ".manifest.json"
#: The version that this release writes, and the newest that it reads.
MANIFEST_VERSION = 1

#: With the instructions that processors have for it, faster than a disk.
_HASH = "sha256"
_CHUNK_SIZE = 1 << 20


_LARGEST = 16 << 20


@dataclass(frozen=True)
class Manifest:
    """What is known of a checkpoint file without opening it.

    Attributes:
        file: Name of the file.
        size: Its bytes.
        hashes: Name of a hash to its hexadecimal digest.
        written: When, as an ISO time in UTC.
        checkpoint_format: Version of the layout inside the file.
        timestamp: The counters of the run, as ``Timestamp.state_dict`` gives them.
        contents: Sorted paths such as ``state/model``.
        run_name: Name of the run.
        weights_only: Whether it holds the model only.
        versions: Package to version that wrote it.
        format: Version of the manifest itself.

    Example:
        >>> Manifest("a.pt", 3, {}, "2026-01-01T00:00:00+00:00", 1, timestamp={"batch": 7}).batch
        7
    """

    file: str
    size: int
    hashes: Mapping[str, str]
    written: str
    checkpoint_format: int
    timestamp: Mapping[str, Any] = field(default_factory=dict)
    contents: Sequence[str] = ()
    run_name: str = ""
    weights_only: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    format: int = MANIFEST_VERSION

    @property
    def batch(self) -> int:
        """The batch counter at the time of the checkpoint, -1 where it is not said."""
        return int(self.timestamp.get("batch", -1))

    @property
    def written_at(self) -> float:
        """The time of writing in seconds since 1970."""
        return datetime.datetime.fromisoformat(self.written).timestamp()


def manifest_name(name: str) -> str:
    """Return the name of a checkpoint's manifest.

    Args:
        name: Name or path of the checkpoint.

    Returns:
        The name, in the same folder.

    Example:
        >>> manifest_name("ep1.pt")
        'ep1.pt.manifest.json'
    """
    return name + MANIFEST_ENDING


def parse_manifest(text: str | bytes, shown: str) -> Manifest:
    """Read a manifest from its text.

    Args:
        text: The JSON.
        shown: What to call it in errors.

    Returns:
        The manifest.

    Raises:
        ValueError: If it is damaged or of a newer version.

    Example:
        >>> parse_manifest("{", "a.pt.manifest.json")
        Traceback (most recent call last):
        ValueError: the manifest a.pt.manifest.json is damaged: JSONDecodeError
    """
    try:
        found = json.loads(text)
        version = found["format"]
        if type(version) is int and version > MANIFEST_VERSION:
            raise NewerFormatError(
                f"the manifest {shown} is of version {version}; this release reads up to "
                f"{MANIFEST_VERSION}. Upgrade composer-trainer"
            )
        known = {f.name for f in dataclasses.fields(Manifest)}
        manifest = Manifest(**{key: value for key, value in found.items() if key in known})
        plain = isinstance(manifest.size, int) and isinstance(manifest.hashes["sha256"], str)
        if version != MANIFEST_VERSION or not plain or manifest.written_at < 0:
            raise TypeError(f"version {version!r}")
        for counter in ("batch", "epoch"):
            count = manifest.timestamp.get(counter, 0)
            if type(count) is not int or count < 0:
                raise TypeError(f"{counter} {count!r}")
        if not isinstance(manifest.run_name, str):
            raise TypeError("run_name")
        _ = sorted(manifest.contents), dict(manifest.versions)
    except NewerFormatError:
        raise
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as e:
        raise ValueError(f"the manifest {shown} is damaged: {type(e).__name__}") from e
    return manifest


def read_manifest(path: str | Path) -> Manifest | None:
    """Read the manifest of a checkpoint.

    Args:
        path: The checkpoint; of a link, the file that it leads to counts.

    Returns:
        The manifest, or ``None`` if there is none.

    Raises:
        ValueError: If the manifest is damaged or of a newer version.

    Example:
        >>> read_manifest("/nowhere/a.pt") is None
        True
    """
    file = local_path(path, "path")
    try:
        beside = Path(manifest_name(str(file.resolve())))
        if beside.stat().st_size > _LARGEST:
            raise ValueError(f"the manifest {beside} is damaged: it is larger than any manifest")
        text = beside.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, RuntimeError) as error:  # a folder in its place, or a loop of links
        raise ValueError(f"the manifest of {path} cannot be read: {error}") from error
    return parse_manifest(text, str(beside))


def write_manifest(path: str | Path, manifest: Manifest) -> Path:
    """Write the manifest of a checkpoint, complete or not at all.

    Args:
        path: The checkpoint, which must be on disk.
        manifest: The manifest.

    Returns:
        The manifest's path.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a.pt")
        >>> _ = path.write_bytes(b"abc")
        >>> digest = {"sha256": file_hash(path)}
        >>> _ = write_manifest(path, Manifest("a.pt", 3, digest, "2026-01-01T00:00:00+00:00", 1))
        >>> read_manifest(path).size
        3
    """
    beside = Path(manifest_name(str(local_path(path, "path").resolve())))
    with atomic_write(beside) as file:
        file.write(json.dumps(dataclasses.asdict(manifest), indent=1).encode())
    return beside


def file_hash(path: str | Path, name: str = _HASH) -> str:
    """Hash a file.

    Args:
        path: The file.
        name: Name of the hash, one of Python's ``hashlib``.

    Returns:
        The hexadecimal digest.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a")
        >>> _ = path.write_bytes(b"abc")
        >>> file_hash(path)[:8]
        'ba7816bf'
    """
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, name).hexdigest()


def check(path: str | Path, manifest: Manifest) -> None:
    """Compare a file with its manifest; the size first, since that costs nothing.

    Args:
        path: The file.
        manifest: Its manifest.

    Raises:
        ValueError: If it is not what the manifest says; both values are named.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a")
        >>> _ = path.write_bytes(b"abc")
        >>> digest = {"sha256": file_hash(path)}
        >>> check(path, Manifest("a", 3, digest, "2026-01-01T00:00:00+00:00", 1))
    """
    advice = (
        f"Load another one; or, if it was changed on purpose, delete {manifest_name(str(path))}"
    )
    size = Path(path).stat().st_size
    if problem := wrong_size(size, manifest):
        raise ValueError(f"{path} is not a complete checkpoint: {problem}. {advice}")
    found, stored = file_hash(path), manifest.hashes[_HASH]
    if found != stored:
        raise ValueError(
            f"{path} ({size:,} bytes) is not a complete checkpoint: the checksum ({_HASH}) is "
            f"{found}, and {stored} according to its manifest. {advice}"
        )


def wrong_size(size: int, manifest: Manifest) -> str:
    """Compare a size with that in a manifest.

    Args:
        size: The bytes of the file.
        manifest: Its manifest.

    Returns:
        What is wrong, or nothing.

    Example:
        >>> wrong_size(2, Manifest("a.pt", 3, {}, "2026-01-01T00:00:00+00:00", 1))
        'it has 2 bytes, and 3 according to its manifest'
    """
    if size == manifest.size:
        return ""
    return f"it has {size:,} bytes, and {manifest.size:,} according to its manifest"


class FollowingHash:
    """Hashes a file in a thread of its own while it is being written from front to back.

    What was written a moment ago is read back from memory, so the hash costs no second pass over
    the disk and, where there is a second core, no time.

    Args:
        path: The file, which exists already.

    Example:
        >>> import tempfile
        >>> with open(Path(tempfile.mkdtemp(), "a"), "wb") as file:
        ...     with FollowingHash(Path(file.name)) as following:
        ...         _ = file.write(b"abc")
        ...         file.flush()
        ...         size, digest = following.finish()
        >>> size, digest[:8]
        (3, 'ba7816bf')
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hash = hashlib.new(_HASH)
        self._size = 0
        self._written = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._follow, name="checkpoint-hash", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._written.set()
        self._thread.join()

    def _follow(self) -> None:
        try:
            buffer = memoryview(bytearray(_CHUNK_SIZE))
            with self._path.open("rb", buffering=0) as file:
                while True:
                    last = self._written.is_set()
                    count = file.readinto(buffer)
                    if count:
                        self._hash.update(buffer[:count])
                        self._size += count
                    elif last:
                        return
                    else:
                        self._written.wait(0.005)
        except BaseException as error:
            self._error = error

    def finish(self) -> tuple[int, str]:
        """Hash what is left, once all was written and flushed.

        Returns:
            The size in bytes and the hexadecimal digest.

        Raises:
            OSError: If the file could not be read.
        """
        self._written.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._size, self._hash.hexdigest()
