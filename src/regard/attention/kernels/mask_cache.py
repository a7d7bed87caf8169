"""A cache of small dense masks, as every layer uses the same ones; it lives as long as the mask."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch

from regard.attention.masks import Mask
from regard.attention.masks.positions import Band
from regard.attention.masks.sequences import Padding
from regard.attention.shapes import Frame
from regard.loops.availability import transformed

SMALL = 1 << 20  # booleans up to which a form is cached
FORMS = 8  # of one mask

Form = TypeVar("Form")
_forms: WeakKeyDictionary[Mask, dict[Hashable, Any]] = WeakKeyDictionary()


def cached(mask: object, frame: Frame, kind: Hashable, make: Callable[[], Form]) -> Form:
    """The result of `make`, from the cache if it is there; for padding and bands on a processor only.

    On a GPU a form is filled by one stream: another stream may still find it empty, and a captured
    graph fills it when it is replayed.
    """
    if not isinstance(mask, Padding | Band) or _size(mask, frame) > SMALL:
        return make()
    if frame.device.type != "cpu" or transformed():
        return make()
    forms = _forms.setdefault(mask, {})
    key = (kind, frame, _numbers(mask))
    form: Form | None = forms.get(key)
    if form is None:
        if len(forms) >= FORMS:
            forms.clear()
        with torch.inference_mode(False):  # so that it may be kept for a backward pass
            form = forms[key] = make()
    return form


def _size(mask: Padding | Band, frame: Frame) -> int:
    rows = mask.lengths.numel() if isinstance(mask, Padding) else frame.queries
    return rows * frame.keys


def _numbers(mask: Padding | Band) -> Hashable:
    """The numbers in the mask's tensor: they change when anyone writes to it."""
    return tuple(mask.lengths.flatten().tolist()) if isinstance(mask, Padding) else None
