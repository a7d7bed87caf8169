"""A translator of sentences whose answers a test writes."""

from collections.abc import Callable, Sequence

from regard.translation.results import Translation
from regard.translation.settings.search import Search


class Answers:
    """Gives the answers of a function, and records the sentences."""

    def __init__(self, answer: Callable[[Sequence[str]], list[Translation]]) -> None:
        self.answer = answer
        self.sentences: list[str] = []

    def translate(
        self, sentences: Sequence[str], search: Search, prefixes: Sequence[str] | None = None
    ) -> list[Translation]:
        self.sentences += sentences
        return self.answer(sentences)

    def copy(self, sentences: Sequence[str], search: Search) -> list[Translation]:
        raise AssertionError("no sentence is a number")
