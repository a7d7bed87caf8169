"""The results of a translator: words, candidates, translations."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import product
from typing import Any

from regard.translation.evaluation.alignment import Link, by_target
from regard.translation.models.protocol import Looks
from regard.translation.text.replacements import Replacement, moved_words, replaced

# Of packages above, without which translating works.
NOTEBOOK, SCENES, EXPLORER = (
    f"regard.{name}" for name in ("viewing.notebook", "explorer.scenes", "explorer.notebook")
)


@dataclass(frozen=True)
class Origin:
    """A stored sentence pair that a word came from.

    Attributes:
        weight: the probability that the pair added to the word's pieces, in the mean.
    """

    source: str
    target: str
    weight: float


@dataclass(frozen=True)
class Word:
    """A word of a translation, with the product of the probabilities of its pieces.

    Attributes:
        origins: where a memory has it from, the largest weight first; empty unless asked for.
    """

    text: str
    confidence: float
    origins: tuple[Origin, ...] = ()

    def together(self, word: Word) -> Word:
        """This text, with the confidence and the origins of both."""
        confidence = self.confidence * word.confidence
        return Word(self.text, confidence, self.origins + word.origins)


@dataclass(frozen=True)
class Candidate:
    """One of the translations found for a sentence.

    Attributes:
        text: the translation.
        score: the log-probability divided by the length penalty, plus the coverage penalty; candidates
            are ranked by it, larger is better.
        log_probability: of the translation and its end.
        words: the translation's words, those between white space.
        alignment: (source word, target word) from 0, words being those between spaces: for each target
            word the source word it looked at most. Empty unless asked for.
    """

    text: str
    score: float = 0.0
    log_probability: float = 0.0
    words: list[Word] = field(default_factory=list)
    alignment: list[Link] = field(default_factory=list)

    def with_replacements(
        self, changes: Sequence[Replacement], source_words: Sequence[Collection[int]]
    ) -> Candidate:
        """This after replacements in its text; words and links follow. A word that is new has the confidence 1.

        Args:
            source_words: for each word of the source, its positions in the source as it will be.
        """
        text = replaced(self.text, changes)
        target_words = moved_words(self.text, changes)
        words: list[Word] = []
        if self.words or not self.text:
            words = [Word(word, 1.0) for word in text.split()]
            for old, places in zip(self.words, target_words, strict=False):
                for place in places:
                    words[place] = words[place].together(old)
        pairs = (
            pair
            for source, target in self.alignment
            for pair in product(source_words[source], target_words[target])
        )
        return replace(self, text=text, words=words, alignment=by_target(pairs))


@dataclass(frozen=True)
class Translation:
    """A line, its translation, and the attention of the model.

    Attributes:
        source: the line as it was given, without characters that nobody sees (see `normalisation.clean`): the
            alignment counts its words.
        text: the translation; of a sentence that is a number only, the sentence.
        score, log_probability, words, alignment: those of the translation (see `Candidate`); 0 and empty for an
            empty sentence. Those of several sentences are sums and positions in the whole line.
        read_as: words and numbers of the source that were read as others (see `translation.reading`): with accents,
            without typing errors, or by a word that stood for a name. Pieces and looks are those of the words that
            were read.
        sentences: the translation of each sentence, where the line has several and they were translated one by one.
            The lists of pieces then have an end after each sentence, and no sentence looks at another.
        source_pieces: the source's pieces as the encoder reads them, end included.
        target_pieces: the pieces the decoder writes, end included.
        source_ids: the ids of the source's pieces, without the end.
        target_ids: the ids of the pieces written, without the end.
        probabilities: of each target piece, end included.
        looks: by name ("encoder.0.self", "decoder.2.cross", ...; of several models each after its number,
            "1.decoder.2.cross") a look of shape (1, heads, queries, keys); empty unless asked for.
        alternatives: the n-best candidates, best first, this one among them.
        cut: source pieces left out because the sentence was too long.
        unknown: the parts of the source that are in no piece of the vocabulary, mostly single characters, in their
            order. The model reads them as bytes or as one unknown piece.
        unseen: those of `source_pieces` that occurred in no training source. Empty for models that have no
            record of that.
        repeats: whether the search made a translation that repeats itself, where the source does not (see
            `decoding.hypothesis.loops`). This one is then from a second search, which forbids that.
        unfinished: whether the search ended it because it had the most pieces allowed.
        invented: words that the model wrote and no text has (see `reading.sentences`); words of the source are in
            their places, where they are linked.
        agreement: how much the hypotheses that the search ended have in common (see `doubts.agreement`), from 0 to 1;
            None where it had none beside this one to compare: greedy search, draws, several sentences.
        quality: the probability that the translation is good, by the search and the source (see `doubts.Quality`); of
            several sentences the least. None for models without that statistic, and where the beginning was given.
        terms: those of the glossary that were placed, as the source and as the translation write them.
        overlapping: terms of the glossary, as it has them, that overlap longer ones, which were placed.
        doubts: why it may be wrong: "cut", "unknown", "unseen", "invented", "repeats", "unfinished", "no words",
            "overlapping terms", and where the model's folder has doubts.json "unknown script", "other language",
            "odd length", "low confidence".
    """

    source: str
    text: str = ""
    score: float = 0.0
    log_probability: float = 0.0
    words: list[Word] = field(default_factory=list)
    alignment: list[Link] = field(default_factory=list)
    source_pieces: list[str] = field(default_factory=list, repr=False)
    target_pieces: list[str] = field(default_factory=list, repr=False)
    source_ids: list[int] = field(default_factory=list, repr=False)
    target_ids: list[int] = field(default_factory=list, repr=False)
    probabilities: list[float] = field(default_factory=list, repr=False)
    looks: Looks = field(default_factory=dict, repr=False)
    alternatives: list[Candidate] = field(default_factory=list, repr=False)
    cut: int = 0
    unknown: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    repeats: bool = False
    unfinished: bool = False
    invented: list[str] = field(default_factory=list)
    agreement: float | None = None
    quality: float | None = None
    doubts: list[str] = field(default_factory=list)
    read_as: dict[str, str] = field(default_factory=dict)
    terms: dict[str, str] = field(default_factory=dict)
    overlapping: list[str] = field(default_factory=list)
    sentences: list["Translation"] = field(default_factory=list, repr=False)

    def with_candidates(self, candidates: Sequence[Candidate], **fields: Any) -> Translation:
        """The same of other candidates, the best first, and with other fields."""
        return replace(self, **vars(candidates[0]), alternatives=list(candidates), **fields)

    def labels(self, name: str) -> tuple[list[str], list[str]]:
        """The labels of the queries and of the keys of a look.

        A look at the source has a row for each piece that was written; a look of the decoder at itself, for each read.
        """
        if "encoder." in name:
            return self.source_pieces, self.source_pieces
        if name.endswith("cross"):
            return self.target_pieces, self.source_pieces
        read = ["<s>", *self.target_pieces[:-1]]
        return read, read

    def explore(self, *, frame: bool = False) -> Any:
        """The explorer of this translation and its looks, which a notebook displays.

        Args:
            frame: show the page in a frame in any case, which needs no widgets.

        Returns:
            A widget where `regard[notebook]` is installed, else a page in a frame.

        Raises:
            ValueError: it has no looks, because it was made without `looks=True`.
        """
        return import_module(EXPLORER).display(import_module(SCENES).of_looks(self), frame)

    def _repr_html_(self) -> str:
        page: str = import_module(NOTEBOOK).html(self)
        return page
