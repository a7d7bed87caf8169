"""Whether a call with one query continues an earlier one: its place in the code, and its keys."""

import sys

import torch
from torch import Tensor, nn

Site = tuple[tuple[object, int], ...]


def call_site(depth: int = 2) -> Site:
    """The lines that lead from the `forward` of the running module to the attention function.

    A loop calls the attention from the same lines at every step.

    Args:
        depth: how many frames the attention function's own code adds.
    """
    site, frame = [], sys._getframe(depth)
    while frame.f_back is not None and frame.f_code.co_filename != nn.modules.module.__file__:
        site.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(site)


def grows(previous: Tensor, newest: Tensor, count: int, key: Tensor) -> bool | None:
    """True if a cache of `count` keys gained one, False if it is the same, None if it is another one.

    Args:
        previous: the keys of the call before; it may have been written to since.
        newest: their last key, as it was then.
        count: their number.
        key: the keys of this call.
    """
    more = key.shape[-2]
    if key.shape[:-2] != previous.shape[:-2] or key.shape[-1] != previous.shape[-1]:
        return None
    if more == count + 1:
        # The last key but one of each entry is the newest key of some entry before.
        same = key[..., -2:-1, :][:, None] == newest[None]
        return True if bool(same.flatten(2).all(-1).any(1).all()) else None
    if more != count:
        return None
    if key.data_ptr() == previous.data_ptr() or torch.equal(key, previous):
        return False
    moved = more > 1 and torch.equal(key[..., :-1, :], previous[..., 1:, :])
    return True if moved else None
