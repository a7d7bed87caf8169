"""Lines of several sentences, translated one by one and joined again; second searches, and doubts."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from itertools import chain, islice
from typing import TypeVar

import torch

from regard.attention.looks import StoredLook
from regard.translation.decoding.search import Search
from regard.translation.doubts import Doubts, wordless
from regard.translation.evaluation.alignment import Link
from regard.translation.models.protocol import Looks
from regard.translation.reading import sentences as reading
from regard.translation.results import Candidate, Translation, Word, in_capitals
from regard.translation.text import sentences
from regard.translation.text.capitals import in_small_letters
from regard.translation.text.normalisation import clean, normalise
from regard.translation.text.numbers import is_number
from regard.translation.text.sentences import Sentence
from regard.translation.text.tokenizer import EOS
from regard.translation.words import KnownWords

T = TypeVar("T")
# Pieces of a sequence that may not occur twice in a second search: loops are measured by as many.
NO_REPEAT = 4


def check_several(texts: Iterable[str]) -> None:
    """Raise `TypeError` for one text where several are expected."""
    if isinstance(texts, str):
        raise TypeError("got one text: pass a list of sentences, [text]")


def translate(
    lines: Sequence[str],
    language: str | None,
    search: Search,
    learnt: Doubts | None,
    words: KnownWords | None,
    translated: Callable[[list[str], list[str] | None, Search], list[Translation]],
    copied: Callable[[list[str], Search], list[Translation]],
    begun: tuple[Sequence[str], str] | None = None,
) -> list[Translation]:
    """The translations of lines, whose sentences `translated` translates one by one.

    Those in capitals are read in small letters, and those whose translations repeat themselves are searched again
    with twice the beam and no sequence twice. A sentence with words that the training text does not have may be read
    in another way (see `reading`). One that is a number only is its own translation.

    Args:
        language: in which sentences are found; with None, every line is one.
        words: those of the training text; with None, sentences are read as they are written.
        translated: from sentences, and how the translation of each must begin, to translations.
        copied: from sentences to themselves as translations, with their pieces and scores.
        begun: how the translation of each line must begin, and the language of that.
    """
    check_several(lines)
    lines = list(map(clean, lines))
    parts = [
        [Sentence("", line, "")] if language is None else sentences.of_line(line, language)
        for line in lines
    ]
    starts = None
    if begun is not None:
        starts = _all(
            prefixes(one, own, begun[1]) for one, own in zip(begun[0], parts, strict=True)
        )
    texts = [part.text for own in parts for part in own]
    small = search.capitals and starts is None
    read = [in_small_letters(text) if small else text for text in texts]

    def some(rows: Sequence[int], search: Search) -> list[Translation]:
        own = None if starts is None else [starts[row] for row in rows]
        sources = [read[row] for row in rows]
        if words is None:
            found = translated(sources, own, search)
        else:
            once = own is not None or search.sampling
            found = reading.translate(
                sources, words, search, lambda each: translated(each, own, search), once=once
            )
        return [
            one if read[row] == texts[row] else in_capitals(texts[row], one)
            for row, one in zip(rows, found, strict=True)
        ]

    copies = search.numbers and (words is None or words.numbers)
    same = [row for row, text in enumerate(texts) if copies and is_number(text)]
    same = [row for row in same if starts is None or not starts[row]]
    others = sorted(set(range(len(texts))).difference(same))
    made = dict(zip(others, some(others, search), strict=True))
    for row, one in zip(same, copied([texts[row] for row in same], search), strict=True):
        made[row] = _copy(texts[row], one, search)
    found = [made[row] for row in range(len(texts))]
    rows = [row for row, one in enumerate(found) if one.repeats]
    if rows and search.search_again and not search.no_repeat_ngram:
        wider = search.changed(beam=min(1000, 2 * search.beam), no_repeat_ngram=NO_REPEAT)
        for row, one in zip(rows, some(rows, wider), strict=True):
            found[row] = replace(one, repeats=True)
    for row in others:
        found[row] = doubted(found[row], learnt, "" if starts is None else starts[row])
    return join(lines, parts, found, drawn=search.sampling)


def _copy(text: str, one: Translation, search: Search) -> Translation:
    """The translation of a text by itself: there is nothing to doubt, whatever the model knows of it."""
    confidences = [word.confidence for word in one.words]
    words = list(map(Word, text.split(), confidences))
    best = replace(one.alternatives[0], text=text, words=words)
    draws = search.nbest if search.sampling else 1
    one = replace(one, cut=0, unknown=[], unseen=[], repeats=False)
    return replace(one, **vars(best), alternatives=[best] * draws)


def prefixes(given: str, parts: Sequence[Sentence], language: str) -> list[str]:
    """The beginning of a line's translation as one for each of its sentences; the last takes all that is left.

    >>> both = [Sentence("", "Hola.", " "), Sentence("", "¿Qué tal?", "")]
    >>> prefixes("Hi. How", both, "en"), prefixes("Hi", both, "en")
    (['Hi.', 'How'], ['Hi', ''])
    """
    if len(parts) == 1:
        return [given]
    begun = [part.text for part in sentences.of_line(given, language)]
    most = len(parts) - 1
    some = [*begun[:most], " ".join(begun[most:])]
    return some + [""] * (len(parts) - len(some))


def doubted(one: Translation, learnt: Doubts | None, prefix: str = "") -> Translation:
    """The translation of a sentence with the reasons to doubt it; words of a prefix may be improbable."""
    named = {"no words": wordless(one.source), "cut": one.cut, "unknown": one.unknown}
    named |= {"unseen": one.unseen, "repeats": one.repeats, "unfinished": one.unfinished}
    reasons = [name for name, so in named.items() if so]
    if learnt is not None and one.target_pieces:
        confidence = 0.0 if prefix else one.log_probability / len(one.target_pieces)
        reasons += learnt.reasons(one.source, one.text, confidence)
    return replace(one, doubts=reasons)


def join(
    lines: Sequence[str],
    parts: Sequence[Sequence[Sentence]],
    found: Sequence[Translation],
    *,
    drawn: bool = False,
) -> list[Translation]:
    """The translations of lines from those of all their sentences. `drawn` ones were sampled."""
    supply = iter(found)
    return [
        _joined(line, own, list(islice(supply, len(own))), drawn)
        for line, own in zip(lines, parts, strict=True)
    ]


def _joined(
    line: str, parts: Sequence[Sentence], found: list[Translation], drawn: bool
) -> Translation:
    if len(found) == 1:
        return found[0]
    candidates = [_candidate(parts, chosen) for chosen in _choices(found, drawn)]
    return Translation(
        source=line,
        **vars(candidates[0]),
        source_pieces=_all(one.source_pieces for one in found),
        target_pieces=_all(one.target_pieces for one in found),
        probabilities=_all(one.probabilities for one in found),
        unknown=_all(one.unknown for one in found),
        unseen=_all(one.unseen for one in found),
        source_ids=_ids([one.source_ids for one in found]),
        target_ids=_ids([one.target_ids for one in found]),
        looks=_looks([one.looks for one in found]),
        alternatives=candidates,
        cut=sum(one.cut for one in found),
        repeats=any(one.repeats for one in found),
        unfinished=any(one.unfinished for one in found),
        doubts=list(dict.fromkeys(_all(one.doubts for one in found))),
        read_as={word: other for one in found for word, other in one.read_as.items()},
        sentences=found,
    )


def _all(each: Iterable[list[T]]) -> list[T]:
    return list(chain.from_iterable(each))


def _ids(each: Sequence[list[int]]) -> list[int]:
    """All ids, with the end of a sentence between them, so that they are as many as the pieces before the last end."""
    return _all([*ids, EOS] for ids in each)[:-1]


def _choices(found: Sequence[Translation], drawn: bool) -> list[list[Candidate]]:
    """A candidate for each sentence: those with the best sums of scores, or draw by draw."""
    each = [one.alternatives or [_own(one)] for one in found]
    if drawn:
        return [list(chosen) for chosen in zip(*each, strict=False)]
    count = max(map(len, each))
    best: list[list[Candidate]] = [[]]
    for candidates in each:
        longer = ([*chosen, one] for chosen in best for one in candidates)
        best = sorted(longer, key=lambda some: -sum(one.score for one in some))[:count]
    return best


def _own(one: Translation) -> Candidate:
    return Candidate(**{field.name: getattr(one, field.name) for field in fields(Candidate)})


def _candidate(parts: Sequence[Sentence], chosen: Sequence[Candidate]) -> Candidate:
    """The candidate of a line; sentences without white space between them share a word."""
    text, after, read = "", " ", 0
    words: list[Word] = []
    links: list[Link] = []
    for part, one in zip(parts, chosen, strict=True):
        own = list(one.words)
        if not after:
            read -= 1
            if words and own:
                last = words.pop()
                own[0] = Word(last.text + own[0].text, last.confidence * own[0].confidence)
        links += [(read + source, len(words) + target) for source, target in one.alignment]
        words += own
        text, after = text + one.text + part.after, part.after
        read += len(normalise(part.text).split())
    score = sum(one.score for one in chosen)
    log_probability = sum(one.log_probability for one in chosen)
    return Candidate(text, score, log_probability, words, list(dict.fromkeys(links)))


def _looks(each: Sequence[Looks]) -> Looks:
    """The looks of the whole line: no sentence reads another."""
    found: Looks = {}
    for name in each[0]:
        weights = [looks[name].weights()[0] for looks in each]
        heads = [torch.block_diag(*some) for some in zip(*weights, strict=True)]
        found[name] = StoredLook(torch.stack(heads).unsqueeze(0))
    return found
