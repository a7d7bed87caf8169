"""Observe the attention of any PyTorch model while it runs, without changing its output."""

from regard.watching.declaring import declare
from regard.watching.errors import WatchError
from regard.watching.seen import Seen
from regard.watching.watch import watch

__all__ = ["Seen", "WatchError", "declare", "watch"]
