"""The contract of a training method: when it acts, what it does, how it is rebuilt.

Facts that the engine needs before it runs anything (at which events a method can act, where it
stands among others) are class attributes and not code, so that the engine decides once who listens
to what and never has to know a particular method.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from composer.core.event import Event
from composer.core.serializable import Serializable

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["Algorithm", "Phase"]


class Phase(IntEnum):
    """Where an algorithm stands among those that act at one event.

    Example:
        >>> sorted([Phase.LAST, Phase.FIRST, Phase.NORMAL])[0].name
        'FIRST'
    """

    FIRST = 0
    NORMAL = 1
    LAST = 2


class Algorithm(Serializable, ABC):
    """A method that changes training.

    A subclass says at which events it acts, either by listing them in ``events`` (cheapest: the
    engine asks nothing else) or by overriding :meth:`match`; and what it does in :meth:`apply`.
    It stores every constructor argument under the argument's own name, so that a checkpoint can
    keep the arguments and rebuild the method without running code from the file.

    Class attributes:

    * ``events``: the events at which the algorithm can act; with ``None``, :meth:`match` is asked
      at every event.
    * ``phase``: its place among others; the user's order holds inside a phase.
    * ``after``: plugin names of algorithms that must run before this one.
    * ``excludes``: plugin names of algorithms that cannot be used with this one, each with why.
    * ``cautions``: plugin names of algorithms that this one is seldom wanted with, each with why.
    * ``remarks``: plugin names of algorithms, each with what is worth knowing of both together; for
      tables, nothing is said in a run.
    * ``kind``: what it changes, in a word. Ours are ``"surgery"`` (the model), ``"layout"`` (its
      memory), ``"compile"``, ``"memory"`` (what is kept of a forward pass), ``"data"``,
      ``"labels"``, ``"gradients"``, ``"optimizer"``, ``"weights"``, ``"schedule"`` and
      ``"debug"``.
    * ``cost``: what it costs or saves, in a few words.
    * ``source``: the paper or whose idea it is, in a line.

    Example:
        >>> class CountBatches(Algorithm):
        ...     events = frozenset({Event.BATCH_END})
        ...     def __init__(self, start=0):
        ...         self.start = start
        ...         self.n = start
        ...     def apply(self, event, state, logger):
        ...         self.n += 1
        >>> CountBatches(start=2).arguments()
        {'start': 2}
    """

    events: ClassVar[frozenset[Event] | None] = None
    phase: ClassVar[Phase] = Phase.NORMAL
    after: ClassVar[tuple[str, ...]] = ()
    excludes: ClassVar[Mapping[str, str]] = MappingProxyType({})
    cautions: ClassVar[Mapping[str, str]] = MappingProxyType({})
    remarks: ClassVar[Mapping[str, str]] = MappingProxyType({})
    kind: ClassVar[str] = ""
    cost: ClassVar[str] = ""
    source: ClassVar[str] = ""

    @property
    def exclusive_group(self) -> str | None:
        """A name shared by algorithms of which only one should act at an event, or ``None``."""
        return None

    @property
    def find_unused_parameters(self) -> bool:
        """Whether the algorithm may leave parameters without gradients (data-parallel needs it)."""
        return False

    @property
    def backwards_create_graph(self) -> bool:
        """Whether the backward pass must itself be differentiable."""
        return False

    @property
    def schedule_ratio(self) -> float:
        """By how much the run is longer than it says; the trainer scales duration and schedules."""
        return 1.0

    @staticmethod
    def required_on_load() -> bool:
        """Whether a checkpoint trained with this algorithm can only be loaded with it.

        Returns:
            True for methods that change the model's structure.

        Example:
            >>> Algorithm.required_on_load()
            False
        """
        return False

    def match(self, event: Event, state: State) -> bool:
        """Say whether the algorithm acts now.

        Args:
            event: The event that fires.
            state: The state of the run.

        Returns:
            By default, whether ``event`` is in ``events``.

        Raises:
            NotImplementedError: If the class neither lists ``events`` nor overrides this method.

        Example:
            >>> class AtInit(Algorithm):
            ...     events = frozenset({Event.INIT})
            ...     def apply(self, event, state, logger):
            ...         pass
            >>> AtInit().match(Event.INIT, None), AtInit().match(Event.FIT_END, None)
            (True, False)
        """
        del state
        if self.events is None:
            raise NotImplementedError(
                f"{type(self).__name__} must list its `events` or override `match`"
            )
        return event in self.events

    @abstractmethod
    def apply(self, event: Event, state: State, logger: Logger) -> int | None:
        """Act.

        Args:
            event: The event that fires.
            state: The state of the run, which may be changed.
            logger: Where to report.

        Returns:
            An exit code kept in the trace, or ``None``.

        Example:
            >>> class Nothing(Algorithm):
            ...     events = frozenset()
            ...     def apply(self, event, state, logger):
            ...         return 0
            >>> Nothing().apply(Event.INIT, None, None)
            0
        """

    def evaluating(self, state: State) -> AbstractContextManager[None]:
        """Return the context in which one evaluation or prediction runs, with all its events.

        What a method changes for it is changed back by the context, also after an error.

        Args:
            state: The state of the run.

        Returns:
            By default a context that does nothing.

        Example:
            >>> class Nothing(Algorithm):
            ...     events = frozenset()
            ...     def apply(self, event, state, logger):
            ...         pass
            >>> with Nothing().evaluating(None):
            ...     pass
        """
        del state
        return nullcontext()

    def saving(self, state: State) -> AbstractContextManager[None]:
        """Return the context in which a checkpoint is collected and written.

        What a method changes for it is in the checkpoint, and so in a model that is loaded: the
        method puts that right at ``AFTER_LOAD``, which algorithms also get where a run went back
        to a checkpoint of its own.

        Args:
            state: The state of the run.

        Returns:
            By default a context that does nothing.

        Example:
            >>> class Nothing(Algorithm):
            ...     events = frozenset()
            ...     def apply(self, event, state, logger):
            ...         pass
            >>> with Nothing().saving(None):
            ...     pass
        """
        del state
        return nullcontext()

    @classmethod
    def resume_without(cls, saved: Mapping[str, Any], state: State) -> None:
        """Undo what :meth:`saving` did to a stored model, in a run that leaves the method out.

        Called when a checkpoint is resumed with optimizer and clock, but without this method: it is
        not among the run's algorithms, excluded, or its state was ignored.

        Args:
            saved: The method's state in the checkpoint.
            state: The state of the run, restored.

        Example:
            >>> class Nothing(Algorithm):
            ...     events = frozenset()
            ...     def apply(self, event, state, logger):
            ...         pass
            >>> Nothing.resume_without({}, None)
        """

    def arguments(self) -> dict[str, Any]:
        """Return the constructor arguments from which an equal algorithm can be made.

        Returns:
            Argument name to value, read from the attributes of the same names.

        Raises:
            AttributeError: If an argument is not stored under its own name.

        Example:
            >>> class Scale(Algorithm):
            ...     events = frozenset()
            ...     def __init__(self, factor=2.0):
            ...         self.factor = factor
            ...     def apply(self, event, state, logger):
            ...         pass
            >>> Scale(3.0).arguments()
            {'factor': 3.0}
        """
        found: dict[str, Any] = {}
        for name, parameter in inspect.signature(type(self).__init__).parameters.items():
            if name == "self" or parameter.kind in (
                inspect.Parameter.VAR_POSITIONAL,
                inspect.Parameter.VAR_KEYWORD,
            ):
                continue
            try:
                found[name] = getattr(self, name)
            except AttributeError:
                raise AttributeError(
                    f"{type(self).__name__} does not store its argument {name!r} under that name, "
                    f"so a checkpoint cannot keep it; store it, or override `arguments`"
                ) from None
        return found

    def __repr__(self) -> str:
        try:
            shown = ", ".join(f"{k}={v!r}" for k, v in self.arguments().items())
        except AttributeError:
            shown = "..."
        return f"{type(self).__name__}({shown})"
