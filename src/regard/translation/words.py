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
from regard.translation.text.names import WORD, has_capital, named
from regard.translation.text.numbers import Marks
from regard.translation.text.trigrams import Trigrams

# Names and words that are kept.
_NAMES, _WORDS = 4, 60_000
# Of the words with a capital inside the sources, so many must be names: German nouns have capitals, too.
_SHARE = 0.5
_LARGEST_FILE = 8 * 2**20


class KnownWords(BaseModel):
    """What tells names, numbers and typing errors from other words.

    Attributes:
        version: of the file.
        words: those of the sources, the most frequent first.
        names: the most frequent names that training pairs have on both sides. None where capitals do not mark names.
        ordinary, proper: trigrams of the words in small letters and of the names.
        marks: those of numbers.
        accents: where they belong.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: int = 1
    words: list[str]
    names: list[str]
    ordinary: Trigrams
    proper: Trigrams
    marks: Marks
    accents: Accents

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
        sources = [pair.source for pair in pairs]
        each = list(map(WORD.findall, sources))
        words = Counter(chain.from_iterable(each))
        capitals = Counter(word for found in each for word in found[1:] if has_capital(word))
        names = Counter(chain.from_iterable(names for _, names in named(pairs)))
        if sum(capitals[name] for name in names) <= _SHARE * capitals.total():
            names.clear()
        return cls(
            words=[word for word, _ in words.most_common(_WORDS)],
            names=[name for name, _ in names.most_common(_NAMES)],
            ordinary=Trigrams.learn(word for word in sorted(words) if word.islower()),
            proper=Trigrams.learn(sorted(names)),
            marks=Marks.learn(pairs),
            accents=Accents.learn(sources),
        )

    def keep(self, run: Run) -> None:
        """Write the file. Raises `OSError`."""
        run.keep(WORDS, (self.model_dump_json() + "\n").encode())

    def has(self, word: str) -> bool:
        return word in self.rank

    @cached_property
    def rank(self) -> dict[str, int]:
        """The place of each word by its frequency."""
        return {word: place for place, word in enumerate(self.words)}

    @cached_property
    def letters(self) -> list[str]:
        """The letters of the words in small letters."""
        return sorted(self.ordinary.letters)
