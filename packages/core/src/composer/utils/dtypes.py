"""Short names of floating-point types."""

from __future__ import annotations

import torch

__all__ = ["STR_TO_DTYPE"]

#: Name to torch type.
STR_TO_DTYPE: dict[str, torch.dtype] = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
