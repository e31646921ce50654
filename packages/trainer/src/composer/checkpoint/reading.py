"""Reads checkpoint files, runs nothing that is in them, and says what is wrong with a bad one."""

from __future__ import annotations

import pickle
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from composer.checkpoint.compat import from_reference, is_from_reference, load_harmless
from composer.checkpoint.formats import bare_file
from composer.checkpoint.layout import (
    FORMAT,
    FORMAT_VERSION,
    STATE,
    CheckpointError,
    NewerFormatError,
)
from composer.checkpoint.manifest import check, manifest_name, read_manifest
from composer.checkpoint.search import POINTER_ENDING
from composer.checkpoint.structure import check_structure, wrong
from composer.utils.compression import CompressorNotFound
from composer.utils.paths import is_uri, local_path, location, parse_uri
from composer.utils.transfer import follow_links, get_file

__all__ = [
    "as_checkpoint",
    "fetch_checkpoint",
    "load_file",
    "read_checkpoint",
    "safe_torch_load",
    "verify",
]


def safe_torch_load(path: str | Path, map_location: str = "cpu") -> Any:
    """Read a file of torch without running any code in it.

    Args:
        path: The file.
        map_location: Where tensors go.

    Returns:
        What the file holds.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is cut short, is not torch's, or holds more than plain types.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/a.pt"
        >>> torch.save({"x": 1}, path)
        >>> safe_torch_load(path)
        {'x': 1}
    """
    file = local_path(path, "path")
    return _torch_load(file, file, map_location, checked=False)


def _torch_load(path: Path, shown: Path, map_location: str, *, checked: bool) -> Any:
    """Read a bare file; ``checked`` says that its content was compared with a hash before."""
    if not path.exists():
        target = f" (a link to {path.readlink()}, which is gone)" if path.is_symlink() else ""
        raise FileNotFoundError(f"there is no checkpoint at {path}{target}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; a full checkpoint is one file")
    size = path.stat().st_size
    try:
        if not zipfile.is_zipfile(path):
            raise EOFError("it was cut short, or another program wrote it")
        if not checked:
            with zipfile.ZipFile(path) as archive:
                broken = archive.testzip()  # torch maps the file and compares no checksums
            if broken is not None:
                raise zipfile.BadZipFile(f"the checksum of {broken} does not match")
        try:
            return torch.load(path, map_location=map_location, weights_only=True, mmap=True)
        except pickle.UnpicklingError:
            return load_harmless(path, map_location)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{shown} holds more than numbers, strings and tensors, so reading it would run code "
            f"from the file; it was refused and nothing ran. {_first_line(error)}"
        ) from error
    except Exception as error:  # a damaged file can fail anywhere in zipfile, pickle or torch
        raise ValueError(
            f"{shown} ({size:,} bytes) is not a complete checkpoint: {_first_line(error)}. Load "
            f"another one"
        ) from error


