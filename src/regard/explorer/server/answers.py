"""What all routes share: the fields that name a run, and answers that the server's thread computes."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from torch import Tensor

from regard.explorer.contract import Attention
from regard.explorer.server.edits import PATH
from regard.explorer.server.models import Models
from regard.explorer.server.runs import Run, Runs
from regard.serving import fields
from regard.serving.work import SECONDS, Task, Work

HEAD = ("run", "attention", "head")  # fields that name a head of a run
BINARY = "application/octet-stream"
Options = Mapping[str, Any]


class Answers:
    """Answers about runs. `seconds` bounds how long a request waits and computes; None: while its client waits."""

    seconds: float | None = SECONDS

    def __init__(self, models: Models, runs: Runs, work: Work) -> None:
        self.models, self.runs, self.work = models, runs, work

    def run(self, options: Options, name: str = "run") -> Run:
        return self.runs[fields.text(options, name, 100)]

    def attention(self, options: Options) -> Attention:
        return self.run(options).attention(fields.text(options, "attention", PATH))

    async def binary(self, request: Request, call: Callable[[Task], bytes]) -> Response:
        return Response(await self.work.run(request, call, self.seconds), media_type=BINARY)

    async def json(self, request: Request, call: Callable[[Task], Any]) -> Response:
        return JSONResponse(_strict(await self.work.run(request, call, self.seconds)))


def floats(numbers: Tensor) -> bytes:
    """The numbers as float32, little endian."""
    return np.asarray(numbers.float().cpu().numpy(), "<f4").tobytes()


def _strict(content: Any) -> Any:
    """The content with null for numbers that JSON does not have."""
    if isinstance(content, float):
        return content if abs(content) < float("inf") else None
    if isinstance(content, dict):
        return {name: _strict(each) for name, each in content.items()}
    return [_strict(each) for each in content] if isinstance(content, list | tuple) else content
