"""Reads checkpoints, runs nothing that is in them, and says what is wrong with one that is bad."""

from __future__ import annotations

import logging
import pickle
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from composer.checkpoint.layout import (
    FORMAT,
    FORMAT_VERSION,
    METADATA,
    RNG,
    STATE,
    IgnoreKeys,
    remove_keys,
)
from composer.core.persistence import restore
from composer.utils.iteration import map_collection
from composer.utils.paths import is_uri

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = [
    "apply_checkpoint",
    "fetch_checkpoint",
    "find_newest",
    "load_checkpoint",
    "read_checkpoint",
    "safe_torch_load",
    "stored_metadata",
]

log = logging.getLogger(__name__)


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
    path = Path(path)
    if not path.exists():
        target = f" (a link to {path.readlink()}, which is gone)" if path.is_symlink() else ""
        raise FileNotFoundError(f"there is no checkpoint at {path}{target}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; a full checkpoint is one file")
    size = path.stat().st_size
    try:
        if not zipfile.is_zipfile(path):
            raise EOFError("it was cut short, or another program wrote it")
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()  # torch maps the file and does not compare its checksums
        if broken is not None:
            raise zipfile.BadZipFile(f"the checksum of {broken} does not match")
        return torch.load(path, map_location=map_location, weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} holds more than numbers, strings and tensors, so reading it would run code "
            f"from the file; it was refused and nothing ran. {_first_line(error)}"
        ) from error
    except Exception as error:  # a damaged file can fail anywhere in zipfile, pickle or torch
        raise ValueError(
            f"{path} ({size:,} bytes) is not a complete checkpoint: {_first_line(error)}. Load "
            f"another one"
        ) from error