def load_file(path: Path, *, use_manifest: bool = True) -> Any:
    """Read a file of any kind; its manifest, where there is one, is compared first.

    Args:
        path: The file.
        use_manifest: Whether to look for a manifest.

    Returns:
        What the file holds.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is damaged, or would run code.
        CompressorNotFound: If reading it takes a command that is not installed.

    Example:
        >>> path = Path(tempfile.mkdtemp(), "a.pt")
        >>> torch.save({"x": 1}, path)
        >>> load_file(path)
        {'x': 1}
    """
    checked = False
    if use_manifest and path.is_file():
        manifest = read_manifest(path)
        if manifest is not None:
            check(path.resolve(), manifest)
            checked = True
    if not path.is_file():
        return _torch_load(path, path, "cpu", checked=checked)
    try:
        with bare_file(path.resolve()) as bare:
            return _torch_load(bare, path, "cpu", checked=checked)
    except CompressorNotFound as error:
        raise CompressorNotFound(f"{path} cannot be read: {error}") from error
    except (OSError, EOFError) as error:
        raise ValueError(
            f"{path} is not a complete checkpoint: {_first_line(error)}. Load another one"
        ) from error


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read a checkpoint of this library.

    Where a manifest lies beside the file, size and hash are compared with it; else the checksums
    inside the file are.

    Args:
        path: The file, of any of the kinds that can be written, or its URI.

    Returns:
        Its dictionary; tensors are mapped from the file and not yet read.

    Raises:
        FileNotFoundError: If there is no such file.
        NewerFormatError: If it can be read only by a newer release.
        CheckpointError: If a value in it is of a wrong kind; file and key are named.
        ValueError: If it is damaged, foreign, or would run code.
        CompressorNotFound: If reading it takes a command that is not installed.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/a.pt"
        >>> torch.save({"format": 1, "state": {}}, path)
        >>> read_checkpoint(path)["state"]
        {}
    """
    contents = fetch_checkpoint(path, progress_bar=False)
    check_structure(contents, path)
    return contents


def as_checkpoint(path: str | Path, contents: Any) -> dict[str, Any]:
    """Make sure that what a file holds is a checkpoint that can be read; an older one is turned.

    Args:
        path: The file, for messages.
        contents: What it holds.

    Returns:
        The checkpoint's dictionary.

    Raises:
        NewerFormatError: If it can be read only by a newer release.
        CheckpointError: If it is something else.

    Example:
        >>> as_checkpoint("a.pt", {"format": 1, "state": {}})
        {'format': 1, 'state': {}}
    """
    if not isinstance(contents, dict) or STATE not in contents:
        what = sorted(map(str, contents))[:8] if isinstance(contents, dict) else type(contents)
        raise CheckpointError(
            f"{path} is a file of torch but not a checkpoint of a trainer: expected a dictionary "
            f"with the key {STATE!r}, found {what}. To start from bare weights, load them into "
            f"the model with `model.load_state_dict(torch.load(path))` before making the trainer"
        )
    if is_from_reference(contents):
        try:
            contents, _ = from_reference(contents)
        except CheckpointError as error:
            raise wrong(path, str(error)) from error
    found = contents.get(FORMAT)
    if found is None:
        raise CheckpointError(
            f"{path} has no {FORMAT!r} key: it was written by another library. Load its weights "
            f"into the model before making the trainer"
        )
    if type(found) is not int or not 1 <= found <= FORMAT_VERSION:
        raise NewerFormatError(
            f"{path} has checkpoint format {found!r}; this release reads up to {FORMAT_VERSION}. "
            f"Upgrade composer-trainer"
        )
    # What a user leaves out may be anything, so parts are looked at when that is done.
    check_structure(contents, path, fields=())
    return contents


def fetch_checkpoint(
    path: str | Path, object_store: Any = None, *, progress_bar: bool = True
) -> dict[str, Any]:
    """Read a checkpoint from wherever it is.

    Args:
        path: Local path, URI, or name in ``object_store``.
        object_store: Where to look, if not at a path or URI of its own.
        progress_bar: Whether to show the progress of a download.

    Returns:
        The checkpoint's dictionary.

    Raises:
        FileNotFoundError: If there is no such checkpoint.
        ValueError: If it is bad.

    Example:
        >>> try:
        ...     fetch_checkpoint("/nowhere/a.pt")
        ... except FileNotFoundError as error:
        ...     print(error)
        there is no checkpoint at /nowhere/a.pt
    """
    if object_store is None or not isinstance(path, str) or not path:
        path = location(path, "path")  # while a name in a store may be any text
    if object_store is None and parse_uri(path)[0] == "file":
        path = parse_uri(path)[2]
    if object_store is None and not is_uri(path):
        return as_checkpoint(path, load_file(Path(path)))
    with _downloaded(path, object_store, progress_bar=progress_bar) as local:
        # On POSIX the mapped file stays readable after its name is gone.
        return as_checkpoint(local, load_file(local))


@contextmanager
def _downloaded(path: str, object_store: Any = None, *, progress_bar: bool) -> Iterator[Path]:
    """Have a file and its manifest at hand; errors name the URI and not the copy."""
    with tempfile.TemporaryDirectory(prefix="composer-checkpoint-") as folder:
        local = _download(path, Path(folder), object_store, progress_bar)
        try:
            yield local
        except ValueError as error:
            if type(error) not in (ValueError, CheckpointError, NewerFormatError):
                raise
            raise type(error)(_told(str(error), local, path)) from error


def _told(text: str, local: Path, path: str) -> str:
    """A message about a copy, as one about what was copied."""
    folder, slash, _ = path.rpartition("/")
    return text.replace(f"{local.parent}/", folder + slash)


def _download(path: str, folder: Path, object_store: Any, progress_bar: bool) -> Path:
    """Get a checkpoint and its manifest, if it has one, under its own name."""
    target = follow_links(path, object_store)
    try:
        local = _fetch(target, folder, object_store, progress_bar)
    except FileNotFoundError:
        if _on_the_web(target):
            raise
        # A store has no links: the name of one stands for the text file beside it.
        try:
            target = follow_links(target + POINTER_ENDING, object_store)
            local = _fetch(target, folder, object_store, progress_bar)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"there is no checkpoint at {path}"
                + ("" if target == path else f" (a link to {target}, which is gone)")
            ) from None
    if not _on_the_web(target):
        with suppress(FileNotFoundError):
            get_file(
                manifest_name(target),
                manifest_name(str(local)),
                object_store=object_store,
                progress_bar=False,
            )
    return local


def _fetch(target: str, folder: Path, object_store: Any, progress_bar: bool) -> Path:
    name = target.rpartition("/")[2]
    if _on_the_web(target):
        name = name.partition("?")[0]  # what stands behind it belongs to the request
    local = folder / (name or "checkpoint.pt")
    get_file(target, str(local), object_store=object_store, progress_bar=progress_bar)
    return local


def _on_the_web(target: str) -> bool:
    return target.partition("://")[0] in ("http", "https")


def verify(path: str | Path) -> list[str]:
    """Compare a checkpoint with its manifest.

    Args:
        path: The checkpoint: a path, or a URI, whose file is fetched for it.

    Returns:
        What is wrong; an empty list if the file is exactly what was written.

    Example:
        >>> verify("/nowhere/a.pt")
        ['there is no file /nowhere/a.pt']
    """
    text = location(path, "path")
    if parse_uri(text)[0] in ("", "file"):
        return _problems(local_path(text, "path"))
    try:
        with _downloaded(text, progress_bar=False) as local:
            return [_told(problem, local, text) for problem in _problems(local)]
    except FileNotFoundError:
        return [f"there is no file {path}"]
    except OSError as error:
        return [str(error)]


def _problems(path: Path) -> list[str]:
    real = path.resolve()
    if not real.is_file():
        return [f"there is no file {path}"]
    try:
        manifest = read_manifest(real)
        if manifest is None:
            missing = (
                f"there is no manifest {manifest_name(str(real))}: it was written by an older "
                f"release, copied alone, or its writing did not come to its end"
            )
            return [missing]
        check(real, manifest)
    except (OSError, ValueError) as error:
        return [str(error)]
    return []
