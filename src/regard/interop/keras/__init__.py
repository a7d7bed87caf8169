"""Keras 3's attention layers as scores and modules of ours, and back, by their arrays: no Keras is imported to do it.

A `KerasLayer` is what a layer of Keras says of itself: its class, its configuration and its weights in its own order.
`from_keras` takes one, or a layer; `to_keras` gives one, and `KerasLayer.build` makes the layer of it.

Keras' masks have our polarity: True = may be read. Its layers are called with (query, value, key), ours with
(query, key, value).
"""

from regard.interop.keras.reading import KerasLayer, from_keras
from regard.interop.keras.writing import to_keras

__all__ = ["KerasLayer", "from_keras", "to_keras"]
