"""Warnings about what will be removed."""

from __future__ import annotations

__all__ = ["VersionedDeprecationWarning"]


class VersionedDeprecationWarning(DeprecationWarning):
    """A deprecation that names the version which removes the thing.

    Args:
        message: What to use instead.
        remove_version: The version.

    Example:
        >>> print(VersionedDeprecationWarning("Use b instead of a.", "1.0"))
        Use b instead of a. It will be removed in version 1.0.
    """

    def __init__(self, message: str, remove_version: str) -> None:
        super().__init__(f"{message} It will be removed in version {remove_version}.")
