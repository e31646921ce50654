"""Compilation of the model, at the right place among the methods."""

from __future__ import annotations

from composer.algorithms.compile.algorithm import Compile
from composer.algorithms.compile.functional import apply_compile

__all__ = ["Compile", "apply_compile"]
