"""Conversion of torch's attention and Transformer layers to ours and back; the outputs stay the same."""

from regard.interop.torch.attention import masks_from_torch
from regard.interop.torch.convert import (
    DecoderStack,
    EncoderDecoder,
    EncoderStack,
    from_torch,
    to_torch,
)

__all__ = [
    "DecoderStack",
    "EncoderDecoder",
    "EncoderStack",
    "from_torch",
    "masks_from_torch",
    "to_torch",
]
