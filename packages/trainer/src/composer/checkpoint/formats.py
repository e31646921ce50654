"""Kinds of checkpoint files, told apart by their endings.

Whatever the ending, what is inside is one file of torch: bare, compressed by a command-line tool,
or as the member ``composer_states.pt`` of a tar archive.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch

from composer.checkpoint.manifest import FollowingHash, file_hash
from composer.utils.archives import extract_file, pack_file
from composer.utils.compression import CompressorNotFound, get_compressor, is_compressed_pt
from composer.utils.paths import complete_or_absent, is_tar, sync_folder

__all__ = ["TAR_MEMBER", "bare_file", "check_format", "write_file"]

#: The file inside a tar archive.
TAR_MEMBER = "composer_states.pt"


def check_format(filename: str, argument: str = "filename") -> None:
    """Make sure now that files of a name can be written later.

    Args:
        filename: Name or template of a checkpoint.
        argument: Name of the setting, for the message.

    Raises:
        CompressorNotFound: If the command-line tool for its ending is not installed.

    Example:
        >>> check_format("ep{epoch}.pt")
    """
    if is_compressed_pt(filename) or filename.endswith(".tar.zst"):
        compressor = get_compressor(filename)
        if not compressor.exists:
            raise CompressorNotFound(
                f"{argument}={filename!r} needs the command {compressor.cmd!r}, which is not "
                f"installed; install it, or use the ending .pt"
            )


class _Guarded:
    """Remembers the error of a failed write, which torch's writer replaces by one of its own."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self._file.flush()


def _save(contents: Any, file: IO[bytes]) -> None:
    guarded = _Guarded(file)
    try:
        torch.save(contents, guarded)  # type: ignore[arg-type]
    except RuntimeError as error:
        if guarded.error is not None:
            raise guarded.error from error
        raise


def _write_bare(contents: Any, path: Path) -> tuple[int, str]:
    with path.open("xb") as file, FollowingHash(path) as following:
        _save(contents, file)
        file.flush()
        os.fsync(file.fileno())
        return following.finish()


def _write_compressed(contents: Any, path: Path, like: str) -> tuple[int, str]:
    with get_compressor(like).compress(str(path)) as stream:
        _save(contents, stream)
    return _finished(path)


def _write_tar(contents: Any, path: Path, like: str) -> tuple[int, str]:
    # Beside the target, where there is room for it, under the name of a leftover should it stay.
    bare = path.with_name(f"{path.stem}b.tmp")
    try:
        with bare.open("xb") as file:
            _save(contents, file)
        pack_file(bare, path, TAR_MEMBER, like=like)
    finally:
        bare.unlink(missing_ok=True)
    return _finished(path)


def _finished(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return path.stat().st_size, file_hash(path)


def write_file(
    contents: Any, path: Path, before_replacing: Callable[[], None] | None = None
) -> tuple[int, str]:
    """Write a checkpoint file that appears complete and on disk, or not at all.

    Args:
        contents: What to write.
        path: The file; its ending chooses the kind, its folder must exist.
        before_replacing: Called when all bytes are on disk, right before the file gets its name.

    Returns:
        The size in bytes and the SHA-256 of the file.

    Raises:
        OSError: If it cannot be written; what was there before is untouched.

    Example:
        >>> path = Path(tempfile.mkdtemp(), "a.tar.gz")
        >>> size, digest = write_file({"x": 1}, path)
        >>> with bare_file(path) as bare:
        ...     torch.load(bare, weights_only=True)
        {'x': 1}
    """
    name = path.name
    with complete_or_absent(path) as temporary:
        if is_tar(name):
            facts = _write_tar(contents, temporary, name)
        elif is_compressed_pt(name):
            facts = _write_compressed(contents, temporary, name)
        else:
            facts = _write_bare(contents, temporary)
        if before_replacing is not None:
            before_replacing()
    sync_folder(path.parent)
    return facts


@contextmanager
def bare_file(path: Path) -> Iterator[Path]:
    """Yield the file of torch that is inside a checkpoint file.

    Args:
        path: The checkpoint file.

    Yields:
        The path itself, or that of a copy which is gone afterwards.

    Raises:
        ValueError: If an archive is damaged, or a name in it leaves its folder.
        OSError: If the command-line tool fails on a damaged file.
        FileNotFoundError: If the tool, or the member of an archive, is missing.

    Example:
        >>> with bare_file(Path("a.pt")) as bare:
        ...     bare.name
        'a.pt'
    """
    name = path.name
    if not (is_tar(name) or is_compressed_pt(name)):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="composer-checkpoint-") as folder:
        bare = Path(folder, TAR_MEMBER)
        if is_tar(name):
            extract_file(path, TAR_MEMBER, bare)
        else:
            with get_compressor(name).decompress(str(path)) as stream, bare.open("wb") as out:
                shutil.copyfileobj(stream, out, 1 << 20)
        # On POSIX what was mapped from a file stays readable after its name is gone.
        yield bare
