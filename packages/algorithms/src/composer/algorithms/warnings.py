"""Warning categories of methods, where users import them from."""

from __future__ import annotations

from composer.core.warnings import NoEffectWarning, NotIntendedUseWarning

__all__ = ["NoEffectWarning", "NotIntendedUseWarning"]
