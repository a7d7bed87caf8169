"""Triton kernels for additive attention on a GPU."""
