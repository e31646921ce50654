"""Wrapping models for many ranks: the room for what comes with training on many ranks."""
