"""Tar archives that hold one checkpoint, read without trusting what they say.

A member's name is data from elsewhere: nothing is ever written to a place that an archive names.
"""

from __future__ import annotations

import contextlib
import lzma
import os
import pathlib
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

from composer.utils.compression import get_compressor
from composer.utils.paths import atomic_write, complete_or_absent, is_tar

__all__ = ["extract_file", "pack_file"]

_CHUNK_SIZE = 4 << 20
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# What the standard library raises on damaged archives, besides an OSError without a number.
_DAMAGE = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError)


def extract_file(
    archive: str | os.PathLike[str], name: str, destination: str | os.PathLike[str]
) -> None:
    """Copy one member of a tar archive to a file, which appears complete or not at all.

    How the archive is compressed is read from its content; zstandard needs the command ``zstd``.

    Args:
        archive: The archive.
        name: The member, a path relative to the top of the archive.
        destination: The file to write; an existing one is replaced.

    Raises:
        FileNotFoundError: If there is no such archive, or no such member in it.
        ValueError: If the archive is damaged, if the name of any of its members leaves the
            folder (absolute, or with ``..``), or if the member is a link or no plain file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "state.pt")
        ...     _ = path.write_text("weights")
        ...     pack_file(path, f"{folder}/ep1.tar.gz", "composer_states.pt")
        ...     extract_file(f"{folder}/ep1.tar.gz", "composer_states.pt", f"{folder}/got")
        ...     pathlib.Path(folder, "got").read_text()
        'weights'
    """
    wanted = _inner_path(name)
    if wanted is None:
        raise ValueError(f"name={name!r} must be a relative path without '..'.")
    target = pathlib.Path(destination)
    seen: list[str] = []
    with complete_or_absent(target) as temporary:
        found = False
        for member, content in _members(archive):
            inner = _inner_path(member.name)
            if inner is None or (inner == wanted and (member.issym() or member.islnk())):
                raise ValueError(
                    f"archive={str(archive)!r} is refused: its member {member.name!r} "
                    + ("leaves the folder." if inner is None else "is a link, not a file.")
                )
            seen.append(inner)
            if inner != wanted:
                continue
            if content is None:
                raise ValueError(
                    f"archive={str(archive)!r}: the member {member.name!r} is no plain file."
                )
            # The last of several members of one name is the valid one in a tar archive.
            found = True
            with temporary.open("wb") as out, _damage_explained(archive):
                shutil.copyfileobj(content, out, _CHUNK_SIZE)
            if temporary.stat().st_size != member.size:
                raise ValueError(
                    f"archive={str(archive)!r} is damaged: the member {member.name!r} has "
                    f"{temporary.stat().st_size} of {member.size} bytes."
                )
        if not found:
            raise FileNotFoundError(
                f"archive={str(archive)!r} has no member {name!r}. It has: "
                f"{', '.join(filter(None, seen[:20])) or 'none'}."
            )


def pack_file(
    source: str | os.PathLike[str],
    archive: str | os.PathLike[str],
    name: str,
    *,
    like: str | None = None,
) -> None:
    """Write a tar archive that holds one file. It appears complete and on disk, or not at all.

    Args:
        source: The file.
        archive: The archive to write; an existing one is replaced. Its ending chooses the
            compression: ``.tar``, ``.tar.gz``, ``.tgz``, ``.tar.bz2``, ``.tar.lzma``, ``.tar.xz``,
            and ``.tar.zst`` where the command ``zstd`` is installed.
        name: The name of the file in the archive.
        like: A name whose ending chooses instead, for an ``archive`` with a temporary name.

    Raises:
        ValueError: If the ending is none of these, or ``name`` leaves the folder.
        FileNotFoundError: If ``source`` does not exist.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "state.pt")
        ...     _ = path.write_text("weights")
        ...     pack_file(path, f"{folder}/ep1.tar", "composer_states.pt")
        ...     with tarfile.open(f"{folder}/ep1.tar") as archive:
        ...         archive.getnames()
        ['composer_states.pt']
    """
    ending = str(archive if like is None else like)
    if not is_tar(ending):
        raise ValueError(
            f"archive={str(archive)!r} must end in .tar, .tar.gz, .tgz, .tar.bz2, .tar.lzma, "
            ".tar.xz or .tar.zst."
        )
    if not _inner_path(name):
        raise ValueError(f"name={name!r} must be a relative path without '..'.")
    if ending.endswith(".zst"):
        with (
            complete_or_absent(pathlib.Path(archive)) as temporary,
            get_compressor(ending).compress(str(temporary)) as stream,
            tarfile.open(fileobj=stream, mode="w|") as opened,
        ):
            _add(opened, source, name)
        return
    # Weights hardly shrink; the quickest level gives nearly all of it.
    mode, options = "w:", dict[str, Any]()
    if ending.endswith((".gz", ".tgz", ".bz2")):
        mode += "bz2" if ending.endswith(".bz2") else "gz"
        options["compresslevel"] = 1
    elif ending.endswith((".xz", ".lzma")):
        mode, options = "w:xz", {"preset": 0}
    with (
        atomic_write(archive) as file,
        tarfile.open(fileobj=file, mode=mode, **options) as opened,  # type: ignore[call-overload]
    ):
        _add(opened, source, name)


def _add(archive: tarfile.TarFile, source: str | os.PathLike[str], name: str) -> None:
    def without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    # The file itself, should the name be a link to it.
    archive.add(pathlib.Path(source).resolve(strict=True), name, filter=without_owner)


def _inner_path(name: str) -> str | None:
    """Return a member's name in its plain form, ``""`` for the top, ``None`` if it leaves it."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    # A folder added under the name "" is stored as "/".
    leaves = ".." in parts or (parts and (name.startswith(("/", "\\")) or ":" in parts[0][1:2]))
    return None if leaves else "/".join(parts)


def _members(
    archive: str | os.PathLike[str],
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    with contextlib.ExitStack() as stack:
        source: IO[bytes] = stack.enter_context(pathlib.Path(archive).open("rb"))
        is_zstd = source.read(4) == _ZSTD_MAGIC
        source.seek(0)
        with _damage_explained(archive):
            mode, stream = "r:*", source
            if is_zstd:
                mode = "r|"
                stream = stack.enter_context(get_compressor("a.zst").decompress(str(archive)))
            opened: tarfile.TarFile = stack.enter_context(
                tarfile.open(fileobj=stream, mode=mode)  # type: ignore[call-overload]
            )
        while True:
            with _damage_explained(archive):
                member = opened.next()
                content = opened.extractfile(member) if member and member.isreg() else None
            if member is None:
                return
            yield member, content


@contextlib.contextmanager
def _damage_explained(archive: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        # The tool for a kind of compression is not installed.
        raise
    except OSError as error:
        if error.errno is not None:
            # The disk, not the archive.
            raise
        raise _damaged(archive, error) from error
    except _DAMAGE as error:
        raise _damaged(archive, error) from error


def _damaged(archive: str | os.PathLike[str], error: BaseException) -> ValueError:
    return ValueError(f"archive={str(archive)!r} is damaged or no tar archive: {error}")
