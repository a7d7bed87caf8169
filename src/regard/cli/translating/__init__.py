"""The parts of `regard translate`."""
