"""What people look at: pictures, terminal drawings and pages of what attention looked at.

The wing reads looks and readings and changes nothing. Matplotlib and rich are imported where
something is drawn, so that importing this package costs nothing.
"""
