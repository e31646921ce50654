"""Going back to a checkpoint in the middle of a run: what trains is put back, the clock goes on.

A run that went back is, in weights, optimizers and algorithms, like one that was started from that
checkpoint. Where it goes back to the checkpoint it was loaded from, what was left out at loading is
as it was then, which no file holds; so a copy of the beginning is kept in the host's memory until
the run has a checkpoint of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch

from composer.checkpoint.compat import fit_to_run
from composer.checkpoint.load import fetch_checkpoint
from composer.core.event import Event
from composer.core.persistence import collect, restore
from composer.utils import dist
from composer.utils.iteration import map_collection
from composer.utils.tensors import clone_tensors

if TYPE_CHECKING:
    from composer.callbacks.checkpoint_saver import CheckpointSaver
    from composer.core.engine import Engine
    from composer.core.state import State
    from composer.trainer.resume import Resumption

__all__ = ["Rewinding"]

_FIELDS = ("model", "optimizers", "algorithms", "scaler")


class Rewinding:
    """Puts the newest checkpoint's weights, and what trains them, back; called, it does so.

    Args:
        state: The state of the run, loaded and ready to train.
        engine: Tells algorithms that a checkpoint was loaded.
        saver: Saves this run's checkpoints, if anybody does.
        resumption: What the run was loaded from, if it was.

    Example:
        >>> from composer.core.engine import Engine
        >>> from composer.core.logger import Logger
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
        >>> Rewinding(state, Engine(state, Logger(state)), None, None)() is None
        True
    """

    def __init__(
        self,
        state: State,
        engine: Engine,
        saver: CheckpointSaver | None,
        resumption: Resumption | None,
    ) -> None:
        self._state = state
        self._engine = engine
        self._saver = saver
        self._resumption = resumption
        self._beginning: dict[str, Any] | None = None
        if resumption is not None and resumption.options.leaves_out:
            with ExitStack() as stack:
                for algorithm in state.algorithms:
                    stack.enter_context(algorithm.saving(state))
                self._beginning = map_collection(collect(state, _FIELDS), _on_host)

    def __call__(self) -> str | None:
        """Go back to the newest checkpoint of this run, or to the one that it began with.

        Returns:
            Path or URI of the checkpoint; ``None`` if there is none.

        Raises:
            FileNotFoundError: If the checkpoint is not there any more.
            ValueError: If it is bad or does not fit.
        """
        saver, began = self._saver, self._resumption
        if saver is not None:
            saver.wait()
        saved = [] if saver is None else saver.saved_checkpoints
        # Rank zero writes the files, under names with its rank.
        found: list[str | None] = [saved[-1] if saved else None]
        dist.broadcast_object_list(found)
        path = found[0]
        if path is not None:
            self._beginning = None
            self._restore(self._read(path, None))
        elif began is None:
            return None
        else:
            path = began.path
            kept = self._beginning
            if kept is None:
                self._restore(self._read(path, began.options.object_store))
            else:
                self._restore(kept)
        self._engine.run_algorithms(Event.AFTER_LOAD)
        return path

    def _read(self, path: str, object_store: Any) -> Mapping[str, Any]:
        contents = fetch_checkpoint(path, object_store, progress_bar=False)
        fit_to_run(contents, self._state)
        return {name: value for name, value in contents["state"].items() if name in _FIELDS}

    def _restore(self, saved: Mapping[str, Any]) -> None:
        state = self._state
        # Learning rates are the schedules', and these follow the clock, which goes on.
        options = [
            [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
            for optimizer in state.optimizers
        ]
        if "optimizers" not in saved:
            for optimizer in state.optimizers:
                optimizer.state.clear()  # what it gathered belongs to weights that are gone
        restore(state, clone_tensors(saved), logger=self._engine.logger, fields=_FIELDS)
        for optimizer, groups in zip(state.optimizers, options, strict=True):
            for group, kept in zip(optimizer.param_groups, groups, strict=True):
                group.update(kept)


def _on_host(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().to("cpu", copy=True)
