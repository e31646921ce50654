"""Layer freezing as a method of training."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from composer.algorithms._progress import begins_anew, elapsed_share
from composer.algorithms.layer_freezing.functional import (
    check_optimizers,
    check_settings,
    freeze_first,
    freeze_layers,
    num_freezable,
)
from composer.algorithms.warnings import NoEffectWarning
from composer.core.algorithm import Algorithm
from composer.core.event import Event

if TYPE_CHECKING:
    import torch

    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["LayerFreezing"]

log = logging.getLogger(__name__)


class LayerFreezing(Algorithm):
    """Freeze the layers one after the other from the first, at the ends of epochs.

    Frozen layers need no gradients and no steps; their parameters stay in the optimizer, where
    neither momentum nor weight decay moves them. Their batch statistics go on.

    Args:
        freeze_start: The share of the run after which freezing starts, from 0 to below 1.
        freeze_level: The share of the layers that would be frozen at the end of the run, at which
            itself nothing more is frozen.

    Raises:
        TypeError: If an argument is no number.
        ValueError: If one is out of range.

    Example:
        >>> LayerFreezing(freeze_start=0.5).find_unused_parameters
        True
    """

    events: ClassVar[frozenset[Event]] = frozenset(
        {Event.INIT, Event.AFTER_LOAD, Event.FIT_START, Event.EPOCH_END}
    )
    kind: ClassVar[str] = "weights"
    source: ClassVar[str] = "Raghu et al., SVCCA (2017), arXiv 1706.05806"
    cost: ClassVar[str] = "saves gradients and steps of the frozen layers"

    def __init__(self, freeze_start: float = 0.5, freeze_level: float = 1.0) -> None:
        check_settings(freeze_start, freeze_level)
        self.freeze_start = freeze_start
        self.freeze_level = freeze_level
        #: How many layers are frozen.
        self.depth = 0
        self._frozen: list[torch.nn.Parameter] = []

    @property
    def find_unused_parameters(self) -> bool:
        """Whether parameters may have no gradients: those of frozen layers."""
        return True

    def match(self, event: Event, state: State) -> bool:
        """Say whether the method acts now.

        Args:
            event: The event that fires.
            state: The state of the run.

        Returns:
            Whether the run is set up, loaded layers are to be frozen, or it is time for more.

        Example:
            >>> LayerFreezing().match(Event.BATCH_END, None)
            False
        """
        if event is Event.AFTER_LOAD:
            return self.depth > 0
        if event is Event.EPOCH_END:
            # At the end there is nothing to save any more, and whoever goes on with the model
            # would find it frozen.
            return self.freeze_start < (elapsed_share(state) or 0.0) < 1.0
        return event in self.events

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Freeze layers.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Receives how many layers are frozen, and the share that is aimed at.

        Raises:
            ValueError: If an optimizer moves what has no gradient.

        Example:
            >>> LayerFreezing().match(Event.FIT_START, None)
            True
        """
        if begins_anew(event, state):
            # The clock was set to zero: what was frozen by an earlier time is trained again.
            for parameter in self._frozen:
                parameter.requires_grad_(True)
            self.depth, self._frozen = 0, []
        if event is Event.INIT:
            self.depth, self._frozen = 0, []
            check_optimizers(state.optimizers)
            if not num_freezable(state.model):
                warnings.warn(
                    "LayerFreezing freezes nothing: it leaves the last trainable layer, and the "
                    "model has no other",
                    NoEffectWarning,
                    stacklevel=2,
                )
        elif event is Event.EPOCH_END:
            now = elapsed_share(state) or 0.0
            with self._noting(state.model):
                depth, share = freeze_layers(
                    state.model, state.optimizers, now, self.freeze_start, self.freeze_level
                )
            if depth > self.depth:
                self.depth = depth
                log.info("LayerFreezing: %d layers are frozen", depth)
            logger.log_metrics(
                {
                    "layer_freezing/layers_frozen": self.depth,
                    "layer_freezing/percentage_frozen": share,
                }
            )
        else:
            check_optimizers(state.optimizers)
            with self._noting(state.model):
                freeze_first(state.model, self.depth)

    @contextmanager
    def _noting(self, model: torch.nn.Module) -> Iterator[None]:
        """Note which parameters a block freezes."""
        trained = [p for p in model.parameters() if p.requires_grad]
        yield
        self._frozen += [p for p in trained if not p.requires_grad]

    def state_dict(self) -> dict[str, Any]:
        """Return how many layers are frozen.

        Returns:
            The number; a run that resumes freezes these at once, wherever in an epoch it is.

        Example:
            >>> LayerFreezing().state_dict()
            {'depth': 0}
        """
        return {"depth": self.depth}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over how many layers are frozen.

        Args:
            state: What :meth:`state_dict` returned; one of Composer 0.32, which did not say, is
                accepted, and freezing goes on at the next end of an epoch.

        Example:
            >>> method = LayerFreezing()
            >>> method.load_state_dict({"depth": 2})
            >>> method.depth
            2
        """
        self.depth = int(state.get("depth", 0))
