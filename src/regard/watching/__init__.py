"""Observe the attention of any PyTorch model while it runs, and run it with edited attention."""

from regard.watching import edits
from regard.watching.change import change
from regard.watching.errors import WatchError
from regard.watching.functions import declare
from regard.watching.seen import Seen
from regard.watching.watch import watch

__all__ = ["Seen", "WatchError", "change", "declare", "edits", "watch"]
