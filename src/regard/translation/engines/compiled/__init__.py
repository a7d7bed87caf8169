"""Compiled search: a Transformer's weights in one array, its encoder and a decoder step each one compiled call."""
