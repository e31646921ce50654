"""Short sequences first (Li et al., 2021)."""

from __future__ import annotations

from composer.algorithms.seq_length_warmup.algorithm import SeqLengthWarmup
from composer.algorithms.seq_length_warmup.functional import (
    sequence_length_at,
    set_batch_sequence_length,
)

__all__ = ["SeqLengthWarmup", "sequence_length_at", "set_batch_sequence_length"]
