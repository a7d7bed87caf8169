"""Memories: keys and values to be read by queries."""
