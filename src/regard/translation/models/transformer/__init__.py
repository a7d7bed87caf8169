"""The Transformer: its layers, the state of its decoder, and the model."""
