"""A model that costs nothing, as a method of training."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from composer.algorithms.no_op_model.layers import NoOpModelClass
from composer.core.algorithm import Algorithm
from composer.core.event import Event

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["NoOpModel"]


class NoOpModel(Algorithm):
    """Put a model in place of the run's that costs nothing, to time the loader and the loop.

    Batches must be pairs of inputs and targets.

    Example:
        >>> NoOpModel().required_on_load()
        True
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.INIT})
    excludes: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "activation_checkpointing": "the model that costs nothing has no blocks",
            "alibi": "the model that costs nothing has no attention",
            "gated_linear_units": "the model that costs nothing has no layers",
            "label_smoothing": "the model that costs nothing has no classes",
            "selective_backprop": "the model that costs nothing has no loss for each sample",
            "seq_length_warmup": "the model that costs nothing takes pairs, and not mappings",
        }
    )
    kind: ClassVar[str] = "debug"
    cost: ClassVar[str] = "everything: it trains nothing"
    source: ClassVar[str] = "Composer"

    def __init__(self) -> None:
        # A constructor of its own, so that the arguments are told to be none.
        super().__init__()

    @staticmethod
    def required_on_load() -> bool:
        """Whether a checkpoint trained with the method can only be loaded with it.

        Returns:
            True: the model is another.

        Example:
            >>> NoOpModel.required_on_load()
            True
        """
        return True

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Replace the model, and give the optimizers its parameter.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Not used.

        Example:
            >>> import torch
            >>> from types import SimpleNamespace
            >>> state = SimpleNamespace(model=torch.nn.Linear(1, 1), optimizers=[])
            >>> NoOpModel().apply(Event.INIT, state, None)
            >>> type(state.model).__name__
            'NoOpModelClass'
        """
        del event, logger
        model = NoOpModelClass(state.model)
        for optimizer in state.optimizers:
            optimizer.state.clear()
            for group in optimizer.param_groups:
                group["params"] = []
        if state.optimizers:
            state.optimizers[0].param_groups[0]["params"] = list(model.parameters())
        state.model = model
