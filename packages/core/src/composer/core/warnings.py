"""Warning categories that tests and users filter on."""

from __future__ import annotations

__all__ = ["NoEffectWarning", "NotIntendedUseWarning"]


class NotIntendedUseWarning(UserWarning):
    """A combination that runs but is not what the methods were made for.

    Example:
        >>> issubclass(NotIntendedUseWarning, UserWarning)
        True
    """


class NoEffectWarning(UserWarning):
    """A method found nothing to change, so it has no effect on this model.

    Example:
        >>> issubclass(NoEffectWarning, UserWarning)
        True
    """
