"""Pictures and terminal drawings of attention weights.

Matplotlib is imported by `canvas` and the modules that draw with it, rich by the functions that draw.
"""
