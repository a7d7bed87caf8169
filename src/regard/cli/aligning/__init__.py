"""The parts of `regard align`."""
