"""Pictures, terminal drawings and pages of attention weights.

Matplotlib and rich are imported by the functions that draw, so importing this package is quick.
"""
