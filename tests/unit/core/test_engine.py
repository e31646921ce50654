"""Who is called at an event, in which order, and at what cost."""

from __future__ import annotations

import gc
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from composer.core.algorithm import Algorithm, Phase
from composer.core.callback import Callback
from composer.core.engine import Engine
from composer.core.event import Event
from composer.core.logger import Logger, LoggerDestination
from composer.core.passes import sort_to_back, sort_to_front
from composer.core.state import State
from composer.core.warnings import NotIntendedUseWarning
from composer_testing.tiny import state_of

calls: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


def algorithm(
    name: str,
    *events: Event,
    phase: Phase = Phase.NORMAL,
    group: str | None = None,
    after: tuple[str, ...] = (),
) -> Algorithm:
    def apply(self: Any, event: Event, state: State, logger: Logger) -> int:
        calls.append(name)
        return 7

    body = {
        "events": frozenset(events),
        "phase": phase,
        "after": after,
        "apply": apply,
        "exclusive_group": property(lambda self: group),
    }
    return type(name, (Algorithm,), body)()


def observer(name: str, base: type = Callback, **methods: Any) -> Any:
    def record(self: Any, state: State, logger: Logger) -> None:
        calls.append(name)

    return type(name, (base,), {**dict.fromkeys(("init", "batch_end"), record), **methods})()


def engine_of(
    algorithms: list[Algorithm] = [],  # noqa: B006
    callbacks: list[Callback] = [],  # noqa: B006
    **settings: Any,
) -> Engine:
    state = state_of(algorithms=algorithms, callbacks=callbacks, dataloader=[1])
    destinations = [c for c in callbacks if isinstance(c, LoggerDestination)]
    return Engine(state, Logger(state, destinations), **settings)


def test_loggers_first_at_init_and_last_elsewhere() -> None:
    engine = engine_of(
        [algorithm("A", Event.INIT, Event.BATCH_END)],
        [observer("D", LoggerDestination), observer("C")],
    )
    engine.run_event(Event.INIT)
    engine.run_event("batch_end")
    assert calls == ["D", "C", "A", "A", "C", "D"]


# The documented prototype: a last-phase N, augmentations A and B, a first-phase S, and G.
@pytest.mark.parametrize(
    ("fired", "expected"),
    [
        ([Event.INIT], "G N"),
        ([Event.AFTER_DATALOADER], "S A B"),
        ([Event.BEFORE_LOSS], "A B"),
        ([Event.BEFORE_LOSS, Event.AFTER_LOSS], "A B B A"),
        ([Event.AFTER_LOSS], "A B"),
    ],
)
def test_phases_and_undo_in_reverse(fired: list[Event], expected: str) -> None:
    around_loss = (Event.AFTER_DATALOADER, Event.BEFORE_LOSS, Event.AFTER_LOSS)
    engine = engine_of(
        [
            algorithm("N", Event.INIT, phase=Phase.LAST),
            algorithm("A", *around_loss),
            algorithm("B", *around_loss),
            algorithm("S", Event.AFTER_DATALOADER, phase=Phase.FIRST),
            algorithm("G", Event.INIT),
        ]
    )
    for event in fired:
        engine.run_event(event)
    assert " ".join(calls) == expected


def test_those_that_did_not_open_follow_in_their_own_order() -> None:
    around_loss = (Event.BEFORE_LOSS, Event.AFTER_LOSS)
    engine = engine_of(
        [
            algorithm("A", *around_loss),
            algorithm("X", Event.AFTER_LOSS),
            algorithm("B", *around_loss),
            algorithm("F", *around_loss, phase=Phase.FIRST),
        ]
    )
    engine.run_event(Event.BEFORE_LOSS)
    engine.run_event(Event.AFTER_LOSS)
    assert " ".join(calls) == "F A B B A F X"


