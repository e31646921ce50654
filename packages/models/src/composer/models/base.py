"""Where scripts written for Composer 0.32 look for :class:`composer.core.model.ComposerModel`."""

from __future__ import annotations

from composer.core.model import ComposerModel

__all__ = ["ComposerModel"]
