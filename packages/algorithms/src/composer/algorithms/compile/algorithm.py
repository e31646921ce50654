"""Compilation of the model as a method of training."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from composer.algorithms.compile.functional import apply_compile, check_settings
from composer.core.algorithm import Algorithm, Phase
from composer.core.event import Event

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["Compile"]


class Compile(Algorithm):
    """Compile the model once all other methods have changed it and weights are loaded.

    Args:
        backend: Who generates the code.
        mode: A trade between time of compilation and speed, such as ``"max-autotune"``.
        fullgraph: Whether what cannot be traced is an error instead of a break.
        dynamic: Whether to compile for changing shapes; by default once a shape has changed.
        options: Options of the backend, instead of a mode.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a name is unknown, or mode and options are both given.

    Example:
        >>> Compile(backend="eager").phase.name
        'LAST'
    """

    events: ClassVar[frozenset[Event]] = frozenset({Event.AFTER_LOAD})
    phase: ClassVar[Phase] = Phase.LAST
    after: ClassVar[tuple[str, ...]] = (
        "low_precision_groupnorm",
        "low_precision_layernorm",
    )
    remarks: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "activation_checkpointing": "a graph ends at each changed block and another begins "
            "inside, so `fullgraph=True` is refused"
        }
    )
    kind: ClassVar[str] = "compile"
    cost: ClassVar[str] = "seconds to minutes at the first batches; faster steps"
    source: ClassVar[str] = "Ansel et al., PyTorch 2 (2024), doi 10.1145/3620665.3640366"

    def __init__(
        self,
        backend: str = "inductor",
        mode: str | None = None,
        fullgraph: bool = False,
        dynamic: bool | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        check_settings(backend, mode, fullgraph, dynamic, options)
        self.backend = backend
        self.mode = mode
        self.fullgraph = fullgraph
        self.dynamic = dynamic
        self.options = options
        self._compiled: Any = None

    def apply(self, event: Event, state: State, logger: Logger) -> None:
        """Compile the model, once.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Not used.

        Raises:
            RuntimeError: If the model is compiled already.

        Example:
            >>> from composer.core.event import Event
            >>> Compile(backend="eager").match(Event.AFTER_LOAD, None)
            True
        """
        del event, logger
        # A run that goes back to its own checkpoint comes here again.
        if self._compiled is not state.model:
            apply_compile(state.model, **self.arguments())
            self._compiled = state.model
