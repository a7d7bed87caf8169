"""The routes of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import torch
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from regard.errors import RegardError
from regard.explorer import page, translating
from regard.explorer.contract import Scene, pack
from regard.explorer.server import fields
from regard.explorer.server.errors import Refused
from regard.explorer.server.guard import Guard
from regard.explorer.server.models import Models
from regard.explorer.server.runs import Run, Runs
from regard.explorer.server.work import Cancelled, Work

TEXT = 4000  # characters of a sentence
BINARY = "application/octet-stream"


class Explorer:
    """The state of one server, and its answers."""

    def __init__(self, models: Models, scene: Scene | None = None) -> None:
        self.models, self.runs, self.work = models, Runs(), Work()
        self.scene = scene

    async def page(self, request: Request) -> Response:
        return Response(page.served(self.models.names), media_type="text/html")

    async def script(self, request: Request) -> Response:
        return Response(page.part("explorer.js"), media_type="text/javascript")

    async def style(self, request: Request) -> Response:
        return Response(page.part("explorer-style.css") + page.AROUND, media_type="text/css")

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def translate(self, request: Request) -> Response:
        given = fields.parse(await request.body())
        fields.known(given, "model", "text", "prefix")
        model = fields.text(given, "model", 200)
        text = fields.text(given, "text", TEXT)
        prefix = fields.text(given, "prefix", TEXT, "")

        def call(check: Callable[[], None]) -> bytes:
            scene = translating.explore(self.models.open(model), text, prefix, model)
            check()
            return pack(scene, self.runs.add(Run(scene, model)))

        return await self._binary(request, call)

    async def row(self, request: Request) -> Response:
        """The weights of one query, float32; NaN where a key may not be read."""
        given = request.query_params
        attention = self.runs[given.get("run", "")].attention(given.get("attention", ""))
        heads, queries, _ = attention.shape
        head = fields.whole(given, "head", -1, heads - 1)
        query = fields.whole(given, "query", 0, queries - 1)

        def call(check: Callable[[], None]) -> bytes:
            with torch.no_grad():
                look = attention.look
                weights = look.weights(rows=[query]).reshape(heads, -1)
                readable = look.readable(rows=[query])
            if readable is not None:
                weights = weights.masked_fill(~readable.reshape(heads, -1), torch.nan)
            chosen = weights[head] if head >= 0 else weights.nanmean(0)
            return np.asarray(chosen.float().cpu().numpy(), "<f4").tobytes()

        return await self._binary(request, call)

    async def _binary(
        self, request: Request, call: Callable[[Callable[[], None]], bytes]
    ) -> Response:
        return Response(await self.work.run(request, call), media_type=BINARY)

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        self.work.close()


def application(explorer: Explorer, hosts: list[str]) -> Starlette:
    """The application of an explorer, for these values of the Host header."""
    return Starlette(
        routes=[
            Route("/", explorer.page),
            Route("/explorer.js", explorer.script),
            Route("/explorer.css", explorer.style),
            Route("/healthz", explorer.health),
            Route("/api/translate", explorer.translate, methods=["POST"]),
            Route("/api/row", explorer.row),
        ],
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers={
            Refused: _refused,
            RegardError: _mistake,
            Cancelled: _gone,
            HTTPException: _http,
            Exception: _fault,
        },
        lifespan=explorer.lifespan,
    )


def _refused(request: Request, fault: Any) -> Response:
    headers = {"Retry-After": "1"} if fault.status == 503 else None
    return JSONResponse({"error": fault.reason}, fault.status, headers)


def _mistake(request: Request, fault: Exception) -> Response:
    return JSONResponse({"error": str(fault)}, 422)


def _gone(request: Request, fault: Exception) -> Response:
    return Response(status_code=499)


def _http(request: Request, fault: Any) -> Response:
    return JSONResponse({"error": fault.detail}, fault.status_code)


def _fault(request: Request, fault: Exception) -> Response:
    return JSONResponse({"error": "the server failed at this request; its terminal says why"}, 500)
