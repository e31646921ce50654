"""Checkpoints that Composer 0.32 wrote.

Such a file holds the same facts in another layout, among them NumPy's random state, wall clocks and
the ``repr`` of each algorithm. It is read without running anything that is in it, turned into the
layout of this library, and a report says what came over and what did not.
"""

from composer.checkpoint.compat.reading import foreign_classes, load_harmless
from composer.checkpoint.compat.reporting import REPORT, LoadReport, fit_to_run
from composer.checkpoint.compat.translating import (
    from_reference,
    is_from_reference,
    parse_repr,
)

__all__ = [
    "REPORT",
    "LoadReport",
    "fit_to_run",
    "foreign_classes",
    "from_reference",
    "is_from_reference",
    "load_harmless",
    "parse_repr",
]
