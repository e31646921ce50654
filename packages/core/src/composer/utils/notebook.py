"""Tell notebooks from terminals."""

from __future__ import annotations

import sys

__all__ = ["is_notebook"]


def is_notebook() -> bool:
    """Tell whether this code runs under IPython, as in a notebook.

    Returns:
        True if it does.

    Example:
        >>> is_notebook()
        False
    """
    # IPython is there if it runs; importing it only to ask would be slow.
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None
