"""The sentence that ends an error about an unknown name.

Every part of the library that looks something up by name offers the nearest known names, in the
same words, so this is the only place that decides how near is near.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

__all__ = ["did_you_mean", "names_that_come_later"]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint for an error message about an unknown name.

    Args:
        name: What the user wrote.
        known: The names that would have been accepted.

    Returns:
        `` Did you mean "x"?`` with a leading space, or an empty string if nothing is near.

    Example:
        >>> did_you_mean("mixupp", ["cutmix", "mixup"])
        ' Did you mean "mixup"?'
        >>> did_you_mean("zebra", ["cutmix", "mixup"])
        ''
    """
    by_lower: dict[str, str] = {}
    for candidate in known:
        by_lower.setdefault(candidate.lower(), candidate)
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f' Did you mean "{by_lower[matches[0]]}"?' if matches else ""


def names_that_come_later(module: str, later: Iterable[str]) -> Callable[[str], Any]:
    """Make a module's ``__getattr__``, which explains names that are not there.

    Args:
        module: The module's name.
        later: Names of Composer 0.32 that a later release of this library brings.

    Returns:
        The function. For a name that comes later it raises an ``ImportError`` that says so, for
        another an ``AttributeError`` with the near match.

    Example:
        >>> explain = names_that_come_later("composer.utils.suggestions", ["Tomorrow"])
        >>> try:
        ...     explain("Tomorrow")
        ... except ImportError as error:
        ...     print(error)
        composer.utils.suggestions.Tomorrow comes with a later release of this library
    """
    coming = frozenset(later)

    def explain(name: str) -> NoReturn:
        if name in coming:
            raise ImportError(
                f"{module}.{name} comes with a later release of this library", name=module
            )
        known = getattr(sys.modules.get(module), "__all__", ())
        raise AttributeError(
            f"module {module!r} has no attribute {name!r}.{did_you_mean(name, known)}"
        )

    return explain
