"""Names of attentions: the path of the module, or a short name of layer and kind."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

SIDES = ("encoder", "decoder")
CROSSING = re.compile(r"cross|encoder_attn|enc_?dec|multihead_attn$|(^|\.)src_attn", re.IGNORECASE)
WITHIN = re.compile(r"(\bblock\.\d+)\.layer\.\d+")
ATTENTIVE = re.compile(r"attention|attn", re.IGNORECASE)

Layers = int | str | Iterable[int | str] | None


def short(path: str, kind: str) -> str:
    """ "decoder.3.cross" of "model.decoder.layers.3.encoder_attn": side, numbers and kind.

    The numbers of sublayers in T5's blocks are left out. Only the first of several sides is used.

    Example:
        >>> short("model.decoder.layers.3.encoder_attn", "cross")
        'decoder.3.cross'
        >>> short("model.layers.0.self_attn", "self")
        'layer.0.self'
        >>> short("decoder.block.3.layer.1.EncDecAttention", "cross")
        'decoder.3.cross'
    """
    parts = [part for part in WITHIN.sub(r"\1", path).split(".") if part and part[0] != "_"]
    numbers = [part for part in parts if part.isdecimal()]
    if not numbers:
        return ".".join([*parts, kind])
    side = next((part for part in parts if part in SIDES), "layer")
    return ".".join([side, *numbers, kind])


def chosen(path: str, name: str, layers: Layers) -> bool:
    """Whether a path or name matches the `layers` argument: numbers, the first in a path, or patterns with *."""
    if layers is None:
        return True
    if isinstance(layers, int | str):
        layers = (layers,)
    number = next((int(part) for part in path.split(".") if part.isdecimal()), None)
    return any(
        number == each
        if isinstance(each, int)
        else any(
            fnmatchcase(own, pattern) for own in (path, name) for pattern in (each, f"{each}.*")
        )
        for each in layers
    )