def test_a_later_batch_forgets_who_opened_the_one_before() -> None:
    """What acted at `before` in one batch and not in the next is no opener there."""

    class Once(Algorithm):
        events = frozenset({Event.BEFORE_LOSS, Event.AFTER_LOSS})

        def __init__(self) -> None:
            self.batch = 0

        def match(self, event: Event, state: State) -> bool:
            return event is Event.AFTER_LOSS or self.batch == 0

        def apply(self, event: Event, state: State, logger: Logger) -> None:
            calls.append("A")

    once = Once()
    engine = engine_of([algorithm("X", Event.AFTER_LOSS), once])
    engine.run_event(Event.BEFORE_LOSS)
    engine.run_event(Event.AFTER_LOSS)
    once.batch = 1
    engine.run_event(Event.BEFORE_LOSS)
    engine.run_event(Event.AFTER_LOSS)
    assert " ".join(calls) == "A A X X A"


def test_predecessors_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order among algorithms is decided when the table is made, not at each event."""
    from composer.core import plugins

    asked: list[str] = []
    monkeypatch.setattr(plugins, "name_of", lambda group, cls: asked.append(cls.__name__))
    engine = engine_of([algorithm("A", Event.INIT, after=("x",)), algorithm("B", Event.INIT)])
    for _ in range(5):
        engine.run_event(Event.INIT)
    assert asked == ["A", "B"]


def test_a_callback_in_use_can_be_copied_and_pickled() -> None:
    import copy
    import pickle

    callback = Callback()
    engine = engine_of(callbacks=[callback])
    for twin in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        engine_of(callbacks=[twin]).close()
    engine.close()


def test_declared_predecessors(monkeypatch: pytest.MonkeyPatch) -> None:
    from composer.core import plugins

    monkeypatch.setattr(plugins, "name_of", lambda group, cls: cls.__name__.lower())
    first, second = algorithm("A", Event.INIT, after=("b",)), algorithm("B", Event.INIT)
    engine_of([first, second]).run_event(Event.INIT)
    assert calls == ["B", "A"]
    loop = [algorithm("A", Event.INIT, after=("b",)), algorithm("B", Event.INIT, after=("a",))]
    with pytest.raises(ValueError, match=r"\['a', 'b'\]"):
        engine_of(loop).run_event(Event.INIT)


def test_exclusive_group_warns_only_when_both_act() -> None:
    both = [algorithm(n, Event.BEFORE_BACKWARD, group="loss interpolation") for n in "AB"]
    with pytest.warns(NotIntendedUseWarning, match="A and B both act on the loss interpolation"):
        engine_of(both).run_event(Event.BEFORE_BACKWARD)
    apart = [
        algorithm("A", Event.BEFORE_BACKWARD, group="g"),
        algorithm("B", Event.AFTER_BACKWARD, group="g"),
    ]
    engine_of(apart).run_event(Event.BEFORE_BACKWARD)  # a warning would be an error


def test_user_passes_see_what_matched() -> None:
    seen: list[list[str]] = []

    def reverse(algorithms: Any, event: Event) -> Any:
        seen.append([type(a).__name__ for a in algorithms])
        return list(reversed(algorithms))

    algorithms = [algorithm("A", Event.INIT), algorithm("B", Event.INIT)]
    for given in (reverse, (reverse, 0), [reverse, 0], [(reverse, -1)], [reverse]):
        calls.clear()
        engine_of(algorithms, algorithm_passes=given).run_event(Event.INIT)
        assert calls == ["B", "A"]
    assert seen[0] == ["A", "B"]
    with pytest.raises(TypeError, match="functions"):
        engine_of(algorithm_passes="reverse")


def test_traces() -> None:
    kept: list[dict[str, Any]] = []

    class Keep(LoggerDestination):
        def log_traces(self, traces: dict[str, Any]) -> None:
            kept.append(traces)

    class Never(Algorithm):
        def match(self, event: Event, state: State) -> bool:
            return False

        def apply(self, event: Event, state: State, logger: Logger) -> None:
            raise AssertionError

    engine = engine_of([algorithm("A", Event.INIT), Never()], [Keep()])
    traces = engine.run_event(Event.INIT)
    assert (traces["A/init"].run, traces["A/init"].exit_code, traces["A/init"].order) == (
        True,
        7,
        0,
    )
    assert not traces["Never/init"].run
    assert kept == [{"algorithm_traces/A/init": 1}]


def test_the_table_follows_changes() -> None:
    engine = engine_of()
    state = engine.state
    engine.run_event(Event.BATCH_END)
    assert calls == []
    late = observer("C")
    state.callbacks.append(late)
    engine.run_event(Event.BATCH_END)
    state.algorithms = [algorithm("A", Event.BATCH_END)]
    engine.run_event(Event.BATCH_END)
    state.callbacks.remove(late)
    engine.run_event(Event.BATCH_END)
    assert calls == ["C", "A", "C", "A"]


def test_a_callback_may_catch_every_event() -> None:
    class All(Callback):
        def run_event(self, event: Event, state: State, logger: Logger) -> None:
            calls.append(event.value)

    engine = engine_of(callbacks=[All()])
    for event in Event:
        engine.run_event(event)
    assert calls == [event.value for event in Event]


def test_an_instance_may_carry_its_own_method() -> None:
    callback = Callback()
    callback.batch_end = lambda state, logger: calls.append("own")  # type: ignore[method-assign]
    engine_of(callbacks=[callback]).run_event(Event.BATCH_END)
    assert calls == ["own"]


def test_unknown_event_names_the_near_one() -> None:
    with pytest.raises(ValueError, match="batch_end"):
        engine_of().run_event("batch_ende")


def test_closing() -> None:
    order: list[str] = []

    class Fails(Callback):
        def close(self, state: State, logger: Logger) -> None:
            raise RuntimeError("boom")

        def post_close(self) -> None:
            order.append("never")

    class Closes(Callback):
        def close(self, state: State, logger: Logger) -> None:
            order.append("close")

        def post_close(self) -> None:
            order.append("post_close")

    engine = engine_of(callbacks=[Fails(), Closes()])
    engine.close()
    engine.close()
    assert order == ["close", "post_close"]
    with pytest.raises(RuntimeError, match="closed"):
        engine.run_event(Event.INIT)


def test_a_callback_serves_one_open_engine() -> None:
    callback = observer("C")
    first = engine_of(callbacks=[callback])
    with pytest.raises(RuntimeError, match="close that one first"):
        engine_of(callbacks=[callback])
    first.close()
    second = engine_of(callbacks=[callback])
    second.run_event(Event.INIT)
    assert calls == ["C"]


def test_engines_are_collected_and_closed() -> None:
    closed: list[int] = []
    callback = observer("C", close=lambda self, state, logger: closed.append(1))
    engine = engine_of(callbacks=[callback])
    reference = weakref.ref(engine)
    del engine
    gc.collect()
    assert reference() is None
    assert closed == [1]


def _opcodes(function: Callable[[], Any]) -> int:
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def test_dispatch_for_nobody_costs_a_look_up() -> None:
    listening = engine_of(callbacks=[observer("C") for _ in range(10)])
    silent = engine_of(callbacks=[Callback() for _ in range(1000)])
    for engine in (listening, silent):
        engine.run_event(Event.BATCH_START)
        engine.run_event(Event.BATCH_END)
    alone = engine_of()
    alone.run_event(Event.BATCH_START)
    reference = _opcodes(lambda: alone.run_event(Event.BATCH_START))
    assert _opcodes(lambda: silent.run_event(Event.BATCH_START)) == reference
    assert _opcodes(lambda: listening.run_event(Event.BATCH_START)) == reference
    # Bytecodes repeat exactly: 60 for each callback that listens is the promise.
    per_callback = (_opcodes(lambda: listening.run_event(Event.BATCH_END)) - reference) / 10
    assert per_callback <= 60
    assert reference <= 20


def test_sort_helpers_are_stable() -> None:
    items: list[Any] = [1, "a", 2, "b"]
    assert sort_to_front(items, str) == ["a", "b", 1, 2]
    assert sort_to_back(items, str) == [1, 2, "a", "b"]


def test_arguments_are_read_from_attributes() -> None:
    class Good(Algorithm):
        events = frozenset({Event.INIT})

        def __init__(self, a: int, b: float = 2.0) -> None:
            self.a, self.b = a, b

        def apply(self, event: Event, state: State, logger: Logger) -> None: ...

    class Bad(Good):
        def __init__(self, c: int) -> None:
            self._c = c

    assert Good(1).arguments() == {"a": 1, "b": 2.0}
    assert repr(Good(1)) == "Good(a=1, b=2.0)"
    with pytest.raises(AttributeError, match="'c'"):
        Bad(1).arguments()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert repr(Bad(1)) == "Bad(...)"
