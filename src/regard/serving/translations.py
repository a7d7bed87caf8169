"""The routes of a server of translations: the API of LibreTranslate, a page, and counts for Prometheus."""

import asyncio
import hmac
from asyncio import FIRST_COMPLETED
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from time import monotonic
from typing import Any, TypeVar, cast

from starlette.applications import Starlette
from starlette.datastructures import QueryParams, UploadFile
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import ConfigurationError, library
from regard.serving import fields, page
from regard.serving.batches import Batches, Wish
from regard.serving.downloads import Downloads
from regard.serving.errors import HANDLERS, Cancelled, Refused, client_leaves
from regard.serving.fields import MOST_FIELDS
from regard.serving.guard import JSON, Guard
from regard.serving.metrics import Metrics
from regard.serving.pairs import AUTO, Guess, Pair, Pairs
from regard.serving.texts import PLAIN, Texts, details, of_file
from regard.translation.formats import FORMATS
from regard.translation.results import Translation
from regard.translation.text.glossary import Glossary

BODY = 4 * 2**20  # bytes of the largest request
ADDRESS = 24 * 1024  # bytes of the longest address: some clients send the text in it
CHARACTERS = 100_000  # of the texts of a request; files are bounded by their bytes
TEXTS = 1000  # of a request
TERMS = 1000  # of the glossary of a request
ALTERNATIVES = 20
QUEUE = 100  # requests that are translated or wait at a time
OTHERS = 32  # other requests at a time, so that a full queue does not hide that the server is well
FORM, FILES = "application/x-www-form-urlencoded", "multipart/form-data"

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """What a server is started with; each of its processes gets them.

    Attributes:
        models: bundled models' names or run folders.
        device: where to compute.
        hosts: the values of Host that are this server; None for any.
        keys: one of them must come with every request for work; without any, none is asked for.
        queue: requests that are translated or wait at a time.
        memories: folders of `regard remember`, each read by the model that made it.
        downloads: the folder of translated files; a server that is started with None makes one.
    """

    models: Sequence[str | Path]
    downloads: str | Path | None = None
    device: str = "cpu"
    hosts: Collection[str] | None = ()
    keys: Collection[str] = ()
    queue: int = QUEUE
    memories: Sequence[str | Path] = ()


