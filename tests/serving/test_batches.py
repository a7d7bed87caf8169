"""The queue: sentences of many requests together, in bounded time, each with its own answer."""

from __future__ import annotations

import asyncio

import pytest

from regard.errors import ModelError
from regard.serving import batches
from regard.serving.batches import TOGETHER, Batches, Wish
from regard.serving.errors import Refused
from regard.serving.metrics import Metrics
from regard.serving.pairs import Pair
from regard.serving.translations import Settings, Translations
from regard.translation.results import Translation
from regard.translation.settings.search import Search

PAIR = Pair("es", "en")


class Engine:
    """An engine of which only the steps matter."""

    loops = True

    def step(self, *arguments):
        return "stepped"


class Upper:
    """A translator that writes in capitals, and notes its batches."""

    search = Search()

    def __init__(self) -> None:
        self.engine = Engine()
        self.batches: list[list[str]] = []

    def translate(self, texts, **options):
        self.batches.append(list(texts))
        if "fail" in texts:
            raise ModelError("it fails")
        if "long" in texts:
            while True:
                self.engine.step()
        return [Translation(text, text.upper()) for text in texts]


def with_queue(run_async, use):
    """Run `use(queue, translator)` while the queue is worked on."""
    translator = Upper()

    async def around():
        queue = Batches({PAIR: translator}, Metrics())
        running = asyncio.create_task(queue.run())
        try:
            return await use(queue, translator)
        finally:
            running.cancel()

    return run_async(around())


def test_requests_that_come_together_are_one_batch(run_async):
    async def use(queue, translator):
        texts = [f"a {number}" for number in range(20)]
        answers = await asyncio.gather(*(queue.translate([text], Wish(PAIR)) for text in texts))
        assert [answer[0].text for answer in answers] == [text.upper() for text in texts]
        assert translator.batches == [texts]

    with_queue(run_async, use)


def test_a_batch_has_the_oldest_and_those_of_its_length(run_async):
    async def use(queue, translator):
        texts = ["b" * length for length in (50, *range(1, 2 * TOGETHER), 51)]
        requests = [queue.translate([text], Wish(PAIR)) for text in texts]
        await asyncio.gather(*requests)
        first, *_ = translator.batches
        assert len(first) == TOGETHER
        assert "b" * 50 in first
        assert "b" * 51 in first
        assert "b" not in first
        assert sorted(len(text) for batch in translator.batches for text in batch) == sorted(
            map(len, texts)
        )

    with_queue(run_async, use)


def test_a_long_text_leaves_room_for_others(run_async):
    async def use(queue, translator):
        book = asyncio.create_task(queue.translate(["c"] * 10 * TOGETHER, Wish(PAIR)))
        await asyncio.sleep(0)
        await queue.translate(["d"], Wish(PAIR))
        assert not book.done()
        assert len(await book) == 10 * TOGETHER

    with_queue(run_async, use)


def test_one_that_fails_fails_alone(run_async):
    async def use(queue, translator):
        right, wrong = queue.translate(["e"], Wish(PAIR)), queue.translate(["fail"], Wish(PAIR))
        answers = await asyncio.gather(right, wrong, return_exceptions=True)
        assert answers[0][0].text == "E"
        assert isinstance(answers[1], ModelError)

    with_queue(run_async, use)


def test_other_wishes_are_other_batches(run_async):
    async def use(queue, translator):
        await asyncio.gather(
            queue.translate(["f"], Wish(PAIR)), queue.translate(["f"], Wish(PAIR, nbest=2))
        )
        assert translator.batches == [["f"], ["f"]]

    with_queue(run_async, use)


def test_a_request_that_is_cancelled_leaves_the_queue_and_ends_its_search(run_async):
    async def use(queue, translator):
        leaving = asyncio.create_task(queue.translate(["long"], Wish(PAIR)))
        while not translator.batches:
            await asyncio.sleep(0.001)
        gone = asyncio.create_task(queue.translate(["g"], Wish(PAIR)))
        await asyncio.sleep(0)
        gone.cancel()
        leaving.cancel()
        answers = await asyncio.wait_for(queue.translate(["h"], Wish(PAIR)), 30)
        assert answers[0].text == "H"
        assert ["g"] not in translator.batches
        assert not queue._queue

    with_queue(run_async, use)


def test_one_sentence_alone_waits_for_a_lull_and_no_longer(run_async, monkeypatch):
    monkeypatch.setattr(batches, "WAIT", 30.0)

    async def use(queue, translator):
        await asyncio.wait_for(queue.translate(["i"], Wish(PAIR)), 20)

    with_queue(run_async, use)


def test_a_full_queue_refuses_and_says_when_to_come_back(run_async):
    async def around():
        translations = Translations(Settings(["es-en-tiny"], hosts=None, queue=1), Metrics())
        translations._admitted = 1

        async def work():
            raise AssertionError

        with pytest.raises(Refused) as refusal:
            await translations._admit(None, work())
        assert refusal.value.status == 503
        assert 1 <= refusal.value.retry_after <= 30

    run_async(around())
