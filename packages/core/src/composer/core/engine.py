"""Runs events: decides once who listens to what, then calls exactly those.

An event fires some twenty times per training step and mostly nobody listens, so the engine keeps a
plan per event: which algorithms can act at it and which callbacks override its method. The plan is
thrown away when algorithms or callbacks change. An event without listeners costs one look-up.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from composer.core import lifecycle
from composer.core.algorithm import Algorithm
from composer.core.callback import Callback
from composer.core.event import Event
from composer.core.logger import Logger, LoggerDestination
from composer.core.passes import (
    AlgorithmPass,
    UndoInReverse,
    check_together,
    normalize_passes,
    sort_by_phase,
    warn_if_exclusive,
)
from composer.utils.suggestions import did_you_mean

if TYPE_CHECKING:
    from composer.core.state import State

__all__ = ["Engine", "Trace", "Traces"]

log = logging.getLogger(__name__)


@dataclass
class Trace:
    """What became of one algorithm at one event.

    Attributes:
        name: Class name of the algorithm.
        event: The event.
        exit_code: What ``apply`` returned.
        order: Its place among those that ran.
        run: Whether it ran.

    Example:
        >>> Trace("MixUp", Event.BEFORE_FORWARD, None, 0, True).run
        True
    """

    name: str = ""
    event: Event | None = None
    exit_code: int | None = None
    order: int | None = None
    run: bool = False


Traces = dict[str, Trace]

_NO_TRACES: Mapping[str, Trace] = MappingProxyType({})
_Handler = Callable[["State", Logger], None]


class _Plan:
    """Who is called at one event, in three groups in their order."""

    __slots__ = ("after", "before", "candidates", "event", "opens")

    def __init__(
        self,
        event: Event,
        before: tuple[_Handler, ...],
        candidates: tuple[tuple[Algorithm, bool], ...],
        after: tuple[_Handler, ...],
    ) -> None:
        self.event = event
        self.opens = any(other.undoes is event for other in Event)
        self.before = before
        self.candidates = candidates
        self.after = after


class Engine:
    """Dispatches events to algorithms, callbacks and loggers.

    At ``INIT`` loggers go first, then other callbacks, then algorithms; at every other event
    algorithms go first, then callbacks, then loggers.

    Args:
        state: The state of the run.
        logger: Where to report.
        algorithm_passes: Further ordering passes: a pass ``(algorithms, event) -> algorithms``, a
            pair of pass and index, or a sequence of either.

    Raises:
        RuntimeError: If a callback is in use by another engine.

    Example:
        >>> import torch
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> class Say(Callback):
        ...     def init(self, state, logger):
        ...         print("hello")
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU(), callbacks=[Say()])
        >>> engine = Engine(state, Logger(state))
        >>> _ = engine.run_event(Event.INIT)
        hello
        >>> engine.close()
    """

    state: State
    logger: Logger
    #: Asked when a callback wants to end the process: whether the run takes care of it, and goes on
    #: to where it can end in good order. ``None`` lets the process end.
    on_exit: Callable[[SystemExit], bool] | None

    def __init__(
        self,
        state: State,
        logger: Logger,
        algorithm_passes: Any = None,
    ) -> None:
        self.state = state
        self.logger = logger
        self.on_exit = None
        self._plans: dict[Any, _Plan | None] = {}
        self._undo = UndoInReverse()
        self._passes: list[AlgorithmPass] = [self._undo, warn_if_exclusive]
        self._user_passes = False
        self._closed = False
        self._debug = bool(os.environ.get("ENGINE_DEBUG"))
        for algorithm_pass, index in normalize_passes(algorithm_passes):
            self.register_pass(algorithm_pass, index)
        self._claimed: list[Callback] = []
        self._claim()
        state.on_handlers_change(self.refresh)
        self._cancel_exit_hook = lifecycle.close_at_exit(self)

    # ---- configuration ------------------------------------------------------------------------

    def register_pass(self, algorithm_pass: AlgorithmPass, index: int = -1) -> None:
        """Add an ordering pass.

        Args:
            algorithm_pass: ``(algorithms, event) -> algorithms``.
            index: Its place among the passes; -1 appends.

        Raises:
            TypeError: If it is not callable.
        """
        if not callable(algorithm_pass):
            raise TypeError(f"an algorithm pass must be callable, not {algorithm_pass!r}")
        if index == -1:
            self._passes.append(algorithm_pass)
        else:
            self._passes.insert(index, algorithm_pass)
        self._user_passes = True
        self._plans.clear()

    @property
    def passes(self) -> tuple[AlgorithmPass, ...]:
        """The ordering passes, in the order in which they run."""
        return tuple(self._passes)

    def refresh(self) -> None:
        """Forget who listens to what; done by itself when algorithms or callbacks change."""
        self._plans.clear()
        if not self._closed:
            self._claim()

    def _claim(self) -> None:
        callbacks = list(self.state.callbacks)
        lifecycle.claim(callbacks, self)
        kept = {id(c) for c in callbacks}
        lifecycle.release(c for c in self._claimed if id(c) not in kept)
        self._claimed = callbacks

    # ---- running ------------------------------------------------------------------------------

    def run_event(self, event: Event | str) -> Mapping[str, Trace]:
        """Run everything that acts at an event.

        Args:
            event: The event or its name.

        Returns:
            A trace per algorithm that could act, keyed ``<Class>/<event>``; empty when none could.

        Raises:
            RuntimeError: If the engine is closed.
            ValueError: If there is no such event.
        """
        try:
            plan = self._plans[event]
        except KeyError:
            plan = self._plan(event)
        if plan is None:
            return _NO_TRACES
        state, logger = self.state, self.logger
        for handler in plan.before:
            handler(state, logger)
        traces = _NO_TRACES
        if plan.candidates:
            traces = self._run_algorithms(plan)
        for handler in plan.after:
            try:
                handler(state, logger)
            except SystemExit as error:
                if self.on_exit is None or not self.on_exit(error):
                    raise
        return traces

    def run_algorithms(self, event: Event) -> Mapping[str, Trace]:
        """Run the algorithms that act at an event, and no callback, in the midst of something else.

        Args:
            event: The event.

        Returns:
            A trace per algorithm that could act, as of :meth:`run_event`.

        Raises:
            RuntimeError: If the engine is closed.

        Example:
            >>> import torch
            >>> from composer.core.state import State
            >>> from composer.devices import DeviceCPU
            >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
            >>> Engine(state, Logger(state)).run_algorithms(Event.AFTER_LOAD)
            mappingproxy({})
        """
        plan = self._plans[event] if event in self._plans else self._plan(event)
        if plan is None or not plan.candidates:
            return _NO_TRACES
        return self._run_algorithms(plan)

    @staticmethod
    def _as_event(event: Event | str) -> Event:
        try:
            return Event(event)
        except ValueError:
            known = [e.value for e in Event]
            raise ValueError(
                f"unknown event {event!r}; known: {known}.{did_you_mean(str(event), known)}"
            ) from None

    def _plan(self, key: Event | str) -> _Plan | None:
        if self._closed:
            raise RuntimeError(
                f"the engine is closed; event {key!s} cannot run. Make a new trainer"
            )
        event = self._as_event(key)
        candidates = []
        for algorithm in sort_by_phase(self.state.algorithms):
            declared = type(algorithm).events
            if declared is None or event in declared:
                asks = declared is None or type(algorithm).match is not Algorithm.match
                candidates.append((algorithm, asks or "match" in algorithm.__dict__))
        destinations: list[_Handler] = []
        others: list[_Handler] = []
        for callback in self.state.callbacks:
            if (handler := self._handler(callback, event)) is not None:
                is_destination = isinstance(callback, LoggerDestination)
                (destinations if is_destination else others).append(handler)
        if event is Event.INIT:
            check_together(self.state.algorithms)
            plan = _Plan(event, (*destinations, *others), tuple(candidates), ())
        else:
            plan = _Plan(event, (), tuple(candidates), (*others, *destinations))
        empty = not (plan.before or plan.candidates or plan.after)
        self._plans[key] = None if empty else plan
        return self._plans[key]

    def _handler(self, callback: Callback, event: Event) -> _Handler | None:
        """The function to call for a callback at an event, or ``None`` if it does not care."""
        cls, name = type(callback), event.value
        handler: _Handler
        if cls.run_event is not Callback.run_event or "run_event" in callback.__dict__:
            handler = partial(callback.run_event, event)
        elif name in callback.__dict__ or getattr(cls, name) is not getattr(Callback, name):
            handler = getattr(callback, name)
        else:
            return None
        return partial(self._logged, handler, event, cls.__name__) if self._debug else handler

    def _logged(
        self, handler: _Handler, event: Event, name: str, state: State, logger: Logger
    ) -> None:
        log.debug("%s at %r: %s", event.value, state.timestamp, name)
        handler(state, logger)

    def _run_algorithms(self, plan: _Plan) -> Mapping[str, Trace]:
        event, candidates = plan.event, plan.candidates
        state, logger = self.state, self.logger
        matched = [a for a, asks in candidates if not asks or a.match(event, state)]
        if not matched:
            if plan.opens:
                self._undo.remember(event, ())
            return _NO_TRACES
        ordered: Any = matched
        if len(matched) > 1 or self._user_passes:
            for algorithm_pass in self._passes:
                ordered = algorithm_pass(ordered, event)
        traces: Traces = {}
        for algorithm, _ in candidates:
            name = type(algorithm).__name__
            traces[f"{name}/{event.value}"] = Trace(name=name, event=event)
        for order, algorithm in enumerate(ordered):
            name = type(algorithm).__name__
            if self._debug:
                log.debug("%s at %r: %s", event.value, state.timestamp, name)
            exit_code = algorithm.apply(event, state, logger)
            traces[f"{name}/{event.value}"] = Trace(name, event, exit_code, order, True)
        if plan.opens:
            self._undo.remember(event, ordered)
        if logger.destinations:
            ran = {f"algorithm_traces/{key}": 1 for key, trace in traces.items() if trace.run}
            logger.log_traces(ran)
        return traces

    # ---- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Close all callbacks and free what they hold; errors are logged, not raised.

        A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        self._plans.clear()
        self._cancel_exit_hook()
        self.state.on_handlers_change(None)
        callbacks = list(self.state.callbacks)
        lifecycle.close_callbacks(callbacks, self.state, self.logger)
        lifecycle.release(callbacks)

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()
