"""Small dense masks, kept as long as the rule they come from: every layer asks for the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch

from regard.attention.masks import Mask
from regard.attention.masks.padding import Padding
from regard.attention.masks.positions import Band
from regard.attention.shapes import Frame

SMALL = 1 << 20  # pairs of query and key up to which a form is kept
FORMS = 8  # of one mask

Form = TypeVar("Form")
_kept: WeakKeyDictionary[Mask, dict[Hashable, Any]] = WeakKeyDictionary()


def kept(mask: object, frame: Frame, kind: Hashable, make: Callable[[], Form]) -> Form:
    """What `make` makes of a mask, or made of it before; padding and bands only."""
    if not isinstance(mask, Padding | Band) or frame.queries * frame.keys > SMALL:
        return make()
    if transformed() or (isinstance(mask, Padding) and mask.lengths.is_inference()):
        return make()
    changes = mask.lengths._version if isinstance(mask, Padding) else 0
    forms = _kept.setdefault(mask, {})
    key = (kind, frame, changes)
    if key not in forms:
        if len(forms) >= FORMS:
            forms.clear()
        with torch.inference_mode(False):  # so that it may be kept for a backward pass
            forms[key] = make()
    form: Form = forms[key]
    return form


def transformed() -> bool:
    """Whether a compiler or transform looks on, so that no number can be asked for."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
