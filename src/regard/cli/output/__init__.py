"""Output of the commands: text, tables, JSON, progress and drawings."""
