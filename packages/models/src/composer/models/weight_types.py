"""Names of the types that floating point weights may be written in.

Without torch: a command declares its options before it imports anything large.
"""

from __future__ import annotations

__all__ = ["WEIGHT_TYPES"]

#: The names, as torch has them.
WEIGHT_TYPES = ("float64", "float32", "float16", "bfloat16")
