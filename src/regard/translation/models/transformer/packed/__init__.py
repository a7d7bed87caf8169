"""Training on the words alone: sentences end to end, no padding, the steps between products fused."""

from regard.translation.models.transformer.packed.forward import hidden, serves

__all__ = ["hidden", "serves"]
