"""The parts of `regard evaluate`."""
