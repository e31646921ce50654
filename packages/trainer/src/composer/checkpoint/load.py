"""Puts what is in a checkpoint into the state of a run."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer.checkpoint.compat import fit_to_run
from composer.checkpoint.layout import (
    METADATA,
    RNG,
    STATE,
    CheckpointError,
    IgnoreKeys,
    names_of,
    remove_keys,
)
from composer.checkpoint.newest import read_newest
from composer.checkpoint.reading import fetch_checkpoint
from composer.checkpoint.structure import check_structure
from composer.core.persistence import restore
from composer.utils.tensors import clone_tensors

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = [
    "apply_checkpoint",
    "fetch_checkpoint",
    "load_checkpoint",
    "read_newest",
    "stored_metadata",
]


def apply_checkpoint(
    contents: dict[str, Any],
    state: State,
    logger: Logger | None,
    *,
    weights_only: bool = False,
    strict_model_weights: bool = True,
    ignore_keys: IgnoreKeys = None,
    exclude_algorithms: Sequence[str] | None = None,
    path: str | Path | None = None,
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
        path: Where the contents are from, for messages; by default what the state says.

    Returns:
        The random states, to be restored right before the next batch; ``None`` if there are none.

    Raises:
        CheckpointError: If a value that is to be restored is of a wrong kind.
        ValueError: If something does not fit.

    Example:
        >>> import torch
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
        >>> saved = {**state.state_dict(), "rank_zero_seed": 3}
        >>> apply_checkpoint({"state": saved}, state, None) is None
        True
        >>> state.rank_zero_seed
        3
    """
    shown = path or state.load_path or "the checkpoint"
    algorithms = []
    with contextlib.suppress(CheckpointError):  # which is raised below, unless it is left out
        check_structure(contents, shown, fields=["algorithms"])
        algorithms = [dict(entry) for entry in contents.get(STATE, {}).get("algorithms") or []]
    if "model" not in contents.get(STATE, {}):
        warnings.warn(
            f"the checkpoint holds no {STATE}/model, so this run's weights stay as they are",
            stacklevel=2,
        )
    remove_keys(contents, ignore_keys, "load_ignore_keys")
    excluded = names_of(exclude_algorithms, "exclude_algorithms")
    check_structure(contents, shown, fields=["model", "algorithms"] if weights_only else None)
    report = fit_to_run(contents, state, weights_only=weights_only)
    # The model copies its weights out of the mapped file; everything else is copied here, since
    # its owners may keep the tensors they are given.
    saved = {
        name: value if name == "model" else clone_tensors(value)
        for name, value in contents.get(STATE, {}).items()
    }
    restore(
        state,
        saved,
        logger=logger,
        strict=strict_model_weights,
        exclude_algorithms=excluded,
        fields=["model"] if weights_only else None,
        stored_algorithms=algorithms,
    )
    if report is not None:
        report.announce()
    return None if weights_only else contents.get(RNG)


def load_checkpoint(
    path: str | Path,
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
        >>> import torch
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
        path=path,
    )


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
