"""Where the stand-ins that were taken out of a sentence belong in its translation, by the links of words.

After Müller 2017 ("Treatment of Markup in Statistical Machine Translation") and Hanneman and Dinu 2020 ("How Should
Markup Tags Be Translated?"): a pair wraps the stretch that its content is linked to.
"""

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from regard.translation.aligning.projection import project
from regard.translation.evaluation.alignment import WordLinks
from regard.translation.text.replacements import Replacement, occurrences, word_spans
from regard.translation.text.stand_ins import STAND_IN, TAKEN_OUT, opens_term, role_of

_TAKEN_OUT = re.compile(TAKEN_OUT)
# One or several, with the white space around them.
_RUN = re.compile(rf"\s*{TAKEN_OUT}(?:\s*{TAKEN_OUT})*\s*")
_CLOSING = frozenset(".,;:!?)]}»…")
# Characters beside a stand-in that are looked at.
_CONTEXT = 40


def without(sentence: str) -> list[Replacement]:
    """The changes that take stand-ins out of a sentence, and white space that is then too much."""
    changes = []
    for run in _RUN.finditer(sentence):
        left_character = sentence[run.start() - 1 : run.start()] if run.start() else ""
        right_character = sentence[run.end() : run.end() + 1]
        spaced = run[0] != "".join(run[0].split())
        glued = left_character.isalnum() and right_character.isalnum() and len(run[0].strip()) == 1
        is_half = role_of(run[0].strip()[0]) != "taken out"
        keeps = spaced or (glued and not is_half)
        inner = left_character != "" and right_character not in ("", *_CLOSING)
        keeps = keeps and inner
        changes.append(Replacement(*run.span(), " " if keeps else ""))
    return changes


class Pair(NamedTuple):
    """The places of the halves of a pair in a sentence."""

    start: int
    stop: int


@dataclass(frozen=True)
class Words:
    """The words of a text: the characters from their first letter to their last one, and the whole words."""

    text: str
    spans: Sequence[tuple[int, int]]
    cores: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, text: str) -> "Words":
        spans = word_spans(text)
        return cls(text, spans, [_core(text, *span) for span in spans])


def _core(text: str, start: int, stop: int) -> tuple[int, int]:
    letters = [
        place
        for place in range(start, stop)
        if text[place].isalnum() or STAND_IN.match(text[place])
    ]
    return (letters[0], letters[-1] + 1) if letters else (start, stop)


class Insertion(NamedTuple):
    """Stand-ins that are put into a translation, by their place and their order."""

    place: int
    order: int
    text: str


def insertions(
    sentence: str, target: str, places: Sequence[int], links: WordLinks, terms: Mapping[int, str]
) -> list[Replacement]:
    """The changes that put the stand-ins of a sentence into its translation.

    Args:
        sentence: with stand-ins.
        target: the translation of the sentence without them.
        places: for each word of the sentence without stand-ins the place of its first character in the sentence.
        links: of these words and those of the translation.
        terms: by the places of their openings, the targets of terms, which the translation may have already.
    """
    return _Placement(sentence, Words.of(target), places, links, terms).changes()