class Translations:
    """The state of one process of a server, and its answers."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Raises as `Pairs`, for models that cannot be opened."""
        self._settings, self._metrics = settings, metrics
        self._pairs = Pairs(settings.models, settings.device, settings.memories)
        self._batches = Batches(self._pairs.translators, metrics)
        self._downloads = Downloads(Path(settings.downloads or gettempdir()))
        self._admitted = 0
        self._finished_at = [monotonic()] * 16  # of the last requests

    async def languages(self, request: Request) -> Response:
        """The languages, and into which ones each is translated."""
        return JSONResponse(self._pairs.languages)

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def frontend_settings(self, request: Request) -> Response:
        """What a page needs to know of this server."""
        keyed = bool(self._settings.keys)
        first_pair = next(iter(self._pairs.translators))
        names = {each["code"]: each["name"] for each in self._pairs.languages}
        return JSONResponse(
            {
                "apiKeys": keyed,
                "keyRequired": keyed,
                "charLimit": CHARACTERS,
                "frontendTimeout": 500,
                "suggestions": False,
                "filesTranslation": True,
                "supportedFilesFormat": [f".{ending}" for ending in (PLAIN, *FORMATS)],
                "language": {
                    "source": {"code": AUTO, "name": "Auto Detect"},
                    "target": {"code": first_pair.target, "name": names[first_pair.target]},
                },
            }
        )

    async def detect(self, request: Request) -> Response:
        """The languages that a text may be in."""
        options, _ = await self._options(request)
        guesses = self._pairs.detect(fields.text(options, "q", CHARACTERS))
        return JSONResponse([guess._asdict() for guess in guesses])

    async def translate(self, request: Request) -> Response:
        """Translate one text, or each of a list."""
        options, _ = await self._options(request)
        if "q" not in options:
            raise Refused(400, "q is missing: pass the text to translate")
        single = isinstance(options["q"], str)
        texts = (
            [fields.text(options, "q", CHARACTERS)]
            if single
            else fields.texts(options, "q", TEXTS, CHARACTERS)
        )
        if (size := sum(map(len, texts))) > CHARACTERS:
            raise Refused(413, f"q has {size} characters: pass at most {CHARACTERS} at a time")
        kind = fields.text(options, "format", 20, "text")
        if kind not in ("text", "html"):
            raise Refused(400, "format: pass text or html")
        choices = {
            name: fields.switch(options, name) for name in ("alignments", "confidence", "attention")
        }
        alternatives = fields.integer(options, "alternatives", 0, ALTERNATIVES, 0)
        glossary = await asyncio.to_thread(_glossary, options)
        pair, guess = self._pair(options, texts)
        wish = Wish(pair, 1 + alternatives, choices["alignments"], choices["attention"], glossary)
        language = self._language(pair)
        documents = await asyncio.to_thread(_documents, texts, kind, language)
        translated = await self._admit(request, self._translated(documents, wish))
        candidates = await asyncio.to_thread(_candidates, documents, translated, 1 + alternatives)

        def shape(values: list[Any]) -> Any:
            return values[0] if single else values

        answer: dict[str, Any] = {"translatedText": shape([texts[0] for texts in candidates])}
        if guess is not None:
            answer["detectedLanguage"] = shape([guess._asdict()] * len(texts))
        if "alternatives" in options and alternatives:
            answer["alternatives"] = shape([texts[1:] for texts in candidates])
        if any(choices.values()):
            answer["sentences"] = shape([details(one_text, **choices) for one_text in translated])
        return JSONResponse(answer)

    async def translate_file(self, request: Request) -> Response:
        """Translate a file, and say where the translation can be fetched."""
        options, file = await self._options(request)
        if file is None:
            raise Refused(400, "file is missing: send it as multipart/form-data")
        name = Path(file.filename or "").name[:100]
        ending = name.rpartition(".")[2].lower()
        if ending not in (PLAIN, *FORMATS):
            endings = ", ".join(f".{each}" for each in (PLAIN, *FORMATS))
            raise Refused(400, f"file: {name!r} has no format that is translated: {endings}")
        content = await file.read()
        pair, _ = self._pair(options, [content[:10_000].decode(errors="ignore")])
        document = await asyncio.to_thread(of_file, content, ending, name, self._language(pair))
        wish = Wish(pair, glossary=await asyncio.to_thread(_glossary, options))
        translated = await self._admit(request, self._translated([document], wish))
        ((text,),) = await asyncio.to_thread(_candidates, [document], translated, 1)
        path = self._downloads.add(text.encode(), ending)
        address = request.url_for("download_file", name=path)
        return JSONResponse({"translatedFileUrl": str(address)})

    async def download_file(self, request: Request) -> Response:
        """A translated file."""
        content = self._downloads[request.path_params["name"]]
        headers = {"Content-Disposition": "attachment"}
        return Response(content, media_type="application/octet-stream", headers=headers)

    async def suggest(self, request: Request) -> Response:
        raise Refused(403, "suggestions are not accepted by this server")

    async def metrics(self, request: Request) -> Response:
        """Counts for Prometheus."""
        self._check_key(request, {})
        self._metrics.put("waiting", len(self._batches))
        return PlainTextResponse(str(self._metrics), media_type="text/plain; version=0.0.4")

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        running = asyncio.create_task(self._batches.run())
        try:
            yield
        finally:
            running.cancel()

    async def _options(self, request: Request) -> tuple[Mapping[str, Any], UploadFile | None]:
        """The fields of a request with a right key, of its address and its body; and its file.

        Fields that are not known are ignored: clients of other servers send more.
        """
        pairs = list(request.query_params.multi_items())
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        file = None
        options: Mapping[str, Any]
        if content_type == JSON:
            options = dict(pairs) | fields.parse_any(await request.body())
        else:
            if content_type == FILES:
                pairs_in_body, file = await _multipart(request)
            else:
                pairs_in_body = fields.parse_form(await request.body())
            options = fields.single(QueryParams(pairs + pairs_in_body))
        self._check_key(request, options)
        return options, file

    def _check_key(self, request: Request, options: Mapping[str, Any]) -> None:
        """Raises `Refused` where a key is needed and none of this server's came."""
        if not self._settings.keys:
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        key = token if scheme.lower() == "bearer" else options.get("api_key", "")
        if not isinstance(key, str) or not key:
            raise Refused(403, "this server needs a key: pass it as api_key")
        content = key.strip().encode(errors="replace")
        # All are compared, so that the time does not say which one was nearly right.
        if not sum(hmac.compare_digest(content, each.encode()) for each in self._settings.keys):
            raise Refused(403, "api_key is no key of this server")

    def _pair(self, options: Mapping[str, Any], texts: Sequence[str]) -> tuple[Pair, Guess | None]:
        source, target = (fields.text(options, name, 100) for name in ("source", "target"))
        if source != AUTO:
            return self._pairs.pair(source, target), None
        guess = self._pairs.source_of(texts, target)
        return self._pairs.pair(guess.language, target), guess

    def _language(self, pair: Pair) -> str | None:
        translator = self._pairs.translators.get(pair)
        return pair.source if translator is None or translator.sentence_language else None

    async def _translated(self, documents: Sequence[Texts], wish: Wish) -> list[list[Translation]]:
        """The translations of the sentences of each document."""
        sources = [source for document in documents for source in document.sources]
        if wish.pair.source == wish.pair.target:
            translations = [Translation(source, source) for source in sources]
        else:
            translations = await self._batches.translate(sources, wish)
        self._metrics.add("characters", sum(map(len, sources)))
        supply = iter(translations)
        return [[next(supply) for _ in document.sources] for document in documents]

    async def _admit(self, request: Request, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which ends when the client leaves.

        Raises:
            Refused: too many requests wait.
            Cancelled: the client has left.
        """
        if self._admitted >= self._settings.queue:
            work.close()
            rate = len(self._finished_at) / max(monotonic() - self._finished_at[0], 0.1)
            seconds = min(max(round(self._admitted / rate), 1), 30)
            raise Refused(
                503, f"the queue is full: try again in {seconds} seconds", retry_after=seconds
            )
        self._admitted += 1
        task = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(client_leaves(request))
        try:
            either: set[asyncio.Future[Any]] = {task, leaving}
            await asyncio.wait(either, return_when=FIRST_COMPLETED)
            if not task.done():
                raise Cancelled
            return task.result()
        finally:
            self._admitted -= 1
            self._finished_at = [*self._finished_at[1:], monotonic()]
            leaving.cancel()
            task.cancel()


async def _multipart(request: Request) -> tuple[list[tuple[str, str]], UploadFile | None]:
    """The fields of a body of several parts, and its file."""
    try:
        library("python_multipart")
    except ConfigurationError as fault:
        raise Refused(501, f"this server reads no {FILES}: {fault}") from None
    form = await request.form(max_files=1, max_fields=MOST_FIELDS, max_part_size=BODY)
    values = form.multi_items()
    file = form.get("file")
    pairs = [(name, value) for name, value in values if isinstance(value, str)]
    return pairs, file if isinstance(file, UploadFile) else None


def _documents(texts: Sequence[str], kind: str, language: str | None) -> list[Texts]:
    return [
        Texts(FORMATS[kind](text, "q") if kind in FORMATS else text, language) for text in texts
    ]


def _glossary(options: Mapping[str, Any]) -> Glossary | None:
    return fields.glossary(options, "glossary", TERMS, CHARACTERS)


def _candidates(
    documents: Sequence[Texts], translated: Sequence[Sequence[Translation]], count: int
) -> list[list[str]]:
    """At most `count` translations of each document, best first."""
    pairs = zip(documents, translated, strict=True)
    return [document.candidates(translations, count) for document, translations in pairs]


class Measured:
    """Counts the requests to an application by their statuses, and their seconds."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = monotonic(), 499

        async def noting(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            self._metrics.add_request(status, monotonic() - start)


def application(settings: Settings, metrics: Metrics | None = None) -> Starlette:
    """The application of a process of a server; opening its models takes a moment."""
    metrics = metrics or Metrics()
    translations = Translations(settings, metrics)
    get, post = ["GET"], ["POST"]
    return Starlette(
        routes=[
            Route("/translate", translations.translate, methods=post),
            Route("/translate_file", translations.translate_file, methods=post),
            Route("/download_file/{name}", translations.download_file, methods=get),
            Route("/detect", translations.detect, methods=post),
            Route("/languages", translations.languages, methods=get),
            Route("/frontend/settings", translations.frontend_settings, methods=get),
            Route("/health", translations.health, methods=get),
            Route("/suggest", translations.suggest, methods=post),
            Route("/metrics", translations.metrics, methods=get),
            *page.ROUTES,
        ],
        middleware=[
            Middleware(cast(Any, Measured), metrics=metrics),
            Middleware(
                Guard,
                hosts=settings.hosts,
                types=(JSON, FORM, FILES, ""),
                body=BODY,
                address=ADDRESS,
                crowd=settings.queue + OTHERS,
            ),
        ],
        exception_handlers=HANDLERS,
        lifespan=translations.lifespan,
    )
