"""The doors to transformers and peft: imported when they are used, named when they are missing."""

from __future__ import annotations

from typing import Any

from composer.utils.imports import MissingConditionalImportError

__all__ = ["import_peft", "import_transformers", "not_found_errors", "transformers_before_5"]


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


def not_found_errors() -> tuple[type[Exception], ...]:
    """List what transformers raises for a name that is neither a folder nor on the Hub.

    Returns:
        The classes, for an ``except``.

    Raises:
        MissingConditionalImportError: If transformers is not installed.

    Example:
        >>> OSError in not_found_errors()
        True
    """
    import_transformers()
    from huggingface_hub.errors import HFValidationError

    # Before transformers 5, a path that does not exist is refused as a name of the Hub's, by an
    # error of the Hub's own.
    return OSError, HFValidationError


def transformers_before_5() -> bool:
    """Say whether the transformers that is installed is of a release before 5.

    Returns:
        Whether it is.

    Raises:
        MissingConditionalImportError: If transformers is not installed.

    Example:
        >>> transformers_before_5() == (int(import_transformers().__version__.split(".")[0]) < 5)
        True
    """
    return int(import_transformers().__version__.split(".")[0]) < 5
