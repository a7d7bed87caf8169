"""Fused kernels for additive attention: compiled loops on a processor, Triton on a GPU."""
