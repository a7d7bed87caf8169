"""What a watch cannot do, and why."""

from __future__ import annotations

from regard.errors import RegardError


class WatchError(RegardError):
    """There is no look to give: the message says what was not seen, why, and what to do."""
