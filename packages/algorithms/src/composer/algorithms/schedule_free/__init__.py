"""Training without a schedule for the learning rate."""

from __future__ import annotations

from composer.algorithms.schedule_free.algorithm import ScheduleFree
from composer.algorithms.schedule_free.functional import averaged_weights, make_schedule_free

__all__ = ["ScheduleFree", "averaged_weights", "make_schedule_free"]
