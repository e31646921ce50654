"""Names for runs that nobody named."""

from __future__ import annotations

import os
import random
import time

from composer.utils import dist

__all__ = ["run_name"]

_ADJECTIVES = (
    "amber brisk calm clever coral crisp dapper eager fleet fond gentle glad golden happy "
    "honest keen kind lively lucid lucky mellow merry mighty noble olive plucky polite "
    "proud quick quiet rapid rosy royal rustic sage sharp silver smart snug solid sunny "
    "swift tidy tranquil vivid warm wise witty"
)
_NOUNS = (
    "alder badger beaver birch cedar condor crane dingo dolphin eagle elm falcon fern "
    "finch fox gecko heron ibex iris jay kestrel koala lark lemur lily lynx maple marten "
    "moose newt oak orchid osprey otter owl panda pine puffin quail raven robin salmon "
    "sparrow stork swan tapir tiger willow wren yak"
)


def run_name(given: str | None) -> tuple[str, bool]:
    """Name the run.

    Args:
        given: The user's name.

    Returns:
        The name, the same on every rank, and whether the user chose it, also by the environment
        variables ``COMPOSER_RUN_NAME`` or ``RUN_NAME``.

    Raises:
        ValueError: If the name holds braces.

    Example:
        >>> run_name("mine")
        ('mine', True)
    """
    chosen = given or os.environ.get("COMPOSER_RUN_NAME") or os.environ.get("RUN_NAME")
    if chosen:
        if not isinstance(chosen, str) or "{" in chosen or "}" in chosen:
            raise ValueError(
                f"run_name={chosen!r} must be a string without braces, since it is filled into "
                f"name templates"
            )
        return chosen, True
    # Words from the system's own source: the user's random streams are not touched.
    pick = random.SystemRandom().choice
    names = [f"{int(time.time())}-{pick(_ADJECTIVES.split())}-{pick(_NOUNS.split())}"]
    dist.broadcast_object_list(names)
    return names[0], False
