"""Lines of several sentences: divided, and joined again after the translation of each sentence."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import fields, replace
from itertools import chain, islice, repeat, zip_longest
from typing import Any, TypeVar

import torch

from regard.attention.looks import StoredLook
from regard.errors import ConfigurationError
from regard.translation.doubts import Doubts
from regard.translation.evaluation.alignment import Link
from regard.translation.models.protocol import Looks
from regard.translation.reading import sentences as reading
from regard.translation.reading.carrying import Carrier, restored
from regard.translation.reading.readings import TermTranslator
from regard.translation.results import Candidate, Translation, Word
from regard.translation.settings.search import Search
from regard.translation.text.boundaries import Boundaries
from regard.translation.text.glossary import KEEP, Glossary
from regard.translation.text.letters import WORD, in_small_letters
from regard.translation.text.normalisation import composed, normalise
from regard.translation.text.numbers import is_number
from regard.translation.text.sentences import Sentence, of_line
from regard.translation.text.spans import Span, spans
from regard.translation.text.stand_ins import STAND_IN, StandIns
from regard.translation.text.tokenizer import EOS
from regard.translation.words import KnownWords

T = TypeVar("T")
# Lines that are taken from a stream at a time.
CHUNK = 256


def translate(
    lines: Sequence[str],
    translator: TermTranslator,
    search: Search,
    *,
    words: KnownWords | None,
    doubts: Doubts | None,
    language: str | None,
    prefix: str | Sequence[str] | None = None,
    target_language: str = "",
    readable: Set[str] = frozenset(),
    glossary: Glossary | Mapping[str, str] | None = None,
) -> list[Translation]:
    """The translations of lines, whose sentences are translated one by one (see `reading.sentences`).

    Args:
        words, doubts: what is known of the training text.
        language: in which sentences are found; with None, every line is one.
        prefix: the beginning of every translation, or that of each, in the `target_language`.
        readable: the characters that the model reads; with others, and markup, see `reading.carrying`.
        glossary: terms, which every translation writes as it has them.

    Raises:
        ConfigurationError: not one prefix a line, or prefixes and a glossary.
        DataError: the glossary cannot be used.
        TypeError: one text in place of several.
    """
    check_several(lines)
    prefixes = [prefix] * len(lines) if isinstance(prefix, str) else prefix
    if prefixes is not None and len(prefixes) != len(lines):
        raise ConfigurationError(
            f"{len(prefixes)} prefixes for {len(lines)} texts: pass one for each"
        )
    if glossary is not None and prefixes is not None:
        raise ConfigurationError("a prefix and a glossary: leave one of them out")
    if glossary is not None:
        glossary = Glossary.of(glossary)
    lines = list(map(composed, lines))
    begins = [""] * len(lines) if prefixes is None else prefixes
    stand_ins, overlapping = None, list[list[str]]()
    if search.spans or search.capitals or glossary is not None:
        spans_of_lines = [
            [] if begin else spans_of(line, readable, words, search)
            for line, begin in zip(lines, begins, strict=True)
        ]
        if glossary is not None:
            rows = zip(lines, spans_of_lines, strict=True)
            with_terms = [terms_of(line, glossary, spans, words) for line, spans in rows]
            spans_of_lines = [spans for spans, _ in with_terms]
            overlapping = [longer for _, longer in with_terms]
        if any(spans_of_lines) or any(map(STAND_IN.search, lines)):
            stand_ins = StandIns()
            lines = list(map(stand_ins.put, lines, spans_of_lines))
    sentences = list(map(of_line, lines, repeat(language)))
    if words is not None and words.boundaries is not None and language and search.stops:
        sentences = [
            line_sentences if begin else _divided(line_sentences, words.boundaries)
            for line_sentences, begin in zip(sentences, begins, strict=True)
        ]
    if glossary is not None and stand_ins is not None:
        sentences = [_with_whole_terms(group, stand_ins) for group in sentences]
    sentence_prefixes = None
    if prefixes is not None:
        divided = (
            divided_prefix(line_prefix, len(line_sentences), target_language)
            for line_prefix, line_sentences in zip(prefixes, sentences, strict=True)
        )
        sentence_prefixes = _concatenated(divided)
    translations = reading.translate(
        [sentence.text for line_sentences in sentences for sentence in line_sentences],
        Carrier(translator, stand_ins.spans, words) if stand_ins else translator,
        search,
        words=words,
        doubts=doubts,
        prefixes=sentence_prefixes,
    )
    translations = join(lines, sentences, translations, draws=search.sampling)
    if stand_ins is not None:
        translations = [restored(translation, stand_ins) for translation in translations]
    return [
        replace(one, overlapping=terms, doubts=[*one.doubts, "overlapping terms"]) if terms else one
        for one, terms in zip_longest(translations, overlapping)
    ]


def spans_of(line: str, readable: Set[str], words: KnownWords | None, search: Search) -> list[Span]:
    """The stretches of a line that are not read as they are written."""
    if is_number(line):
        return []
    if search.capitals and in_small_letters(line) != line:
        readable = readable | {letter for letter in line if letter.lower() in readable}
    line_spans = spans(line, readable) if search.spans else []
    if words is not None and search.capitals:
        for word in words.capitals(line):
            overlapping = [
                span for span in line_spans if word.start < span.stop and span.start < word.stop
            ]
            # A model may have the small letters alone.
            if all(span.reason == "script" for span in overlapping):
                text = word.text if word.text[0] in readable else word.text.lower()
                line_spans = [span for span in line_spans if span not in overlapping]
                line_spans.append(word._replace(text=text))
        line_spans.sort()
    return line_spans


def terms_of(
    line: str, glossary: Glossary, spans: Sequence[Span], words: KnownWords | None
) -> tuple[list[Span], list[str]]:
    """The spans of a line with its terms among them, and the terms that overlap longer ones.

    A term whose words the training text has is translated with its sentence; then the words that are linked to it give
    way to its target. Another term, or one that stays as it is, is carried by a name (see `reading.carrying`).
    A term within a span, as in an address, is part of that. Other spans that overlap terms are left out.
    """
    matches, overlapping = glossary.matches(line)
    outer = [span for span in spans if span.reason != "capitals"]
    matches = [
        match
        for match in matches
        if all(
            span.stop <= match.start
            or match.stop <= span.start
            or (match.start <= span.start and span.stop <= match.stop)
            for span in outer
        )
    ]
    terms = []
    for start, stop, term in matches:
        text = line[start:stop]
        keeps = term.target == KEEP
        unknown = words is not None and not all(
            words.has(word) or words.has(word.lower()) for word in WORD.findall(text)
        )
        role = "carried" if keeps or unknown else "around"
        terms.append(Span(start, stop, text if keeps else term.target, "term", role))
    free = [
        span
        for span in spans
        if all(span.stop <= term.start or term.stop <= span.start for term in terms)
    ]
    return sorted([*free, *terms]), overlapping


def _with_whole_terms(sentences: Sequence[Sentence], stand_ins: StandIns) -> list[Sentence]:
    """The sentences of a line, those joined that end within a term ("EE. UU.")."""
    answer = list[Sentence]()
    for sentence in sentences:
        if answer and stand_ins.divides_term(answer[-1].text):
            head = answer.pop()
            text = head.text + head.after + sentence.before + sentence.text
            sentence = Sentence(head.before, text, sentence.after)
        answer.append(sentence)
    return answer


def _divided(sentences: Sequence[Sentence], boundaries: Boundaries) -> list[Sentence]:
    """The last sentence of a line, where it has no final mark, divided into those that it may be."""
    *complete, ending = sentences
    if not ending.text[-1:].isalnum():
        return list(sentences)
    texts = boundaries.divided(ending.text)
    return [
        *complete,
        *(Sentence("", text, " ") for text in texts[:-1]),
        Sentence("", texts[-1], ending.after),
    ]


def stream(
    lines: Iterable[str], translate: Callable[..., list[Translation]], seed: int | None = None
) -> Iterator[Translation]:
    """The translations of an endless supply of lines: `translate` takes some at a time, and another seed each time."""
    check_several(lines)
    supply = iter(lines)
    chunks = enumerate(iter(lambda: list(islice(supply, CHUNK)), []))
    return chain.from_iterable(
        translate(chunk, seed=None if seed is None else (seed + number) % 2**63)
        for number, chunk in chunks
    )


def check_several(texts: Iterable[str]) -> None:
    """Raise `TypeError` for one text where several are expected."""
    if isinstance(texts, str):
        raise TypeError("got one text: pass a list of sentences, [text]")


def divided_prefix(prefix: str, count: int, language: str) -> list[str]:
    """The beginning of a line's translation as one for each of its sentences; the last takes all that remains.

    >>> divided_prefix("Hi. How", 2, "en"), divided_prefix("Hi", 2, "en")
    (['Hi.', 'How'], ['Hi', ''])
    """
    if count == 1:
        return [prefix]
    texts = [sentence.text for sentence in of_line(prefix, language)]
    texts = [*texts[: count - 1], " ".join(texts[count - 1 :])]
    return texts + [""] * (count - len(texts))


def join(
    lines: Sequence[str],
    sentences: Sequence[Sequence[Sentence]],
    translations: Sequence[Translation],
    *,
    draws: bool = False,
) -> list[Translation]:
    """The translations of lines from those of all their sentences, which are `draws` where they were sampled."""
    supply = iter(translations)
    return [
        _line_translation(line, line_sentences, list(islice(supply, len(line_sentences))), draws)
        for line, line_sentences in zip(lines, sentences, strict=True)
    ]


def _line_translation(
    line: str, sentences: Sequence[Sentence], translations: list[Translation], draws: bool
) -> Translation:
    if len(translations) == 1:
        return translations[0]
    candidates = [_candidate(sentences, choice) for choice in _choices(translations, draws)]

    names = "source_pieces target_pieces probabilities unknown unseen invented doubts".split()
    lists: dict[str, Any] = {
        name: _concatenated(getattr(translation, name) for translation in translations)
        for name in names
    }
    lists["doubts"] = list(dict.fromkeys(lists["doubts"]))
    return Translation(
        source=line,
        **vars(candidates[0]),
        **lists,
        source_ids=_ids(translation.source_ids for translation in translations),
        target_ids=_ids(translation.target_ids for translation in translations),
        looks=_looks([translation.looks for translation in translations]),
        alternatives=candidates,
        cut=sum(translation.cut for translation in translations),
        quality=min(
            (each.quality for each in translations if each.quality is not None), default=None
        ),
        repeats=any(translation.repeats for translation in translations),
        unfinished=any(translation.unfinished for translation in translations),
        read_as=dict(chain.from_iterable(each.read_as.items() for each in translations)),
        sentences=translations,
    )


def _concatenated(lists: Iterable[list[T]]) -> list[T]:
    return list(chain.from_iterable(lists))


def _ids(sentences: Iterable[list[int]]) -> list[int]:
    """All ids, with the end of a sentence between them, so that they are as many as the pieces before the last end."""
    return _concatenated([*ids, EOS] for ids in sentences)[:-1]


def _choices(translations: Sequence[Translation], draws: bool) -> list[list[Candidate]]:
    """A candidate for each sentence: those with the best sums of scores, or draw by draw."""
    names = [field.name for field in fields(Candidate)]
    candidates = [
        translation.alternatives or [Candidate(*(getattr(translation, name) for name in names))]
        for translation in translations
    ]
    if draws:
        return [list(choice) for choice in zip(*candidates, strict=False)]
    count = max(map(len, candidates))
    best: list[list[Candidate]] = [[]]
    for alternatives in candidates:
        longer = ([*choice, candidate] for choice in best for candidate in alternatives)
        best = sorted(longer, key=lambda choice: -sum(each.score for each in choice))[:count]
    return best


def _candidate(sentences: Sequence[Sentence], candidates: Sequence[Candidate]) -> Candidate:
    """The candidate of a line; sentences without white space between them share a word."""
    text, space, source_words = "", " ", 0
    words: list[Word] = []
    links: list[Link] = []
    for sentence, candidate in zip(sentences, candidates, strict=True):
        sentence_words = list(candidate.words)
        if not space:
            source_words -= 1
            if words and sentence_words:
                last_word, next_word = words.pop(), sentence_words[0]
                text_of_both = last_word.text + next_word.text
                sentence_words[0] = replace(last_word.together(next_word), text=text_of_both)
        links += [
            (source_words + source, len(words) + target) for source, target in candidate.alignment
        ]
        words += sentence_words
        text, space = text + candidate.text + sentence.after, sentence.after
        source_words += len(normalise(sentence.text).split())
    score = sum(candidate.score for candidate in candidates)
    log_probability = sum(candidate.log_probability for candidate in candidates)
    return Candidate(text, score, log_probability, words, list(dict.fromkeys(links)))


def _looks(sentences: Sequence[Looks]) -> Looks:
    """The looks of the whole line: no sentence reads another."""
    looks: Looks = {}
    for name in sentences[0]:
        weights = [sentence[name].weights()[0] for sentence in sentences]
        heads = [torch.block_diag(*blocks) for blocks in zip(*weights, strict=True)]
        looks[name] = StoredLook(torch.stack(heads).unsqueeze(0))
    return looks
