"""The words of a training text: which are known, which are names, how accents and numbers are written.

`words.json` in a run folder keeps them.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Self

from pydantic import BaseModel, ConfigDict, TypeAdapter

from regard.translation import checksums
from regard.translation.runs import Run
from regard.translation.runs.layout import WORDS
from regard.translation.text.accents import Accents
from regard.translation.text.corpora import Pair
from regard.translation.text.names import WORD, as_inside, has_capital, named
from regard.translation.text.numbers import Marks, copies_numbers
from regard.translation.text.trigrams import Trigrams

# Names and words that are kept.
_NAMES, _WORDS = 8, 60_000
# Of the words with a capital inside the sources, so many must be names: German nouns have capitals, too.
_SHARE = 0.5
_LARGEST_FILE = 8 * 2**20


class KnownWords(BaseModel):
    """The words of the sources, by which names, numbers and typing errors are found.

    Attributes:
        version: of the file.
        words: those of the sources, the most frequent first, with spaces between them.
        names: the most frequent names that training pairs have on both sides. Empty where capitals do not mark names.
        ordinary, proper: trigrams of the words in small letters and of the names.
        marks: those of numbers.
        accents: where they belong.
        numbers: whether a source that is a number only is its own translation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: int = 1
    words: str
    names: list[str]
    ordinary: Trigrams
    proper: Trigrams
    marks: Marks
    accents: Accents
    numbers: bool = True

    @classmethod
    def open(cls, run: Run) -> Self | None:
        """Those of a run; None where it has none. Raises `CorruptedError`."""
        path = run.folder / WORDS
        if run.checksum(WORDS) is None and not path.exists():
            return None
        content = run.content(WORDS, _LARGEST_FILE)
        return checksums.parsed(TypeAdapter(cls), content, path, "words of a model")

    @classmethod
    def learn(cls, pairs: Sequence[Pair]) -> Self:
        """Those of training pairs; of several languages, without their accents and the marks of their numbers."""
        several = len({pair.tags for pair in pairs}) > 1
        sources = [pair.source for pair in pairs]
        each = list(map(WORD.findall, sources))
        inside = Counter(chain.from_iterable(found[1:] for found in each))
        words = inside + Counter(as_inside(found[0], inside) for found in each if found)
        capitals = {word: count for word, count in inside.items() if has_capital(word)}
        names = Counter(chain.from_iterable(names for _, names in named(pairs)))
        if sum(capitals.get(name, 0) for name in names) <= _SHARE * sum(capitals.values()):
            names.clear()
        return cls(
            words=" ".join(word for word, _ in words.most_common(_WORDS)),
            names=[name for name, _ in names.most_common(_NAMES)],
            ordinary=Trigrams.learn(word for word in sorted(words) if word.islower()),
            proper=Trigrams.learn(sorted(names)),
            marks=Marks("", "") if several else Marks.learn(pairs),
            accents=Accents() if several else Accents.learn(sources),
            numbers=copies_numbers(pairs),
        )

    def joined(self, more: Self) -> Self:
        """These and the words of another text, from which the same model is trained on."""
        both = dict.fromkeys([*self.rank, *more.rank])
        numbers = self.numbers and more.numbers
        update = {"words": " ".join(both), "names": self.names or more.names, "numbers": numbers}
        return self.model_copy(update=update)

    def keep(self, run: Run) -> None:
        """Write the file. Raises `OSError`."""
        run.keep(WORDS, (self.model_dump_json() + "\n").encode())

    def has(self, word: str) -> bool:
        return word in self.rank

    @cached_property
    def rank(self) -> dict[str, int]:
        """The place of each word by its frequency."""
        return {word: place for place, word in enumerate(self.words.split())}

    @cached_property
    def letters(self) -> list[str]:
        """The letters of the words in small letters."""
        return sorted(self.ordinary.letters)
