"""Triton kernels for a GPU: a softmax over additive scores, or over dot products under a mask."""
