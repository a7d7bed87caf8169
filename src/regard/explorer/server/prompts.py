"""The routes of language models, and those that compute one head, one layer or one group of heads at a time."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from regard.errors import RegardError
from regard.explorer.contract import pack, stacks
from regard.explorer.prompt_runs import FromPrompt, Reading, read
from regard.explorer.prompting import LanguageModel
from regard.explorer.server.answers import HEAD, Answers, Options, floats
from regard.explorer.server.edits import edit, edits_of, head_of
from regard.explorer.server.models import Models
from regard.explorer.server.runs import Prompt, Run, Runs
from regard.serving import fields
from regard.serving.errors import Cancelled, Refused
from regard.serving.work import Task, Work
from regard.watching.edits import Edit
from regard.watching.routes import rollout_row

TEXT = 64_000  # characters of a prompt
TOKEN = 200  # characters of a token
T = TypeVar("T")
log = logging.getLogger("regard.explorer")


class Prompts(Answers):
    """The language models of a server by name, and its answers about their runs.

    A computation lasts as long as its client waits; passes over a model and heads of long texts take their time.
    """

    seconds = None

    def __init__(
        self, languages: Sequence[LanguageModel], models: Models, runs: Runs, work: Work
    ) -> None:
        super().__init__(models, runs, work)
        self.languages = {language.name: language for language in languages}

    async def progress(self, request: Request) -> Response:
        """The present computation, how far it is, and how many requests there are."""
        fields.query(request.query_params)
        return JSONResponse({**self.work.progress._asdict(), "waiting": self.work.waiting})

    async def prompt(self, request: Request) -> Response:
        """Run a model on a prompt; `beside` is a run whose prediction is compared; without a text, the first prompt.

        An encoder-decoder writes its target where none is typed.
        """
        names = ("model", "text", "target", "chat", "beside")
        options = fields.parse(await request.body(), *names)
        language = self._language(options)
        text, target = (fields.text(options, name, TEXT, "") for name in ("text", "target"))
        chat = _flag(options, "chat")
        beside = self.run(options, "beside") if "beside" in options else None
        if target and not language.has_source:
            raise Refused(400, f"target: {language.name} is no encoder-decoder")
        base = beside.prompt.reading if beside is not None and beside.prompt else None
        if base is not None and base.language is not language:
            raise Refused(400, "beside: this run is of another model, whose tokens are others")

        def call(task: Task) -> bytes:
            task("reading the prompt", 0, 1)
            prompt = language.ids(text, chat) if text else list(language.start)
            ids, source = prompt, []
            if language.has_source and language.start_target and not (text or target):
                ids, source = list(language.start_target), prompt
            elif language.has_source:
                ids, source = _guarded(lambda: language.target(prompt, target, task)), prompt
            reading = _guarded(lambda: read(language, ids, task=task, chat=chat, source=source))
            typed = text or language.text(prompt)
            return self._packed(Prompt(reading, typed, chat and bool(text)), base)

        return await self.binary(request, call)

    async def step(self, request: Request) -> Response:
        """Run an encoder-decoder again with a token after a place of its target, which ends there."""
        options = fields.parse(await request.body(), "run", "place", "token")
        prompt = self._prompt(options)
        reading = prompt.reading
        if not reading.source:
            raise Refused(400, f"run: {reading.language.name} is no encoder-decoder")
        place = fields.integer(options, "place", 0, len(reading.ids) - 1)
        ids = [*reading.ids[: place + 1], self._token(options, "token", reading)]

        def call(task: Task) -> bytes:
            language = reading.language
            longer = _guarded(lambda: read(language, ids, task=task, source=reading.source))
            return self._packed(Prompt(longer, prompt.text, prompt.chat), None)

        return await self.binary(request, call)

    async def change(
        self, request: Request, run: Run, prompt: Prompt, options: Options
    ) -> Response:
        """Run a prompt again with edited attention, or another prompt (`text`), beside a run.

        The target of an encoder-decoder stays the same.
        """
        edits = edits_of(options.get("edits"), _edit)
        text = fields.text(options, "text", TEXT, prompt.text)
        reading = prompt.reading

        def call(task: Task) -> bytes:
            language, ids, source = reading.language, reading.ids, reading.source
            if text != prompt.text and source:
                source = language.ids(text)
            elif text != prompt.text:
                ids = language.ids(text, prompt.chat)
            edited = _guarded(lambda: read(language, ids, edits, task, prompt.chat, source))
            return self._packed(Prompt(edited, text, prompt.chat), reading)

        return await self.binary(request, call)

    async def moved(self, request: Request) -> Response:
        """The same run with what each key moves in place of its weight, or with the weights again."""
        options = fields.parse(await request.body(), "run", "moved")
        prompt = self._prompt(options)
        moved = _flag(options, "moved")
        return await self.binary(request, lambda task: self._packed(prompt, None, moved))

    async def effects(self, request: Request) -> Response:
        """The effects of the heads: all of them by the gradient, or one group of them by a run each."""
        names = ("run", "token", "minus", "place", "text", "method", "part")
        options = fields.parse(await request.body(), *names)
        prompt = self._prompt(options)
        reading = prompt.reading
        place = fields.integer(options, "place", 0, len(reading.ids) - 1)
        token = self._token(options, "token", reading)
        minus = None if options.get("minus") is None else self._token(options, "minus", reading)
        text = fields.text(options, "text", TEXT, "")
        method = fields.text(options, "method", 10)
        number = fields.integer({"part": 0, **options}, "part", 0, 1 << 20)
        if method not in ("gradient", "run"):
            raise Refused(400, "method: pass gradient or run")

        def call(task: Task) -> dict[str, Any]:
            effects = _guarded(lambda: prompt.effects(token, minus, place, text, task))
            count = 1
            if method == "gradient":
                base, rows = _guarded(lambda: effects.estimate(task))
            else:
                base, rows, count = _guarded(lambda: effects.measured(number, task))
            return {
                "base": base,
                "rows": [[row.name, row.head, row.effect] for row in rows],
                "parts": count,
                "token": reading.names([token])[0],
                "minus": None if minus is None else reading.names([minus])[0],
            }

        return await self.json(request, call)

    async def direct(self, request: Request) -> Response:
        """The parts of a token's logit: of each layer, and of each head."""
        options = fields.parse(await request.body(), "run", "token", "place")
        run, prompt = self.run(options), self._prompt(options)
        reading = prompt.reading
        place = fields.integer(options, "place", 0, len(reading.ids) - 1)
        token = self._token(options, "token", reading)

        def call(task: Task) -> dict[str, Any]:
            task("running the model", 0, 1)
            split, token_name = _guarded(lambda: prompt.direct), reading.names([token])[0]
            if isinstance(split, str):
                return {"token": token_name, "objection": split}
            arithmetic = run.arithmetic(self.models)
            heads: dict[str, list[float]] = {}
            for name in reading.seen:
                outputs = arithmetic.head_outputs(name, place)
                if outputs is not None:
                    heads[name] = split.of(outputs, place, token).tolist()
            return {
                "token": token_name,
                "logit": split.logit(place, token),
                "parts": split.terms(place, token),
                "heads": heads,
            }

        return await self.json(request, call)

    async def cell(self, request: Request) -> Response:
        """The weight of one query for one key in each head, by the name of the attention."""
        options = fields.parse(await request.body(), "run", "query", "key")
        run = self.run(options)
        query, key = (fields.integer(options, name, 0, 1 << 31) for name in ("query", "key"))

        def call(task: Task) -> dict[str, list[float]]:
            cells: dict[str, list[float]] = {}
            for number, attention in enumerate(run.scene.attentions):
                task("reading the heads", number, len(run.scene.attentions))
                _, queries, keys = attention.shape
                if query < queries and key < keys:
                    with torch.no_grad():
                        weights = attention.look.weights(rows=[query], columns=[key])
                    cells[attention.name] = weights.flatten().tolist()
            return cells

        return await self.json(request, call)

    async def picture(self, request: Request) -> Response:
        """The picture of a head, float32; a small one takes a row of each bin of a long text."""
        options = fields.query(request.query_params, *HEAD, "exact")
        run, attention = self.run(options), self.attention(options)
        head = fields.integer(options, "head", -1, attention.shape[0] - 1)
        exact = bool(fields.integer(options, "exact", 0, 1))

        return await self.binary(request, lambda task: floats(run.picture(attention, head, exact)))

    async def measures(self, request: Request) -> Response:
        """The measures of the heads of one attention."""
        options = fields.query(request.query_params, "run", "attention")
        run, attention = self.run(options), self.attention(options)
        return await self.json(request, lambda task: run.measured(attention))

    async def rollout(self, request: Request) -> Response:
        """One row of the rollout of a stack of layers, float32."""
        options = fields.query(request.query_params, "run", "stack", "query")
        run = self.run(options)
        all_stacks = stacks(run.scene)
        if not all_stacks:
            raise Refused(404, "stack: this run has no layers of self-attention above one another")
        stack = all_stacks[fields.integer(options, "stack", 0, len(all_stacks) - 1)]
        query = fields.integer(options, "query", 0, stack[0].shape[1] - 1)

        def call(task: Task) -> bytes:
            looks = {attention.name: attention.look for attention in stack}
            return floats(rollout_row(looks, query, task))

        return await self.binary(request, call)

    def _packed(self, prompt: Prompt, base: Reading | None, moved: bool = False) -> bytes:
        scene = prompt.reading.scene(prompt.text, prompt.chat, base, moved)
        return pack(scene, self.runs.add(Run(scene, prompt.reading.language.name, prompt=prompt)))

    def _language(self, options: Options) -> LanguageModel:
        name = fields.text(options, "model", 500)
        if name not in self.languages:
            names = ", ".join(self.languages) or "none"
            raise Refused(404, f"model: no model of this name reads prompts; there are {names}")
        return self.languages[name]

    def _prompt(self, options: Options) -> Prompt:
        prompt = self.run(options).prompt
        if prompt is None:
            raise Refused(400, "run: this run is not of a prompt")
        return prompt

    def _token(self, options: Options, name: str, reading: Reading) -> int:
        """A token by its id, or the one that a text begins with."""
        if isinstance(options.get(name), int):
            return fields.integer(options, name, 0, reading.predictions.vocabulary - 1)
        return reading.language.token(fields.text(options, name, TOKEN))


def _guarded(call: Callable[[], T]) -> T:
    """The result of a call that runs a model; an error of a model of another project is logged and refused."""
    try:
        return call()
    except (RegardError, Refused, Cancelled):
        raise
    except Exception as fault:
        log.exception("the model failed")
        kind = type(fault).__name__
        raise Refused(
            422, f"the model failed at this prompt ({kind}): the terminal says why"
        ) from None


def _edit(fields_of_edit: Options) -> Edit | FromPrompt:
    """An edit, or one that takes heads from another prompt."""
    if fields_of_edit.get("kind") != "from":
        return edit(fields_of_edit)
    return FromPrompt(fields.text(fields_of_edit, "text", TEXT), head_of(fields_of_edit))


def _flag(options: Options, name: str) -> bool:
    value = options.get(name, False)
    if not isinstance(value, bool):
        raise Refused(400, f"{name}: pass true or false")
    return value
