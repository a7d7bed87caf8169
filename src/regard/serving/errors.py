"""Refusals, and the answer of a server to each kind of failure: a status and one sentence in JSON."""

from collections.abc import Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from regard.errors import RegardError

FAULT = "the server failed at this request; its terminal says why"


class Refused(Exception):
    """A request that is not served; the reason is one sentence, with the field and what would be right."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Cancelled(Exception):
    """The client left, so its work stops."""


def answer(reason: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """The sentence that says why a request is not served; clients that were too many may come again."""
    more = {"Retry-After": "1"} if status == 503 else {}
    return JSONResponse({"error": reason}, status, {**(headers or {}), **more})


# As Starlette takes them.
HANDLERS: Mapping[Any, Callable[[Request, Any], Response]] = {
    Refused: lambda _, fault: answer(fault.reason, fault.status),
    RegardError: lambda _, fault: answer(str(fault), 422),
    Cancelled: lambda *_: Response(status_code=499),
    HTTPException: lambda _, fault: answer(fault.detail, fault.status_code, fault.headers),
    Exception: lambda *_: answer(FAULT, 500),
}
