"""The error of this package."""

from regard.errors import RegardError


class WatchError(RegardError):
    """No look is available: the message says which attention was not seen, why, and what to do."""
