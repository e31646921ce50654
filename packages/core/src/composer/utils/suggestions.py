"""The sentence that ends an error about an unknown name.

Every part of the library that looks something up by name offers the nearest known names, in the
same words, so this is the only place that decides how near is near.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean"]


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
