"""Sentences translated in the reading that suits them, with the reasons to doubt the result.

Numbers are copied. Capitals are read in small letters, accents are restored, typing errors are corrected, and names and
numbers that were lost are put back (see `placeholders`). A translation that repeats itself is searched for again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat

from regard.translation.doubts import Doubts, doubted
from regard.translation.evaluation.alignment import Link
from regard.translation.reading.placeholders import with_placeholders
from regard.translation.reading.readings import Reading, SentenceTranslator, clearer
from regard.translation.results import Candidate, Translation, Word
from regard.translation.settings.search import Search
from regard.translation.text.letters import WORD, in_small_letters, in_title_case
from regard.translation.text.normalisation import normalise
from regard.translation.text.numbers import is_number
from regard.translation.text.replacements import Replacement, word_spans
from regard.translation.text.stand_ins import STAND_IN, TERM
from regard.translation.words import KnownWords

# Pieces of a sequence that may not occur twice in a second search: loops are measured by as many.
NO_REPEAT = 4
_LARGEST_BEAM = 1000
Case = Callable[[str], str]


def translate(
    sentences: Sequence[str],
    translator: SentenceTranslator,
    search: Search,
    *,
    words: KnownWords | None,
    doubts: Doubts | None,
    prefixes: Sequence[str] | None = None,
) -> list[Translation]:
    """The translations of sentences.

    Args:
        search: which readings are tried.
        words: those of the training text; with None, sentences are read as they are written.
        doubts: the statistics of the training text.
        prefixes: how each translation must begin; "" for any way. With another one, a sentence is read as it is
            written, but for accents.
    """
    begins = prefixes or [""] * len(sentences)
    copies = search.numbers and (words is None or words.numbers)

    def translate_rows(rows: Sequence[int], search: Search) -> list[Translation]:
        answers: dict[int, Translation] = {}
        for is_bound in (False, True):
            group = [row for row in rows if bool(begins[row]) is is_bound]
            texts = [sentences[row] for row in group]
            group_prefixes = [begins[row] for row in group] if is_bound else None
            if group:
                readings = _read(texts, translator, search, words, group_prefixes)
                answers |= zip(group, readings, strict=True)
        return [answers[row] for row in rows]

    copied = [
        row
        for row, text in enumerate(sentences)
        if not begins[row] and ((copies and is_number(text)) or _has_only_stand_ins(text))
    ]
    searched = [row for row in range(len(sentences)) if row not in set(copied)]
    translations = dict(zip(searched, translate_rows(searched, search), strict=True))
    loops = [row for row in searched if translations[row].repeats]
    if loops and search.search_again and not search.no_repeat_ngram:
        beam = min(_LARGEST_BEAM, 2 * search.beam)
        wider = search.changed(beam=beam, no_repeat_ngram=NO_REPEAT)
        for row, translation in zip(loops, translate_rows(loops, wider), strict=True):
            translations[row] = replace(translation, repeats=True)
    for row in searched:
        translations[row] = doubted(translations[row], doubts, begins[row])
    if copied:
        copies_of_numbers = translator.copy([sentences[row] for row in copied], search)
        for row, translation in zip(copied, copies_of_numbers, strict=True):
            copy = _as_copy(sentences[row], translation, search)
            certain = 1.0 if doubts is not None and doubts.quality is not None else None
            translations[row] = replace(copy, quality=certain)
    return [translations[row] for row in range(len(sentences))]


def spellings(words: KnownWords, sources: Sequence[str]) -> dict[int, str]:
    """By row, the sources in another spelling, in which an unknown word may have no typing error.

    Kernighan, Church and Gale 1990 ("A Spelling Correction Program Based on a Noisy Channel Model"), with frequency for
    the probability of a word, every single error equally probable, and the translation model as the judge.
    """
    corrected = enumerate(map(words.corrected, sources))
    return {row: text for row, text in corrected if text != sources[row]}


def respelt(readings: Sequence[Reading], respellings: Mapping[int, Reading]) -> list[Reading]:
    """The readings, with other spellings where these make the translation clearly more probable."""
    answer = list(readings)
    for row, spelling in respellings.items():
        if clearer(spelling.translation, readings[row].translation):
            answer[row] = spelling
    return answer


def with_source_words(
    words: KnownWords, readings: Sequence[Reading], translator: SentenceTranslator
) -> list[Reading]:
    """The readings, in whose translations no word is invented that is linked to a word of the source.

    A word is invented where neither the training text nor the source has it. As Luong et al. 2015 ("Addressing the Rare
    Word Problem in Neural Machine Translation"), with the links of attention in place of positions.
    """
    invented = {
        row: inventions
        for row, (source, translation) in enumerate(readings)
        if (inventions := words.invented(source, TERM.sub(" ", translation.text)))
    }
    if not invented:
        return list(readings)
    answer = list(readings)
    links = translator.links(
        [(readings[row].source, readings[row].translation.text) for row in invented]
    )
    for (row, inventions), row_links in zip(invented.items(), links, strict=True):
        source, translation = readings[row]
        changes = _copies(source, translation.text, set(inventions), row_links.links)
        best = translation.alternatives[0]
        same_words = [[place] for place in range(len(source.split()))]
        copied = best.with_replacements(changes, same_words)
        candidates = [copied, *translation.alternatives[1:]]
        answer[row] = Reading(source, translation.with_candidates(candidates, invented=inventions))
    return answer


def _read(
    sentences: Sequence[str],
    translator: SentenceTranslator,
    search: Search,
    words: KnownWords | None,
    prefixes: Sequence[str] | None,
) -> list[Translation]:
    cases = [
        read_case(text, words) if search.capitals and prefixes is None else (text, None)
        for text in sentences
    ]
    texts = [text for text, _ in cases]
    translations = _mended(texts, translator, search, words, prefixes)
    return [
        translation if case is None else _recased(sentence, translation, case)
        for sentence, (_, case), translation in zip(sentences, cases, translations, strict=True)
    ]


def read_case(text: str, words: KnownWords | None) -> tuple[str, Case | None]:
    """A text as its letters are read, and how its translation is then written; None for as it is."""
    if (small := in_small_letters(text)) != text:
        return small, str.upper
    if words is not None and (sentence := words.in_sentence_case(text)) != text:
        return sentence, in_title_case
    return text, None


def _mended(
    texts: Sequence[str],
    translator: SentenceTranslator,
    search: Search,
    words: KnownWords | None,
    prefixes: Sequence[str] | None,
) -> list[Translation]:
    """The translations of sentences in small letters, with accents, spelling and names mended."""
    if words is None:
        return translator.translate(texts, search, prefixes)
    normal = list(map(normalise, texts))
    sources = normal
    if search.accents:
        vocabulary = words.rank.keys()
        sources = [words.accents.restored(text, vocabulary) for text in normal]
    is_free = prefixes is None and not search.sampling
    corrected = spellings(words, sources) if is_free and search.spelling else {}
    # Both spellings are searched for in one batch: a step of few rows takes nearly as long as one of many.
    texts_read = [*sources, *corrected.values()]
    readings = list(map(Reading, texts_read, translator.translate(texts_read, search, prefixes)))
    if is_free and search.placeholders:  # an unknown word is a name, or else a typing error
        readings = with_placeholders(words, readings, translator, search)
    respellings = dict(zip(corrected, readings[len(sources) :], strict=True))
    readings = respelt(readings[: len(sources)], respellings)
    if is_free and search.inventions:
        readings = with_source_words(words, readings, translator)
    return [
        translation
        if text == source == translation.source
        else replace(
            translation, source=text, read_as={**_changes(old, source), **translation.read_as}
        )
        for text, old, (source, translation) in zip(texts, normal, readings, strict=True)
    ]


def _has_only_stand_ins(text: str) -> bool:
    """Whether a text has stand-ins and no letters, so that there is nothing to translate."""
    return bool(STAND_IN.search(text)) and not any(map(str.isalpha, text))


def _changes(text: str, source: str) -> dict[str, str]:
    """The words of a normalised text that were read as others."""
    pairs = zip(WORD.findall(text), WORD.findall(source), strict=True)
    return {written: read for written, read in pairs if written != read}


def _recased(text: str, translation: Translation, case: Case) -> Translation:
    """The translation, in capitals or Title Case, of a text that was read in small letters."""
    candidates = [
        replace(
            candidate,
            text=case(candidate.text),
            words=[replace(word, text=case(word.text)) for word in candidate.words],
        )
        for candidate in translation.alternatives
    ]
    read_as = {case(written): case(read) for written, read in translation.read_as.items()}
    return translation.with_candidates(candidates, source=text, read_as=read_as)


def _as_copy(text: str, translation: Translation, search: Search) -> Translation:
    """The translation of a text by itself. It has no doubts, also where the model does not know its pieces."""
    confidences = [word.confidence for word in translation.words]
    words = list(map(Word, text.split(), chain(confidences, repeat(1.0))))
    candidates = translation.alternatives or [Candidate(text)]
    best = replace(candidates[0], text=text, words=words)
    draws = search.nbest if search.sampling else 1
    return translation.with_candidates(
        [best] * draws, source=text, cut=0, unknown=[], unseen=[], repeats=False
    )


def _copies(source: str, text: str, invented: set[str], links: Sequence[Link]) -> list[Replacement]:
    """The changes that put linked words of the source in the places of invented words."""
    sources, changes = source.split(), []
    linked = {target: word for word, target in reversed(links)}
    for place, (start, stop) in enumerate(word_spans(text)):
        for match in WORD.finditer(text, start, stop):
            if match[0] in invented and place in linked:
                copies = WORD.findall(sources[linked[place]])
                if copies:
                    changes.append(Replacement(*match.span(), max(copies, key=len)))
                break
    return changes
