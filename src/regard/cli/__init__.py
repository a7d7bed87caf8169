"""The commands: each file parses, calls the other wings and prints.

Nothing here imports torch when it is imported, so that `regard --help` answers at once.
"""
