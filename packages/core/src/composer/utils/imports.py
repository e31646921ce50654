"""Import by name, and the error for an extra that is not installed."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from composer.utils.suggestions import did_you_mean

__all__ = [
    "MissingConditionalImportError",
    "import_object",
    "is_hpu_installed",
    "is_xla_installed",
]


class MissingConditionalImportError(ImportError):
    """A feature needs a package that comes with an extra.

    Args:
        extra_deps_group: The extra.
        conda_package: The missing package.
        conda_channel: The conda channel that has it, or ``None`` if there is none.
        distribution: The distribution that offers the extra.

    Example:
        >>> print(MissingConditionalImportError("progress", "tqdm"))
        The package "tqdm" is not installed. To install it: pip install "composer-full[progress]"
    """

    def __init__(
        self,
        extra_deps_group: str,
        conda_package: str,
        conda_channel: str | None = "conda-forge",
        *,
        distribution: str = "composer-full",
    ) -> None:
        self.extra_deps_group = extra_deps_group
        self.conda_package = conda_package
        self.conda_channel = conda_channel
        self.distribution = distribution
        super().__init__(
            f'The package "{conda_package}" is not installed. To install it: '
            f'pip install "{self.distribution}[{extra_deps_group}]"',
            name=conda_package,
        )


def import_object(name: str) -> Any:
    """Import an object by a string.

    Args:
        name: ``package.module:object`` or ``package.module:object.attribute``.

    Returns:
        The object.

    Raises:
        ValueError: If the string has not this form.
        AttributeError: If the module has no such object.

    Example:
        >>> import_object("math:sqrt")(9)
        3.0
    """
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        raise ValueError(
            f"name={name!r} must have the form 'package.module:object', as in 'math:sqrt'."
        )
    found: Any = importlib.import_module(module_name)
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            hint = did_you_mean(part, [known for known in dir(found) if not known.startswith("_")])
            raise AttributeError(f"name={name!r}: {found!r} has no {part!r}.{hint}") from None
    return found


def is_xla_installed() -> bool:
    """Tell whether torch's XLA package is installed, without importing it.

    Returns:
        True if it is.

    Example:
        >>> isinstance(is_xla_installed(), bool)
        True
    """
    return importlib.util.find_spec("torch_xla") is not None


def is_hpu_installed() -> bool:
    """Tell whether the package for Gaudi accelerators is installed, without importing it.

    Returns:
        True if it is.

    Example:
        >>> isinstance(is_hpu_installed(), bool)
        True
    """
    return importlib.util.find_spec("habana_frameworks") is not None
