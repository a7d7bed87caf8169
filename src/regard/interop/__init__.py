"""Conversion of modules, weights and files of other projects to ours and back; outputs stay the same.

Each module handles one other project, and imports it only where a function needs it. Boolean masks are converted:
in this package True always means that a key may be read.
"""
