"""The channels-last memory format."""

from __future__ import annotations

from composer.algorithms.channels_last.algorithm import ChannelsLast
from composer.algorithms.channels_last.functional import apply_channels_last

__all__ = ["ChannelsLast", "apply_channels_last"]
