"""A translator of sentences whose answers a test writes."""

from collections.abc import Callable, Sequence

from regard.translation.evaluation.alignment import WordLinks
from regard.translation.results import Candidate, Translation, Word
from regard.translation.settings.search import Search


class Answers:
    """Gives the answers of a function, and records the sentences."""

    def __init__(self, answer: Callable[[Sequence[str]], list[Translation]]) -> None:
        self.answer = answer
        self.sentences: list[str] = []

    def translate(
        self,
        sentences: Sequence[str],
        search: Search,
        prefixes: Sequence[str] | None = None,
        terms: Sequence[Sequence[str]] | None = None,
    ) -> list[Translation]:
        self.sentences += sentences
        return self.answer(sentences)

    def copy(self, sentences: Sequence[str], search: Search) -> list[Translation]:
        return [said(text, text) for text in sentences]

    def links(self, pairs: Sequence[tuple[str, str]]) -> list[WordLinks]:
        return [
            WordLinks.ordered(len(source.split()), len(target.split())) for source, target in pairs
        ]


def said(source: str, text: str, log_probability: float = -1.0) -> Translation:
    """A translation whose words are linked in their order."""
    links = WordLinks.ordered(len(source.split()), len(text.split())).links
    words = [Word(word, 0.5) for word in text.split()]
    candidate = Candidate(text, log_probability, log_probability, words, links)
    return Translation(
        source, **vars(candidate), target_pieces=text.split(), alternatives=[candidate]
    )
