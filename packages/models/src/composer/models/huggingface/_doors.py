"""The doors to transformers and peft: imported when they are used, named when they are missing."""

from __future__ import annotations

from typing import Any

from composer.utils.imports import MissingConditionalImportError

__all__ = ["import_peft", "import_transformers"]


def import_transformers() -> Any:
    """Import transformers.

    Returns:
        The module.

    Raises:
        MissingConditionalImportError: If it is not installed.

    Example:
        >>> import_transformers().__name__
        'transformers'
    """
    try:
        import transformers
    except ImportError as error:
        raise MissingConditionalImportError(
            "huggingface", "transformers", distribution="composer-models"
        ) from error
    return transformers


def import_peft() -> Any:
    """Import peft.

    Returns:
        The module.

    Raises:
        MissingConditionalImportError: If it is not installed.

    Example:
        >>> import_peft().__name__
        'peft'
    """
    try:
        import peft
    except ImportError as error:
        raise MissingConditionalImportError(
            "huggingface", "peft", distribution="composer-models"
        ) from error
    return peft
