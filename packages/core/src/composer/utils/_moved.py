"""Where names that users import from ``composer.utils`` live now.

The table is data: nothing is imported until somebody asks for a name.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["MOVED", "load_moved"]

#: Old name -> (home module, distribution to install).
MOVED: dict[str, tuple[str, str]] = {
    "create_interval_scheduler": ("composer.core.intervals", "composer-core"),
    "get_device": ("composer.devices.select", "composer-core"),
    "get_save_filename": ("composer.checkpoint", "composer-trainer"),
    "load_checkpoint": ("composer.checkpoint", "composer-trainer"),
    "safe_torch_load": ("composer.checkpoint", "composer-trainer"),
    "save_checkpoint": ("composer.checkpoint", "composer-trainer"),
}


def load_moved(name: str) -> Any:
    """Import a name from the portion that owns it.

    Args:
        name: A key of `MOVED`.

    Returns:
        The object.

    Raises:
        ModuleNotFoundError: If its portion is not installed; the message names the package.

    Example:
        >>> load_moved("get_device").__module__
        'composer.devices.select'
    """
    home, distribution = MOVED[name]
    try:
        module = importlib.import_module(home)
    except ModuleNotFoundError as error:
        # Only a missing portion is explained; a failure inside it goes up as it is.
        if error.name is None or not (home == error.name or home.startswith(error.name + ".")):
            raise
        raise ModuleNotFoundError(
            f"{name} is in {home}, which is not installed. To install it: "
            f'pip install "{distribution}"',
            name=error.name,
        ) from error
    return getattr(module, name)
