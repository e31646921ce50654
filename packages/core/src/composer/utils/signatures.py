"""Hold the names of arguments against a signature before the call.

A plugin and a line of a recipe are both checked before anything is built, in the same words.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from composer.utils.suggestions import did_you_mean

__all__ = ["check_arguments"]


def check_arguments(
    thing: Callable[..., Any],
    names: Iterable[str],
    *,
    label: str,
    supplied: Iterable[str] = (),
) -> None:
    """Refuse arguments that a callable does not accept, and miss those that it needs.

    Args:
        thing: What is to be called.
        names: The arguments that somebody gives.
        label: What to call it in errors.
        supplied: The arguments that the caller adds; nobody else may give them.

    Raises:
        TypeError: If an argument is unknown or missing.

    Example:
        >>> def smooth(*, smoothing=0.1): ...
        >>> check_arguments(smooth, ["smothing"], label="algorithm 'smooth'")
        Traceback (most recent call last):
        TypeError: algorithm 'smooth' has no argument 'smothing'. Did you mean "smoothing"? ...
    """
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        # Classes written in C may not have one; the call itself then judges the arguments.
        return
    given, ours = list(names), set(supplied)
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    accepted = [p.name for p in named if p.name not in ours]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for name in given:
            if name not in accepted:
                raise TypeError(
                    f"{label} has no argument {name!r}.{did_you_mean(name, accepted)} "
                    f"It accepts: {', '.join(accepted) or 'none'}."
                )
    missing = [p.name for p in named if p.default is p.empty and p.name not in {*given, *ours}]
    if missing:
        raise TypeError(f"{label} needs the arguments {missing}; got {sorted(given)}")
