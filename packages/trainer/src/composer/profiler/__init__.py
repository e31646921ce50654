"""Profiling: the room for what comes with the profiler."""
