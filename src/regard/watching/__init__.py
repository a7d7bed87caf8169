"""Looks at the attention inside any PyTorch model, which computes what it would have computed unwatched."""

from regard.watching.declaring import declare
from regard.watching.errors import WatchError
from regard.watching.seen import Seen
from regard.watching.watch import watch

__all__ = ["Seen", "WatchError", "declare", "watch"]
