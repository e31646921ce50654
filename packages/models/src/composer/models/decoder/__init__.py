"""A decoder-only transformer as it is built today, in parts that can be read one by one.

Norm before each branch (RMSNorm, Zhang and Sennrich 2019), rotary positions (Su et al. 2021),
grouped queries (Ainslie et al. 2023), gated feed-forward layers (SwiGLU, Shazeer 2020), no biases.
"""

from __future__ import annotations

from composer.models.decoder.factory import composer_decoder
from composer.models.decoder.network import Decoder, DecoderConfig

__all__ = ["Decoder", "DecoderConfig", "composer_decoder"]
