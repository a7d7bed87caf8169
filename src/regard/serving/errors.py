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

    def __init__(self, status: int, reason: str, retry_after: int = 1) -> None:
        """With status 503 the client may come again after so many seconds."""
        super().__init__(reason)
        self.status, self.reason, self.retry_after = status, reason, retry_after


class Cancelled(Exception):
    """The client left, so its work stops."""


def refusal(
    reason: str, status: int, headers: Mapping[str, str] | None = None, retry_after: int = 1
) -> Response:
    """The answer with the sentence that says why a request is not served."""
    more = {"Retry-After": str(retry_after)} if status == 503 else {}
    return JSONResponse({"error": reason}, status, {**(headers or {}), **more})


async def client_leaves(request: Request) -> None:
    """Wait until the client of a request has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


# As Starlette takes them.
HANDLERS: Mapping[Any, Callable[[Request, Any], Response]] = {
    Refused: lambda _, fault: refusal(fault.reason, fault.status, None, fault.retry_after),
    RegardError: lambda _, fault: refusal(str(fault), 422),
    Cancelled: lambda *_: Response(status_code=499),
    HTTPException: lambda _, fault: refusal(fault.detail, fault.status_code, fault.headers),
    Exception: lambda *_: refusal(FAULT, 500),
}
