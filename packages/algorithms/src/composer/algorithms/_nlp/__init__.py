"""What the methods for text share: who knows a kind of module, and sequences of another length."""

from __future__ import annotations
