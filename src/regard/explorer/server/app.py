"""The routes of the server."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from math import prod
from typing import Any

import torch
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from regard.attention.shapes import ShapeError
from regard.errors import memory_named
from regard.explorer import page, scenes, translating
from regard.explorer.contract import DEEP, Scene, pack
from regard.explorer.prompting import LanguageModel
from regard.explorer.server.answers import BINARY, HEAD, Answers, Options, floats
from regard.explorer.server.edits import edit, edits_of, reduction
from regard.explorer.server.models import Models
from regard.explorer.server.opening import Opened, Opening
from regard.explorer.server.prompts import Prompts
from regard.explorer.server.runs import Run, Runs
from regard.explorer.tiles import SIZE, Tiles
from regard.serving import fields, listening
from regard.serving.errors import HANDLERS, Refused
from regard.serving.guard import Guard
from regard.serving.stopping import stoppable
from regard.serving.work import Task, Work
from regard.translation.evaluation.alignment import Link, parse_links
from regard.translation.evaluation.gold import Gold

TEXT = 4000  # characters of a sentence
TERMS, GLOSSARY = 1000, 20_000  # of a glossary, and its characters
LINES = 8  # sentences of a request that asks for translations alone


class Explorer(Answers):
    """The state of one server, and its answers."""

    def __init__(
        self,
        models: Models,
        scene: Scene | None = None,
        gold: Gold | None = None,
        languages: Sequence[LanguageModel] = (),
        opening: Opening | None = None,
    ) -> None:
        """`gold` has sentences, their translations and the links of their words; `languages` read prompts.

        What `opening` opens is added with `add`; until then the page says what it waits for.
        """
        super().__init__(models, Runs(), Work())
        self.scene, self.gold, self.opening = scene, gold, opening
        self.prompts = Prompts(languages, self.models, self.runs, self.work)

    def add(self, subject: Opened) -> None:
        """Show a model that was opened."""
        if subject.language is not None:
            self.prompts.languages[subject.language.name] = subject.language
        self.scene = subject.scene or self.scene

    async def page(self, request: Request) -> Response:
        if self.opening is not None and not self.opening.done:
            return Response(self.opening.page(), media_type="text/html")
        names, trains = self.models.names, self.models.trains
        languages = list(self.prompts.languages)
        content = page.served(
            names, self.scene is not None, trains, self.gold is not None, languages
        )
        return Response(content, media_type="text/html")

    async def start(self, request: Request) -> Response:
        """The scene that the server was started with."""
        fields.query(request.query_params)
        if self.scene is None:
            raise Refused(404, "this server was started with models alone")
        scene = self.scene

        def call(check: Task) -> bytes:
            with memory_named(f"while drawing {scene.title}", "the number of its heads or tokens"):
                return pack(scene, self.runs.add(Run(scene)))

        return await self.binary(request, call)

    async def script(self, request: Request) -> Response:
        return Response(page.built_file("explorer.js"), media_type="text/javascript")

    async def style(self, request: Request) -> Response:
        return Response(page.built_file("explorer-style.css") + page.AROUND, media_type="text/css")

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def model_names(self, request: Request) -> Response:
        """The names of the models; while a model is trained, its checkpoints change."""
        fields.query(request.query_params)
        return JSONResponse({"models": self.models.names})

    async def translate(self, request: Request) -> Response:
        options = fields.parse(await request.body(), "model", "text", "prefix", "links")
        model = fields.text(options, "model", 200)
        text = fields.text(options, "text", TEXT)
        prefix = fields.text(options, "prefix", TEXT, "")
        links, _ = parse_links(fields.text(options, "links", TEXT, ""))

        def call(check: Task) -> bytes:
            exact = self.models.exact(model)
            scene, translation = translating.explore(
                self.models.open(exact), text, prefix, exact, check=check
            )
            check()
            if links:
                scene = _linked(scene, links)
            return pack(scene, self.runs.add(Run(scene, exact, translation)))

        return await self.binary(request, call)

    async def printed(self, request: Request) -> Response:
        """The translation of a line as `regard translate` prints it, with the terms of a glossary."""
        options = fields.parse(await request.body(), "model", "text", "glossary")
        model, text = fields.text(options, "model", 200), fields.text(options, "text", TEXT)
        glossary = fields.glossary(options, "glossary", TERMS, GLOSSARY)

        def call(check: Task) -> dict[str, Any]:
            translator = self.models.open(self.models.exact(model))
            with stoppable(translator, check):
                return translating.printed(translator, text, glossary)

        return await self.json(request, call)

    async def gold_pairs(self, request: Request) -> Response:
        """The sentences with gold links, and their translations."""
        fields.query(request.query_params)
        pairs = (self.gold and self.gold.words) or []
        return JSONResponse({"pairs": [[" ".join(side) for side in pair] for pair in pairs]})

    async def pair(self, request: Request) -> Response:
        """One of these translations, as the model writes it."""
        options = fields.parse(await request.body(), "model", "pair")
        model, gold = fields.text(options, "model", 200), self.gold
        if gold is None:
            raise Refused(404, "this server was started without gold links")
        number = fields.integer(options, "pair", 0, len(gold) - 1)

        def call(check: Task) -> bytes:
            exact = self.models.exact(model)
            scene, translation = translating.of_gold(self.models.open(exact), gold, number, exact)
            return pack(scene, self.runs.add(Run(scene, exact, translation)))

        return await self.binary(request, call)

    async def lines(self, request: Request) -> Response:
        """The translations of a few lines, without their attention."""
        options = fields.parse(await request.body(), "model", "lines")
        model, lines = (
            fields.text(options, "model", 200),
            fields.texts(options, "lines", LINES, TEXT),
        )

        def call(check: Task) -> dict[str, list[str]]:
            translator = self.models.open(self.models.exact(model))
            translations = []
            for line in lines:
                check()
                translations += [
                    translation.text
                    for translation in translator.translate([line], whole_lines=True)
                ]
            return {"translations": translations}

        return await self.json(request, call)

    async def change(self, request: Request) -> Response:
        """Translate with edited attention, or with words exchanged (`text`), beside a run."""
        options = fields.parse(await request.body(), "run", "prefix", "edits", "text")
        run = self.run(options)
        if run.prompt is not None:
            return await self.prompts.change(request, run, run.prompt, options)
        if run.translation is None:
            raise Refused(400, "run: this run is not a translation")
        previous, model = run.translation, run.model
        prefix = fields.text(options, "prefix", TEXT, "")
        edits = edits_of(options.get("edits"), edit)
        text = fields.text(options, "text", TEXT) if "text" in options else None

        def call(check: Task) -> bytes:
            translator = self.models.open(model)
            scene, translation = translating.retranslated(
                translator, previous, edits, text, prefix, model, check
            )
            check()
            return pack(scene, self.runs.add(Run(scene, model, translation, edits)))

        return await self.binary(request, call)

    async def file(self, request: Request) -> Response:
        """The standalone page of a run, to save."""
        run = self.run(fields.query(request.query_params, "run"))
        if any(prod(one.shape) > DEEP for one in run.scene.attentions):
            raise Refused(
                422, f"an attention of more than {DEEP:,} weights does not go into a file"
            )
        return await self.binary(request, lambda check: page.render(run.scene).encode())

    async def numbers(self, request: Request) -> Response:
        """The arithmetic of one query of one head, and its score with one key."""
        options = fields.query(request.query_params, *HEAD, "query", "key")
        run, attention = self.run(options), self.attention(options)
        heads, queries, keys = attention.shape
        head = fields.integer(options, "head", 0, heads - 1)
        query = fields.integer(options, "query", 0, queries - 1)
        key = fields.integer(options, "key", 0, keys - 1)

        def call(check: Task) -> dict[str, Any]:
            return run.arithmetic(self.models).of(attention.name, head, query, key)

        return await self.json(request, call)

    async def row(self, request: Request) -> Response:
        """The weights of one query, float32; NaN where a key may not be read."""
        options = fields.query(request.query_params, *HEAD, "query")
        attention = self.attention(options)
        heads, queries, _ = attention.shape
        head = fields.integer(options, "head", -1, heads - 1)
        query = fields.integer(options, "query", 0, queries - 1)

        def call(check: Task) -> bytes:
            with torch.no_grad():
                look = attention.look
                weights = look.weights(rows=[query]).reshape(heads, -1)
                readable = look.readable(rows=[query])
            if readable is not None:
                weights = weights.masked_fill(~readable.reshape(heads, -1), torch.nan)
            return floats(weights[head] if head >= 0 else weights.nanmean(0))

        return await self.binary(request, call)

    async def received(self, request: Request) -> Response:
        """The mean of the weights of some queries, float32."""
        options = fields.query(request.query_params, *HEAD, "from", "to")
        tiles, queries = self._tiles(options), self.attention(options).shape[1]
        start = fields.integer(options, "from", 0, queries - 1)
        stop = fields.integer(options, "to", start, queries - 1)
        rows = range(start, stop + 1)
        return await self.binary(
            request, lambda check: floats(tiles.look.received(rows) / len(rows))
        )

    async def levels(self, request: Request) -> Response:
        """The sizes of the levels of a head's pyramid."""
        tiles = self._tiles(fields.query(request.query_params, *HEAD))
        strips = len(tiles.strips)
        return JSONResponse({"levels": [size._asdict() for size in tiles.levels], "strips": strips})

    async def tile(self, request: Request) -> Response:
        """A tile, float32; the header X-Exact says whether it comes from all cells."""
        options = fields.query(request.query_params, *HEAD, "level", "row", "column", "reduce")
        tiles = self._tiles(options)
        level = fields.integer(options, "level", 0, len(tiles.levels) - 1)
        size = tiles.levels[level]
        row = fields.integer(options, "row", 0, (size.rows - 1) // SIZE)
        column = fields.integer(options, "column", 0, (size.columns - 1) // SIZE)
        reduce = reduction(options)
        computed = await self.work.run(
            request, lambda check: tiles.tile(level, row, column, reduce)
        )
        return Response(
            floats(computed.numbers),
            media_type=BINARY,
            headers={"X-Exact": str(int(computed.exact))},
        )

    async def refine(self, request: Request) -> Response:
        """One part of the pass over all weights that makes the upper levels exact."""
        options = fields.parse(await request.body(), *HEAD, "strip", "reduce")
        tiles = self._tiles(options)
        if not tiles.strips:
            raise Refused(400, "attention: it is small, so that its tiles are exact at once")
        strip = fields.integer(options, "strip", 0, len(tiles.strips) - 1)
        reduce = reduction(options)
        await self.work.run(request, lambda check: tiles.add(strip, reduce))
        return JSONResponse({"done": strip + 1, "of": len(tiles.strips)})

    def _tiles(self, options: Options) -> Tiles:
        attention = self.attention(options)
        return self.runs.tiles(
            attention, fields.integer(options, "head", -1, attention.shape[0] - 1)
        )

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        self.work.close()


def application(explorer: Explorer, hosts: list[str]) -> Starlette:
    """The application of an explorer, for these values of the Host header."""
    prompts = explorer.prompts
    return Starlette(
        routes=[
            Route("/", explorer.page),
            Route("/explorer.js", explorer.script),
            Route("/explorer.css", explorer.style),
            Route("/healthz", explorer.health),
            Route("/api/scene", explorer.start),
            Route("/api/models", explorer.model_names),
            Route("/api/translate", explorer.translate, methods=["POST"]),
            Route("/api/printed", explorer.printed, methods=["POST"]),
            Route("/api/pairs", explorer.gold_pairs),
            Route("/api/pair", explorer.pair, methods=["POST"]),
            Route("/api/lines", explorer.lines, methods=["POST"]),
            Route("/api/change", explorer.change, methods=["POST"]),
            Route("/api/file", explorer.file),
            Route("/api/numbers", explorer.numbers),
            Route("/api/row", explorer.row),
            Route("/api/received", explorer.received),
            Route("/api/levels", explorer.levels),
            Route("/api/tile", explorer.tile),
            Route("/api/refine", explorer.refine, methods=["POST"]),
            Route("/api/prompt", prompts.prompt, methods=["POST"]),
            Route("/api/step", prompts.step, methods=["POST"]),
            Route("/api/moved", prompts.moved, methods=["POST"]),
            Route("/api/effects", prompts.effects, methods=["POST"]),
            Route("/api/direct", prompts.direct, methods=["POST"]),
            Route("/api/cell", prompts.cell, methods=["POST"]),
            Route("/api/picture", prompts.picture),
            Route("/api/measures", prompts.measures),
            Route("/api/rollout", prompts.rollout),
            Route("/api/progress", prompts.progress),
        ],
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers=HANDLERS,
        lifespan=explorer.lifespan,
    )


def serve(explorer: Explorer, port: int = 0, ready: Callable[[str], None] = print) -> None:
    """Serve an explorer until a signal comes (see `serving.listening.serve`).

    An error of a model that could not be opened is raised.
    """
    opening = explorer.opening
    started = None if opening is None else opening.begin
    listening.serve(partial(application, explorer), port, ready, started)
    if opening is not None and opening.fault is not None:
        raise opening.fault


def _linked(scene: Scene, links: set[Link]) -> Scene:
    try:
        return scenes.with_links(scene, links)
    except ShapeError as fault:
        raise Refused(400, f"links: {fault}") from None
