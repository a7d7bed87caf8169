"""The work on single queries and keys that a reading and a look have in common."""

from dataclasses import replace

import torch

from regard.attention.kernels.request import Request
from regard.attention.kernels.zeroed import are_finite
from regard.attention.normalisers import Hard
from regard.attention.products import HALVES
from regard.attention.scores.score import prepare_both


def shared(request: Request) -> Request:
    """The request with the score's work on single queries and keys done once, for reading and look.

    In half precision nothing is shared, as a look is computed in float32. It
    is not shared either where NaN in a masked key would spoil its gradients, nor where a hard choice
    compares the keys as they are.
    """
    if isinstance(request.normaliser, Hard):
        return request
    if request.query.dtype in HALVES or torch.is_autocast_enabled(request.query.device.type):
        return request
    score, query, key = prepare_both(request.score, request.query, request.key)
    if score is request.score:
        return request
    if request.is_checked and not are_finite(request.query, request.key):
        return request
    return replace(request, score=score, query=query, key=key)