def _own(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read a checkpoint of this library.

    Args:
        path: The file.

    Returns:
        Its dictionary; tensors are mapped from the file and not yet read.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is damaged, foreign, from a newer format, or would run code.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/a.pt"
        >>> torch.save({"format": 1, "state": {}}, path)
        >>> read_checkpoint(path)["state"]
        {}
    """
    contents = safe_torch_load(path)
    if not isinstance(contents, dict) or not isinstance(contents.get(STATE), dict):
        what = sorted(map(str, contents))[:8] if isinstance(contents, dict) else type(contents)
        raise ValueError(
            f"{path} is a file of torch but not a checkpoint of a trainer: expected a dictionary "
            f"with the key {STATE!r}, found {what}. To start from bare weights, load them into "
            f"the model with `model.load_state_dict(torch.load(path))` before making the trainer"
        )
    found = contents.get(FORMAT)
    if found is None:
        raise ValueError(
            f"{path} has no {FORMAT!r} key: it was written by another library. Load its weights "
            f"into the model before making the trainer"
        )
    if type(found) is not int or not 1 <= found <= FORMAT_VERSION:
        raise ValueError(
            f"{path} has checkpoint format {found!r}; this release reads up to {FORMAT_VERSION}. "
            f"Upgrade composer-trainer"
        )
    return contents


def apply_checkpoint(
    contents: dict[str, Any],
    state: State,
    logger: Logger | None,
    *,
    weights_only: bool = False,
    strict_model_weights: bool = True,
    ignore_keys: IgnoreKeys = None,
    exclude_algorithms: Sequence[str] | None = None,
) -> list[dict[str, Any]] | None:
    """Put a checkpoint's contents into a state.

    Args:
        contents: What :func:`read_checkpoint` returned.
        state: The state of the run.
        logger: Passed to algorithms that have to be applied again.
        weights_only: Whether to restore the model only.
        strict_model_weights: Whether the model's keys must match exactly.
        ignore_keys: What to leave out.
        exclude_algorithms: Names of algorithms that must not be applied again.

    Returns:
        The random states, to be restored right before the next batch; ``None`` if there are none.

    Raises:
        ValueError: If something does not fit.

    Example:
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
        >>> apply_checkpoint({"state": {"rank_zero_seed": 3}}, state, None) is None
        True
        >>> state.rank_zero_seed
        3
    """
    algorithms = [dict(entry) for entry in contents.get(STATE, {}).get("algorithms") or []]
    remove_keys(contents, ignore_keys, "load_ignore_keys")
    # The model copies its weights out of the mapped file; everything else is copied here, since
    # its owners may keep the tensors they are given.
    saved = {
        name: value if name == "model" else map_collection(value, _own)
        for name, value in contents.get(STATE, {}).items()
    }
    restore(
        state,
        saved,
        logger=logger,
        strict=strict_model_weights,
        exclude_algorithms=exclude_algorithms,
        fields=["model"] if weights_only else None,
        stored_algorithms=algorithms,
    )
    return None if weights_only else contents.get(RNG)


def load_checkpoint(
    path: str,
    state: State,
    logger: Logger | None = None,
    object_store: Any = None,
    load_weights_only: bool = False,
    strict_model_weights: bool = True,
    progress_bar: bool = True,
    ignore_keys: IgnoreKeys = None,
    exclude_algorithms: Sequence[str] | None = None,
) -> list[dict[str, Any]] | None:
    """Read a checkpoint from a path or URI and put it into a state.

    Args:
        path: Local path, URI, or name in ``object_store``.
        state: The state of the run.
        logger: Passed to algorithms that have to be applied again.
        object_store: Where ``path`` is to be found, if not at a path or URI of its own.
        load_weights_only: Whether to restore the model only.
        strict_model_weights: Whether the model's keys must match exactly.
        progress_bar: Whether to show the progress of a download.
        ignore_keys: What to leave out.
        exclude_algorithms: Names of algorithms that must not be applied again.

    Returns:
        The random states, or ``None``.

    Raises:
        FileNotFoundError: If there is no such checkpoint.
        ValueError: If it is bad or does not fit.

    Example:
        >>> import tempfile
        >>> from composer.checkpoint import save_checkpoint
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
        >>> path = save_checkpoint(state, tempfile.mkdtemp() + "/a.pt")
        >>> len(load_checkpoint(path, state))
        1
    """
    contents = fetch_checkpoint(path, object_store, progress_bar=progress_bar)
    return apply_checkpoint(
        contents,
        state,
        logger,
        weights_only=load_weights_only,
        strict_model_weights=strict_model_weights,
        ignore_keys=ignore_keys,
        exclude_algorithms=exclude_algorithms,
    )


def fetch_checkpoint(
    path: str, object_store: Any = None, *, progress_bar: bool = True
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
    if object_store is None and not is_uri(path):
        return read_checkpoint(path)
    import tempfile

    from composer.utils.transfer import get_file

    with tempfile.TemporaryDirectory(prefix="composer-checkpoint-") as folder:
        local = str(Path(folder) / "checkpoint.pt")
        get_file(path, local, object_store=object_store, progress_bar=progress_bar)
        # On POSIX the mapped file stays readable after its name is gone.
        return read_checkpoint(local)


def find_newest(folder: str | Path, latest: str | None, pattern: str = "*.pt") -> Path | None:
    """Find the newest complete checkpoint in a folder.

    Args:
        folder: The folder.
        latest: Name of the link to the newest checkpoint, tried first.
        pattern: Which other files are checkpoints.

    Returns:
        Its path, or ``None`` if there is none. A file that cannot be read is passed over, and that
        is said.

    Example:
        >>> import tempfile
        >>> find_newest(tempfile.mkdtemp(), "latest-rank0.pt") is None
        True
    """
    folder = Path(folder)
    candidates = []
    if latest is not None and (folder / latest).is_symlink():
        candidates.append((folder / latest).resolve())
    if folder.is_dir():
        files = [p for p in folder.glob(pattern) if p.is_file() and not p.is_symlink()]
        files.sort(key=lambda p: p.stat().st_mtime_ns, reverse=True)
        candidates += [p for p in files if p.resolve() not in candidates]
    for candidate in candidates:
        try:
            contents = read_checkpoint(candidate)
        except (ValueError, FileNotFoundError) as error:
            log.warning("passing over %s: %s", candidate, error)
            continue
        if RNG in contents:
            return candidate
    return None


def stored_metadata(contents: dict[str, Any]) -> dict[str, Any]:
    """Return the facts about the run that wrote a checkpoint.

    Args:
        contents: What :func:`read_checkpoint` returned.

    Returns:
        Versions, device, precision and sizes; empty if there are none.

    Example:
        >>> stored_metadata({"metadata": {"device": "cpu"}})
        {'device': 'cpu'}
    """
    return dict(contents.get(METADATA) or {})