class _Placement:
    def __init__(
        self,
        sentence: str,
        target: Words,
        places: Sequence[int],
        links: WordLinks,
        terms: Mapping[int, str],
    ) -> None:
        self.sentence, self.target, self.terms = sentence, target, terms
        self.cores = [_next_letters(sentence, place) for place in places]
        self.to_targets, self.to_sources = (
            defaultdict[int, set[int]](set),
            defaultdict[int, set[int]](set),
        )
        self.nearest = links.nearest
        for source_word, target_word in links.links:
            self.to_targets[source_word].add(target_word)
            self.to_sources[target_word].add(source_word)

    def changes(self) -> list[Replacement]:
        stand_ins = list(_TAKEN_OUT.finditer(self.sentence))
        pairs = dict(self._pairs([match.start() for match in stand_ins]))
        halves = {place for pair in pairs.items() for place in pair}
        offsets = self._pair_offsets(pairs)
        inserted = []
        for order, match in enumerate(stand_ins):
            place = match.start()
            offset = offsets[place] if place in halves and place in offsets else self._single(place)
            inserted.append(Insertion(offset, order, match[0]))
        return list(self._spaced(sorted(inserted)))

    def _pairs(self, places: Sequence[int]) -> Iterator[Pair]:
        """Openings and the closings that they belong to."""
        openings = list[int]()
        for place in places:
            role = role_of(self.sentence[place])
            if role == "opening":
                openings.append(place)
            elif role == "closing" and openings:
                yield Pair(openings.pop(), place)

    def _pair_offsets(self, pairs: dict[int, int]) -> dict[int, int]:
        """The places of halves in the translation; pairs are nested, and so are their stretches."""
        offsets = dict[int, int]()
        all_words = range(len(self.cores))
        open_pairs = [(len(self.sentence), 0, len(self.target.spans), set[int](), all_words)]
        for start, stop in sorted(pairs.items()):
            while open_pairs[-1][0] < start:
                open_pairs.pop()
            _, low, high, claimed, outer = open_pairs[-1]
            words = range(bisect(self.cores, start), bisect(self.cores, stop))
            if match := self._term_match(start, low, high, claimed):
                offsets[start], offsets[stop] = match.span()
                begin, end = self._words_of(match)
                claimed.update(range(begin, end))
                open_pairs.append((stop, begin, end, set(), words))
                continue
            begin, end = self._stretch(words, low, high, claimed)
            if begin == end:
                begin, end = self._nearest(words, low, high, claimed)
            else:
                is_term = opens_term(self.sentence[start])
                begin, end = self._extended(begin, end, words, outer, low, high, is_term)
            if begin == end:
                offset = self._within(self._single(start), low, high)
                offsets[start] = offsets[stop] = offset
            else:
                claimed.update(range(begin, end))
                inside = self.sentence[start + 1 : stop]
                leading = _is_mark(_TAKEN_OUT.sub("", inside)[:1])
                trailing = _is_mark(_TAKEN_OUT.sub("", inside)[-1:])
                offsets[start] = (self.target.spans if leading else self.target.cores)[begin][0]
                offsets[stop] = (self.target.spans if trailing else self.target.cores)[end - 1][1]
            open_pairs.append((stop, begin, end, set(), words))
        return offsets

    def _term_match(
        self, start: int, low: int, high: int, claimed: set[int]
    ) -> re.Match[str] | None:
        """Where the translation has the target of a term, in free words from `low` to `high`."""
        target = self.terms.get(start)
        if target is None:
            return None
        for match in occurrences(target, self.target.text):
            begin, end = self._words_of(match)
            if low <= begin and end <= high and claimed.isdisjoint(range(begin, end)):
                return match
        return None

    def _words_of(self, match: re.Match[str]) -> tuple[int, int]:
        starts = [start for start, _ in self.target.spans]
        return bisect(starts, match.start()) - 1, bisect(starts, match.end() - 1)

    def _nearest(self, words: range, low: int, high: int, claimed: set[int]) -> tuple[int, int]:
        """The target word that is most likely linked to some words which have no links."""
        free = (word for word in self.nearest[words.start : words.stop] if low <= word < high)
        place = next((word for word in free if word not in claimed), None)
        return (low, low) if place is None else (place, place + 1)

    def _extended(
        self, begin: int, end: int, words: range, outer: range, low: int, high: int, is_term: bool
    ) -> tuple[int, int]:
        """A stretch with the words without links before it, where its source words are the first ones, or behind it.

        Not that of a term, which is replaced.
        """
        if words == outer:
            return low, high
        if is_term:
            return begin, end
        while words.start == outer.start and begin > low and not self.to_sources[begin - 1]:
            begin -= 1
        while words.stop == outer.stop and end < high and not self.to_sources[end]:
            end += 1
        return begin, end

    def _within(self, offset: int, low: int, high: int) -> int:
        """The nearest place to an offset that is between two words."""
        if low == high:
            return (
                self.target.cores[low][0] if low < len(self.target.cores) else len(self.target.text)
            )
        return min(max(offset, self.target.cores[low][0]), self.target.cores[high - 1][1])

    def _stretch(
        self, source_words: range, low: int, high: int, claimed: set[int]
    ) -> tuple[int, int]:
        """The stretch of target words, among those from `low` to `high`, with most links to some source words."""
        edges = [low, *sorted(word for word in claimed if low <= word < high), high]
        projections = [
            project(source_words, self.to_sources, range(begin + (begin in claimed), end))
            for begin, end in pairwise(edges)
        ]
        places = max(projections, key=lambda projection: round(projection.gain, 9)).places
        return places.start, places.stop

    def _single(self, place: int) -> int:
        """Where a stand-in belongs by the words beside it."""
        sentence, target = self.sentence, self.target
        middle = bisect(self.cores, place)
        earlier_words, later_words = range(middle), range(middle, len(self.cores))
        if not earlier_words or not target.spans:
            return 0
        context = sentence[max(0, place - _CONTEXT) : place], sentence[place + 1 :][:_CONTEXT]
        head, tail = (_TAKEN_OUT.sub("", text) for text in context)
        marked = _is_mark(head.rstrip()[-1:])
        if not later_words:
            is_last = marked or not _is_mark(tail.lstrip()[:1])
            return len(target.text) if is_last else target.cores[-1][1]
        forward = role_of(sentence[place]) == "opening" or (
            tail[:1].isalnum() and context[0][-1:].isspace()
        )
        chains = (later_words, earlier_words[::-1])
        chains = chains if forward else chains[::-1]
        for words, ahead in zip(chains, (forward, not forward), strict=True):
            for word in words[:3]:
                if linked := self.to_targets[word]:
                    if ahead:
                        return target.cores[min(linked)][0]
                    return (target.spans if marked else target.cores)[max(linked)][1]
        if not self.nearest:
            return len(target.text)
        near = self.nearest[later_words[0] if forward else earlier_words[-1]]
        return target.cores[near][0] if forward else target.cores[near][1]

    def _spaced(self, inserted: Sequence[Insertion]) -> Iterator[Replacement]:
        """Insertions with white space where the sentence has it."""
        text = self.target.text
        stand_ins = list(_TAKEN_OUT.finditer(self.sentence))
        for number, (offset, order, stand_in) in enumerate(inserted):
            place = stand_ins[order].start()
            left_character = self.sentence[place - 1 : place] if place else ""
            right_character = self.sentence[place + 1 : place + 2]
            is_first = number == 0 or inserted[number - 1].place != offset
            is_last = number == len(inserted) - 1 or inserted[number + 1].place != offset
            space_before = left_character.isspace() and (
                text[:offset][-1:].strip() != "" if is_first else False
            )
            space_after = right_character.isspace() and (
                text[offset:][:1].strip() not in ("", *_CLOSING) if is_last else True
            )
            yield Replacement(offset, offset, " " * space_before + stand_in + " " * space_after)


def _next_letters(sentence: str, place: int) -> int:
    """The place of the first letter at or behind a place."""
    end = len(sentence)
    return next(
        (
            i
            for i in range(place, end)
            if sentence[i].isalnum()
            or (not _TAKEN_OUT.match(sentence[i]) and STAND_IN.match(sentence[i]))
        ),
        place,
    )


def _is_mark(character: str) -> bool:
    return (
        character != ""
        and not character.isalnum()
        and not character.isspace()
        and not STAND_IN.match(character)
    )
