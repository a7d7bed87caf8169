"""Sentences of many requests, translated together: one thread computes, and a batch has sentences of like length."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple, cast

from regard.serving.errors import Cancelled
from regard.serving.metrics import Metrics
from regard.serving.pairs import Pair
from regard.serving.stopping import Stoppable
from regard.translation.engines import SearchEngine
from regard.translation.results import Translation
from regard.translation.text.glossary import Glossary
from regard.translation.translator import Translator

TOGETHER = 32  # sentences of a batch, and those of one request that wait at a time
WAIT = 0.020  # seconds that a sentence waits for others at most, while nothing is computed
LULL = 0.003  # seconds without a new sentence after which a batch begins


class Wish(NamedTuple):
    """What is computed of a sentence; those of a batch have the same."""

    pair: Pair
    nbest: int = 1
    alignments: bool = False
    looks: bool = False
    glossary: Glossary | None = None


@dataclass(eq=False)
class _Waiting:
    """A sentence in the queue."""

    text: str
    wish: Wish
    result: asyncio.Future[Translation]
    since: float = field(default_factory=monotonic)


class Batches:
    """The queue of sentences before one thread, which translates a batch at a time.

    The oldest sentence begins a batch. Others of the same `Wish` join it, those of the most similar length first. A
    sentence whose request was cancelled leaves the queue; a batch without any other ends at its next step.
    """

    def __init__(self, translators: Mapping[Pair, Translator], metrics: Metrics) -> None:
        self._translators, self._metrics = translators, metrics
        self._queue: list[_Waiting] = []
        self._batch: list[_Waiting] = []
        self._news = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "translate")
        for translator in set(translators.values()):
            stoppable = Stoppable(translator.engine, self._check)
            translator.engine = cast(SearchEngine, stoppable)

    def __len__(self) -> int:
        """The number of sentences that wait."""
        return len(self._queue)

    async def translate(self, texts: Sequence[str], wish: Wish) -> list[Translation]:
        """The translations of the sentences of one request; at most `TOGETHER` of them wait at a time."""
        translations: list[Translation] = []
        for start in range(0, len(texts), TOGETHER):
            loop = asyncio.get_running_loop()
            waiting = [
                _Waiting(text, wish, loop.create_future())
                for text in texts[start : start + TOGETHER]
            ]
            self._queue += waiting
            self._news.set()
            translations += await asyncio.gather(*(each.result for each in waiting))
        return translations

    async def run(self) -> None:
        """Translate until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._settle()
                self._batch = self._next()
                if self._batch:
                    outcomes = await loop.run_in_executor(self._thread, self._compute)
                    self._deliver(outcomes)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _settle(self) -> None:
        """Wait for sentences: until the batch is full, none came for a moment, or the oldest has waited long enough."""
        while not self._queue:
            self._news.clear()
            await self._news.wait()
        deadline = self._queue[0].since + WAIT
        while len(self._queue) < TOGETHER and (remaining := deadline - monotonic()) > 0:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), min(LULL, remaining))
            except TimeoutError:
                return

    def _next(self) -> list[_Waiting]:
        """Take the next batch from the queue."""
        self._queue = [each for each in self._queue if not each.result.done()]
        if not self._queue:
            return []
        oldest = self._queue[0]
        alike = [each for each in self._queue if each.wish == oldest.wish]
        alike.sort(key=lambda waiting: abs(len(waiting.text) - len(oldest.text)))
        batch = alike[:TOGETHER]
        ids = set(map(id, batch))
        self._queue = [each for each in self._queue if id(each) not in ids]
        return batch

    def _check(self) -> None:
        if all(each.result.done() for each in self._batch):
            raise Cancelled

    def _compute(self) -> list[Translation | Exception]:
        """In the thread: a result for each sentence of the batch. A sentence that fails does not fail others."""
        start = monotonic()
        texts, wish = [each.text for each in self._batch], self._batch[0].wish
        outcomes: list[Translation | Exception]
        try:
            outcomes = list(self._translated(texts, wish))
        except Cancelled as fault:
            return [fault] * len(texts)
        except Exception as fault:
            if len(texts) == 1:
                return [fault]
            outcomes = [self._outcome(text, wish) for text in texts]
        self._metrics.add("batches")
        self._metrics.add("sentences", len(texts))
        self._metrics.add("batch_seconds", monotonic() - start)
        return outcomes

    def _outcome(self, text: str, wish: Wish) -> Translation | Exception:
        try:
            return self._translated([text], wish)[0]
        except Exception as fault:
            return fault

    def _translated(self, texts: Sequence[str], wish: Wish) -> list[Translation]:
        translator = self._translators[wish.pair]
        beam = max(translator.search.beam, wish.nbest)
        search = translator.search.changed(beam=beam, nbest=wish.nbest)
        return translator.translate(
            texts,
            search=search,
            alignments=wish.alignments,
            looks=wish.looks,
            whole_lines=True,
            glossary=wish.glossary,
        )

    def _deliver(self, outcomes: Sequence[Translation | Exception]) -> None:
        for waiting, outcome in zip(self._batch, outcomes, strict=True):
            if waiting.result.done():  # its client has left
                continue
            if isinstance(outcome, Exception):
                waiting.result.set_exception(outcome)
            else:
                waiting.result.set_result(outcome)
        self._batch = []
