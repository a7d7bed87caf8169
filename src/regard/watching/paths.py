"""The names of attentions, made from the paths of their modules, and which of them `layers` selects."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

SIDES, KINDS = ("encoder", "decoder"), ("self", "cross", "causal")
WITHIN = re.compile(r"(\bblock\.\d+)\.layer\.\d+")
ATTENTION = re.compile(r"#\d+")  # its number in a module that has several
WILDCARD = re.compile(r"[*?[]")
Layers = int | str | Iterable[int | str] | None


@lru_cache(maxsize=4096)  # each look at an attention asks for the names of all
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
        >>> short("layers.0#1", "self")
        'layer.0#1.self'
    """
    steps = [step for step in WITHIN.sub(r"\1", path).split(".") if step and step[0] != "_"]
    numbers = [step for step in steps if step.partition("#")[0].isdecimal()]
    if not numbers:
        return ".".join([*steps, kind])
    side = next((step for step in steps if step in SIDES), "layer")
    return ".".join([side, *numbers, kind])


def in_tower(path: str, kind: str) -> str:
    """The short name with the first step of the path in place of the side.

    >>> in_tower("vision_model.encoder.layers.3.self_attn", "self")
    'vision_model.3.self'
    """
    return ".".join([path.partition(".")[0], *short(path, kind).split(".")[1:]])


def matches(path: str, name: str, layers: Layers) -> bool:
    """Whether a path or name matches the `layers` argument: numbers, the first in a path, or patterns.

    A pattern with a wildcard is for all attentions of a module, unless it has a "#" itself.

    Example:
        >>> second = "layers.0#1", "layer.0#1.self"
        >>> [matches(*second, each) for each in (0, "layer.0.*", "layers.0", "layer.0#1.self")]
        [True, True, True, True]
        >>> matches(*second, "layer.0.self")
        False
    """
    if layers is None:
        return True
    if isinstance(layers, int | str):
        layers = (layers,)
    steps = ATTENTION.sub("", path).split(".")
    number = next((int(step) for step in steps if step.isdecimal()), None)
    return any(
        number == layer
        if isinstance(layer, int)
        else any(_fits(label, layer) for label in (path, name))
        for layer in layers
    )


def _fits(label: str, pattern: str) -> bool:
    if "#" not in pattern and WILDCARD.search(pattern):
        label = ATTENTION.sub("", label)
    return any(fnmatchcase(label, each) for each in (pattern, f"{pattern}.*", f"{pattern}#*"))


def exactly(path: str) -> str:
    """The pattern of one attention, without others of its module and those of modules inside.

    >>> [exactly(path) for path in ("", "layers.0", "layers.0#1")]
    ['#0', 'layers.0#0', 'layers.0#1']
    """
    return path if "#" in path else f"{path}#0"


def is_selected(path: str, layers: Layers) -> bool:
    """Whether an attention of any kind at this path matches the `layers` argument."""
    if layers is None:
        return True
    names = (name(path, kind) for name in (short, in_tower) for kind in KINDS)
    return any(matches(path, name, layers) for name in (*names, exactly(path)))
