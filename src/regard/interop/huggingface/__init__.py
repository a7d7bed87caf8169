"""Folders of Hugging Face's `save_pretrained`: what every kind of model there has in common.

Each kind has a room of its own beside this one, `regard.interop.marian` and `regard.interop.t5`; `opening` tells them
apart. None needs transformers.
"""
