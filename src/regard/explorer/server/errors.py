"""Refusals: the fault of a request, as a status and one sentence."""


class Refused(Exception):
    """A request that is not served; the reason is one sentence, with the field and what would be right."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason
