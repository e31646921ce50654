"""Compress and decompress files through command-line tools, which use all cores and cost no
import."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from composer.utils.suggestions import did_you_mean

__all__ = [
    "KNOWN_COMPRESSORS",
    "CliCompressor",
    "CompressorNotFound",
    "get_compressor",
    "is_compressed_pt",
]


class CompressorNotFound(FileNotFoundError):
    """The command-line tool for a kind of file is not installed.

    Example:
        >>> issubclass(CompressorNotFound, FileNotFoundError)
        True
    """


class CliCompressor:
    """Pipes a file through a tool that understands ``-c`` and ``-dc``.

    Args:
        extension: The ending of the files, without a dot.
        cmd: The tool; by default called like the extension.

    Example:
        >>> CliCompressor("gz", "gzip").extension
        'gz'
    """

    def __init__(self, extension: str, cmd: str | None = None) -> None:
        self.extension = extension
        self.cmd = extension if cmd is None else cmd

    @property
    def exists(self) -> bool:
        """Whether the tool is installed."""
        return shutil.which(self.cmd) is not None

    def check_exists(self) -> None:
        """Make sure that the tool is installed.

        Raises:
            CompressorNotFound: If it is not.

        Example:
            >>> CliCompressor("sh").check_exists()
        """
        if not self.exists:
            raise CompressorNotFound(
                f"Files ending in .{self.extension} need the command {self.cmd!r}, which was not "
                "found."
            )

    @contextlib.contextmanager
    def compress(self, out_filename: str) -> Iterator[IO[bytes]]:
        """Write a compressed file.

        Args:
            out_filename: The file to write.

        Yields:
            A stream to write the plain bytes to.

        Raises:
            CompressorNotFound: If the tool is not installed.
            OSError: If the tool fails.

        Example:
            >>> CliCompressor("gz", "gzip").compress("a.gz").__class__.__name__
            '_GeneratorContextManager'
        """
        self.check_exists()
        with (
            Path(out_filename).open("wb") as out,
            subprocess.Popen([self.cmd, "-c"], stdin=subprocess.PIPE, stdout=out) as process,
        ):
            assert process.stdin is not None
            with process.stdin as stream:
                yield stream
        self._check(process.returncode, out_filename)

    @contextlib.contextmanager
    def decompress(self, in_filename: str) -> Iterator[IO[bytes]]:
        """Read a compressed file.

        Args:
            in_filename: The file to read.

        Yields:
            A stream of the plain bytes.

        Raises:
            CompressorNotFound: If the tool is not installed.
            OSError: If the tool fails, as on a damaged file.

        Example:
            >>> CliCompressor("gz", "gzip").decompress("a.gz").__class__.__name__
            '_GeneratorContextManager'
        """
        self.check_exists()
        with (
            Path(in_filename).open("rb") as source,
            subprocess.Popen([self.cmd, "-dc"], stdin=source, stdout=subprocess.PIPE) as process,
        ):
            assert process.stdout is not None
            with process.stdout as stream:
                yield stream
                # A reader that stops early would otherwise make the tool fail for a broken pipe.
                while stream.read(1 << 20):
                    pass
        self._check(process.returncode, in_filename)

    def _check(self, returncode: int, filename: str) -> None:
        if returncode != 0:
            raise OSError(
                f"The command {self.cmd!r} failed with code {returncode} on {filename!r}."
            )


#: The tools that file endings choose from.
KNOWN_COMPRESSORS: list[CliCompressor] = [
    CliCompressor("bz2", "bzip2"),
    CliCompressor("gz", "gzip"),
    CliCompressor("lz4"),
    CliCompressor("lzma"),
    CliCompressor("lzo", "lzop"),
    CliCompressor("xz"),
    CliCompressor("zst", "zstd"),
]


def get_compressor(filename: str) -> CliCompressor:
    """Choose the compressor for a file by its ending.

    Args:
        filename: The file name.

    Returns:
        The compressor.

    Raises:
        ValueError: If no compressor has this ending.

    Example:
        >>> get_compressor("a.pt.gz").cmd
        'gzip'
    """
    ending = filename.rpartition(".")[2]
    for compressor in KNOWN_COMPRESSORS:
        if compressor.extension == ending:
            return compressor
    known = [compressor.extension for compressor in KNOWN_COMPRESSORS]
    raise ValueError(
        f"filename={filename!r} has no known compressed ending; known are: "
        f"{', '.join('.' + one for one in known)}.{did_you_mean(ending, known)}"
    )


def is_compressed_pt(filename: str) -> bool:
    """Tell from its name whether a file is a compressed torch file.

    Args:
        filename: The file name.

    Returns:
        True if it ends in ``.pt`` and the ending of a known compressor.

    Example:
        >>> is_compressed_pt("a.pt.gz"), is_compressed_pt("a.pt"), is_compressed_pt("a.gz")
        (True, False, False)
    """
    return any(filename.endswith(f".pt.{compressor.extension}") for compressor in KNOWN_COMPRESSORS)
