"""Sentences with stand-ins: every stand-in of a sentence is in its translation, as often.

Those that are part of the sentence are carried by ordinary names and numbers of the training text (see `placeholders`).
The others are taken out, and put back by the links of words. A stand-in that no attempt carries is taken out as well.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from regard.translation.evaluation.alignment import Link, WordLinks, by_target
from regard.translation.reading.placeholders import COUNTS, standing_alone
from regard.translation.reading.placement import insertions, without
from regard.translation.reading.readings import TermTranslator, clearer
from regard.translation.results import Candidate, Translation
from regard.translation.settings.search import Search
from regard.translation.text.replacements import (
    Replacement,
    moved_words,
    occurrences,
    replaced,
    unmoved_words,
    word_spans,
)
from regard.translation.text.stand_ins import (
    CARRIED,
    STAND_IN,
    TAKEN_OUT,
    StandIn,
    StandIns,
    found_again,
    lost,
    opens_term,
)
from regard.translation.words import KnownWords

_ATTEMPTS = 2
# How much less probable a translation may be, in mean log-probability, without the spans of the sentence.
_WITHOUT = -0.2
# And with the terms written by the search. With 0.2, two thirds of the gain; with 1, terms that do not fit are appended
# to sentences (benchmarks/quality/found_text.py --rows terms).
CONSTRAINED = -0.4


class Bare(NamedTuple):
    """A sentence as a model reads it.

    Attributes:
        sentence: with stand-ins, those that nothing carries marked as lost.
        text: without them.
        changes: from the sentence to the text.
        words: the word in the place of each stand-in that is carried, and how often it is there.
        terms: the targets of terms that the search has written, by the places of their openings in the sentence.
    """

    sentence: str
    text: str
    changes: list[Replacement]
    words: dict[str, tuple[str, int]]
    terms: Mapping[int, str] = MappingProxyType({})

    def carried_by(self, candidate: Candidate | Translation) -> bool:
        """Whether a translation has the words for stand-ins as often as the sentence."""
        return all(
            len(standing_alone(word).findall(candidate.text)) == count
            for word, count in self.words.values()
        )

    def terms_of(self, spans: Mapping[str, StandIn]) -> dict[int, str]:
        """The targets of the terms that are translated with the sentence, by the places of their openings."""
        return {
            match.start(): spans[match[0]].target
            for match in STAND_IN.finditer(self.sentence)
            if opens_term(match[0])
        }


@dataclass(frozen=True)
class Carrier:
    """Translates sentences with stand-ins by a translator that knows none.

    Attributes:
        spans: those that the stand-ins stand for.
        words: those of the training text; without them every stand-in is taken out.
    """

    translator: TermTranslator
    spans: Mapping[str, StandIn]
    words: KnownWords | None

    def translate(
        self, sentences: Sequence[str], search: Search, prefixes: Sequence[str] | None = None
    ) -> list[Translation]:
        """The translation of each sentence, with its stand-ins."""
        marked = [row for row, sentence in enumerate(sentences) if STAND_IN.search(sentence)]
        if not marked:
            return self.translator.translate(sentences, search, prefixes)
        if prefixes is not None:
            return self._as_written(sentences, search, prefixes)
        answers_of_rows: dict[int, tuple[Bare, Translation]] = {}
        attempts = dict.fromkeys(range(len(sentences)), 0)
        while attempts:
            bare = [
                as_bare(sentences[row], self.spans, self.words, attempt)
                for row, attempt in attempts.items()
            ]
            answers = self.translator.translate([reading.text for reading in bare], search)
            for row, reading, answer in zip(attempts, bare, answers, strict=True):
                if reading.carried_by(answer) and (
                    row not in answers_of_rows or clearer(answer, answers_of_rows[row][1], _WITHOUT)
                ):
                    answers_of_rows[row] = reading, answer
            # Without its spans a sentence may be clearer than with words in their places.
            attempts = {
                row: _ATTEMPTS if row in answers_of_rows else attempt + 1
                for row, attempt in attempts.items()
                if attempt < _ATTEMPTS
                and (row not in answers_of_rows or CARRIED.search(answers_of_rows[row][0].sentence))
            }
        if search.constraints and not search.sampling and search.beam > 1:
            answers_of_rows |= self._constrained(answers_of_rows, search)
        return self._restored([answers_of_rows[row] for row in range(len(sentences))])

    def _as_written(
        self, sentences: Sequence[str], search: Search, prefixes: Sequence[str]
    ) -> list[Translation]:
        """Translations with prefixes, into which nothing is put: the model reads each character as the line has it."""
        texts = [STAND_IN.sub(lambda match: self.spans[match[0]].source, s) for s in sentences]
        translations = self.translator.translate(texts, search, prefixes)
        rows = zip(translations, sentences, strict=True)
        return [replace(translation, source=sentence) for translation, sentence in rows]

    def _constrained(
        self, answers: Mapping[int, tuple[Bare, Translation]], search: Search
    ) -> dict[int, tuple[Bare, Translation]]:
        """Translations with their terms, of sentences that lack some, unless they are less probable."""
        terms = {row: bare.terms_of(self.spans) for row, (bare, _) in answers.items()}
        rows = [
            row
            for row, (_, translation) in answers.items()
            if any(
                len(list(occurrences(term, translation.text))) < count
                for term, count in Counter(terms[row].values()).items()
            )
        ]
        translations = self.translator.translate(
            [answers[row][0].text for row in rows],
            search,
            terms=[list(terms[row].values()) for row in rows],
        )
        return {
            row: (answers[row][0]._replace(terms=terms[row]), translation)
            for row, translation in zip(rows, translations, strict=True)
            if answers[row][0].carried_by(translation)
            and clearer(translation, answers[row][1], CONSTRAINED)
        }

    def copy(self, sentences: Sequence[str], search: Search) -> list[Translation]:
        """See `SentenceTranslator.copy`; stand-ins are not scored."""
        return self.translator.copy([STAND_IN.sub(" ", text) for text in sentences], search)

    def links(self, pairs: Sequence[tuple[str, str]]) -> list[WordLinks]:
        """See `SentenceTranslator.links`."""
        return self.translator.links(pairs)

    def _restored(self, answers: Sequence[tuple[Bare, Translation]]) -> list[Translation]:
        """The translations with the stand-ins of their sentences."""
        candidates = [
            [candidate for candidate in translation.alternatives if bare.carried_by(candidate)]
            or [Candidate("")]
            for bare, translation in answers
        ]
        with_places = [bool(re.search(TAKEN_OUT, bare.sentence)) for bare, _ in answers]
        pairs = [
            (bare.text, candidate.text)
            for (bare, _), group, placed in zip(answers, candidates, with_places, strict=True)
            if placed
            for candidate in group
        ]
        links = iter(self.links(pairs) if pairs else ())
        return [
            translation
            if not bare.changes
            else _put_back(
                bare,
                translation,
                group,
                [next(links) if placed else WordLinks([], []) for _ in group],
            )
            for (bare, translation), group, placed in zip(
                answers, candidates, with_places, strict=True
            )
        ]


def as_bare(
    sentence: str, spans: Mapping[str, StandIn], vocabulary: KnownWords | None, attempt: int = 0
) -> Bare:
    """A sentence with words in the places of its stand-ins: in other attempts, other ones."""
    counts = Counter(CARRIED.findall(sentence))
    words: dict[str, tuple[str, int]] = {}
    occupied = set(re.findall(r"\w+", sentence)) if counts else set()
    for stand_in, count in counts.items():
        free = [word for word in _pool(spans[stand_in], vocabulary) if word not in occupied]
        if attempt < min(_ATTEMPTS, len(free)):
            words[stand_in] = free[attempt], count
            occupied.add(free[attempt])
    sentence = CARRIED.sub(
        lambda match: match[0] if match[0] in words else lost(match[0]), sentence
    )
    carried = (
        Replacement(*match.span(), words[match[0]][0]) for match in CARRIED.finditer(sentence)
    )
    changes = sorted([*without(sentence), *carried])
    return Bare(sentence, replaced(sentence, changes), changes, words)


def _pool(span: StandIn, vocabulary: KnownWords | None) -> Sequence[str]:
    if vocabulary is None:
        return ()
    return COUNTS if span.reason == "number" else vocabulary.names


def _put_back(
    bare: Bare,
    translation: Translation,
    candidates: Sequence[Candidate],
    links: Sequence[WordLinks],
) -> Translation:
    """A translation whose candidates have the stand-ins of the sentence."""
    source_words = unmoved_words(bare.sentence, bare.changes)
    places = _places(bare)
    restored = []
    for candidate, candidate_links in zip(candidates, links, strict=True):
        carried = [
            Replacement(*match.span(), stand_in)
            for stand_in, (word, _) in bare.words.items()
            for match in standing_alone(word).finditer(candidate.text)
        ]
        inserted = insertions(bare.sentence, candidate.text, places, candidate_links, bare.terms)
        new = candidate.with_replacements(sorted([*carried, *inserted], key=_place), source_words)
        if candidate.alignment:
            links_of_stand_ins = _links(bare.sentence, new)
            new = replace(new, alignment=by_target([*new.alignment, *links_of_stand_ins]))
        restored.append(
            replace(
                new,
                text=found_again(new.text),
                words=[replace(word, text=found_again(word.text)) for word in new.words],
            )
        )
    read_as = {stand_in: word for stand_in, (word, _) in bare.words.items()}
    return translation.with_candidates(
        restored,
        source=found_again(bare.sentence),
        read_as={**translation.read_as, **read_as},
    )


def restored(translation: Translation, stand_ins: StandIns) -> Translation:
    """A translation with the spans in the places of their stand-ins."""
    if not STAND_IN.search(translation.source):
        return translation
    source_changes = stand_ins.sources(translation.source)
    source_words = moved_words(translation.source, source_changes)
    candidates = [
        candidate.with_replacements(stand_ins.targets(candidate.text), source_words)
        for candidate in translation.alternatives
    ]
    best = vars(candidates[0]) if candidates else {}
    names = {
        replaced(name, stand_ins.sources(name)): word for name, word in translation.read_as.items()
    }
    return replace(
        translation,
        **best,
        source=replaced(translation.source, source_changes),
        alternatives=candidates,
        read_as=names,
        terms=stand_ins.terms(translation.source),
        sentences=[restored(sentence, stand_ins) for sentence in translation.sentences],
    )


def _place(change: Replacement) -> tuple[int, int]:
    """Insertions at one place stay in their order."""
    return change.start, change.stop


def _places(bare: Bare) -> list[int]:
    """For each word of the text the place of its first character in the sentence."""
    places, shift, step = [], 0, 0
    for start, _ in word_spans(bare.text):
        while step < len(bare.changes):
            change = bare.changes[step]
            end = change.start + shift + len(change.text)  # in the text
            if start < change.start + shift or (start < end and change.text.strip()):
                break
            shift += len(change.text) - (change.stop - change.start)
            step += 1
        places.append(start - shift)
    return places


def _links(sentence: str, candidate: Candidate) -> Iterator[Link]:
    """The links of stand-ins with themselves, where these are words without links: a tag at a word links no words."""
    linked = {target for _, target in candidate.alignment}
    targets: dict[str, list[int]] = {}
    for word, characters in enumerate(candidate.text.split()):
        for stand_in in STAND_IN.findall(characters):
            targets.setdefault(stand_in, []).append(word)
    for word, characters in enumerate(sentence.split()):
        for stand_in in STAND_IN.findall(characters):
            if targets.get(stand_in):
                target = targets[stand_in].pop(0)
                if target not in linked:
                    yield word, target
