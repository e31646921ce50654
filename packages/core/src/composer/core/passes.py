"""In which order algorithms act at one event, and which cannot act in one run.

The engine sorts algorithms once, by phase and by declared predecessors, which keeps the user's
order otherwise. At each event the matched ones run through the passes, each a function from
algorithms and event to a list:

1. undo in reverse: at ``after_x``, the algorithms that acted at ``before_x`` go first, the last one
   to act being the first to undo; the others follow in their own order;
2. a warning when two algorithms of one exclusive group would act together.

Users may add passes of their own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from composer.core import plugins
from composer.core.algorithm import Algorithm
from composer.core.warnings import NotIntendedUseWarning

if TYPE_CHECKING:
    from composer.core.event import Event

__all__ = [
    "AlgorithmPass",
    "Conflict",
    "UndoInReverse",
    "check_together",
    "conflicts",
    "normalize_passes",
    "sort_by_phase",
    "sort_to_back",
    "sort_to_front",
    "warn_if_exclusive",
]

AlgorithmPass = Callable[[Sequence[Algorithm], "Event"], Sequence[Algorithm]]
T = TypeVar("T")


def sort_to_front(list_to_sort: Sequence[T], cls: Any) -> Sequence[T]:
    """Move the instances of a class to the front, keeping all other order.

    Args:
        list_to_sort: The items.
        cls: The class, or a tuple of classes.

    Returns:
        The sorted list.

    Example:
        >>> sort_to_front([1, "a", 2, "b"], str)
        ['a', 'b', 1, 2]
    """
    return sorted(list_to_sort, key=lambda item: not isinstance(item, cls))


def sort_to_back(list_to_sort: Sequence[T], cls: Any) -> Sequence[T]:
    """Move the instances of a class to the back, keeping all other order.

    Args:
        list_to_sort: The items.
        cls: The class, or a tuple of classes.

    Returns:
        The sorted list.

    Example:
        >>> sort_to_back(["a", 1, "b", 2], str)
        [1, 2, 'a', 'b']
    """
    return sorted(list_to_sort, key=lambda item: isinstance(item, cls))


A = TypeVar("A", bound="Algorithm | type[Algorithm]")


def _plugin_name(algorithm: Algorithm | type[Algorithm]) -> str | None:
    cls = algorithm if isinstance(algorithm, type) else type(algorithm)
    return plugins.name_of("composer.algorithms", cls)


def sort_by_phase(algorithms: Sequence[A]) -> list[A]:
    """Sort by phase, then move each algorithm behind those it declares as predecessors.

    Args:
        algorithms: The algorithms, or classes of them, in the user's order.

    Returns:
        The sorted list.

    Raises:
        ValueError: If algorithms declare each other as predecessors.

    Example:
        >>> sort_by_phase([])
        []
    """
    ordered = sorted(algorithms, key=lambda algorithm: algorithm.phase)
    if not any(algorithm.after for algorithm in ordered):
        return ordered
    name_of = {id(a): _plugin_name(a) for a in ordered}
    waiting, placed = list(ordered), []
    while waiting:
        open_names = {name_of[id(a)] for a in waiting}
        for algorithm in waiting:
            blockers = set(algorithm.after) & (open_names - {name_of[id(algorithm)]})
            if not blockers:
                break
        else:
            names = sorted(str(name_of[id(a)]) for a in waiting)
            raise ValueError(f"these algorithms each ask to run after another of them: {names}")
        waiting.remove(algorithm)
        placed.append(algorithm)
    return placed


@dataclass(frozen=True)
class Conflict:
    """Two algorithms that should not be in one run, or seldom.

    Attributes:
        declarer: Place of the one that says so.
        other: Place of the other.
        reason: Why.
        refused: Whether both together are an error, not only a warning.

    Example:
        >>> Conflict(0, 1, "both step the optimizer", refused=True).refused
        True
    """

    declarer: int
    other: int
    reason: str
    refused: bool


def conflicts(algorithms: Sequence[Algorithm | type[Algorithm]]) -> Iterator[Conflict]:
    """Find the pairs of which one declares the other in ``excludes`` or ``cautions``.

    Args:
        algorithms: Algorithms, or classes of them.

    Yields:
        The pairs, by the place of the one that declares.

    Example:
        >>> list(conflicts([]))
        []
    """
    if not any(algorithm.excludes or algorithm.cautions for algorithm in algorithms):
        return
    names = [_plugin_name(algorithm) for algorithm in algorithms]
    for i, algorithm in enumerate(algorithms):
        for j, name in enumerate(names):
            if i == j or name is None:
                continue
            if name in algorithm.excludes:
                yield Conflict(i, j, algorithm.excludes[name], refused=True)
            elif name in algorithm.cautions:
                yield Conflict(i, j, algorithm.cautions[name], refused=False)


def check_together(algorithms: Sequence[Algorithm]) -> None:
    """Refuse algorithms that exclude each other, and warn of those that are seldom wanted together.

    Args:
        algorithms: The algorithms of a run.

    Raises:
        ValueError: If one declares another of them in ``excludes``.

    Example:
        >>> check_together([])
    """
    for conflict in conflicts(algorithms):
        pair = " and ".join(
            type(algorithms[place]).__name__ for place in (conflict.declarer, conflict.other)
        )
        if conflict.refused:
            raise ValueError(
                f"{pair} cannot be used together: {conflict.reason}. Leave one of them out"
            )
        warnings.warn(
            f"{pair} are used together: {conflict.reason}", NotIntendedUseWarning, stacklevel=2
        )


class UndoInReverse:
    """At ``after_x``, lets the algorithms that acted at ``before_x`` undo in reverse order.

    It remembers who acted at the opening event; the engine tells it.

    Example:
        >>> from composer.core.event import Event
        >>> undo = UndoInReverse()
        >>> undo.remember(Event.BEFORE_LOSS, [])
        >>> undo([], Event.AFTER_LOSS)
        []
    """

    def __init__(self) -> None:
        self._opened: dict[Event, list[Algorithm]] = {}

    def remember(self, event: Event, algorithms: Sequence[Algorithm]) -> None:
        """Note who acted at an opening event.

        Args:
            event: The event.
            algorithms: Those that acted, in order; none is worth noting too.
        """
        self._opened[event] = list(algorithms)

    def __call__(self, algorithms: Sequence[Algorithm], event: Event) -> Sequence[Algorithm]:
        """Order the algorithms.

        Args:
            algorithms: The matched algorithms.
            event: The event.

        Returns:
            Openers in reverse, then the others.
        """
        opener = event.undoes
        if opener is None:
            return algorithms
        opened = self._opened.get(opener, [])
        undoing = [a for a in reversed(opened) if any(a is b for b in algorithms)]
        return undoing + [a for a in algorithms if not any(a is b for b in undoing)]


def warn_if_exclusive(algorithms: Sequence[Algorithm], event: Event) -> Sequence[Algorithm]:
    """Warn when several algorithms of one exclusive group act at one event.

    Args:
        algorithms: The matched algorithms.
        event: The event.

    Returns:
        The algorithms, unchanged.

    Example:
        >>> warn_if_exclusive([], None)
        []
    """
    groups: dict[str, list[str]] = {}
    for algorithm in algorithms:
        if (group := algorithm.exclusive_group) is not None:
            groups.setdefault(group, []).append(type(algorithm).__name__)
    for group, names in groups.items():
        if len(names) > 1:
            warnings.warn(
                f"{' and '.join(names)} both act on the {group} at {event.value!r}; only one of "
                f"them should",
                NotIntendedUseWarning,
                stacklevel=2,
            )
    return algorithms


def normalize_passes(passes: Any) -> list[tuple[AlgorithmPass, int]]:
    """Turn what a user gave as passes into pairs of pass and index.

    Args:
        passes: A pass, a pair of pass and index, or a sequence of either; ``None`` for none.

    Returns:
        Pairs; index -1 appends.

    Raises:
        TypeError: If something is neither.

    Example:
        >>> normalize_passes((warn_if_exclusive, 0))[0][1]
        0
    """
    if passes is None:
        return []
    if callable(passes):
        return [(passes, -1)]
    if not isinstance(passes, (list, tuple)):
        raise TypeError(f"algorithm_passes takes functions or (function, index), not {passes!r}")
    if len(passes) == 2 and callable(passes[0]) and isinstance(passes[1], int):
        return [(passes[0], passes[1])]
    pairs: list[tuple[AlgorithmPass, int]] = []
    for item in passes:
        pairs.extend(normalize_passes(item))
    return pairs
