"""The page on which a person types."""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FILES = {
    "/": ("index.html", "text/html"),
    "/translate.js": ("translate.js", "text/javascript"),
    "/translate.css": ("translate.css", "text/css"),
}


async def _answer(request: Request) -> Response:
    name, media_type = _FILES[request.url.path]
    return Response((Path(__file__).parent / name).read_bytes(), media_type=media_type)


ROUTES = [Route(path, _answer, methods=["GET"]) for path in _FILES]
