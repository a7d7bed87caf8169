"""The library: scores, normalisers, masks, the kernels that serve them, and looks."""
