"""A run that is shorter or longer than planned, with its schedules."""

from __future__ import annotations

from composer.algorithms.scale_schedule.algorithm import ScaleSchedule
from composer.algorithms.scale_schedule.functional import scale_schedule

__all__ = ["ScaleSchedule", "scale_schedule"]
