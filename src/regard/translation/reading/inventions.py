"""Words that a model invented, replaced by the source words that they are linked to.

A word is invented where neither the training text nor the source has it. As Luong et al. 2015 ("Addressing the Rare
Word Problem in Neural Machine Translation"), with the links of attention in place of positions.
"""

from collections.abc import Sequence
from dataclasses import replace

from regard.translation.evaluation.alignment import Link
from regard.translation.reading.changes import changed
from regard.translation.reading.readings import Reading, SentenceTranslator
from regard.translation.text.letters import WORD
from regard.translation.text.replacements import Replacement, word_spans
from regard.translation.text.stand_ins import outside_terms
from regard.translation.words import KnownWords


def with_source_words(
    words: KnownWords, readings: Sequence[Reading], translator: SentenceTranslator
) -> list[Reading]:
    """The readings, in whose translations no word is invented that is linked to a word of the source."""
    answer = list(readings)
    invented = {
        row: inventions
        for row, (source, translation) in enumerate(readings)
        if (inventions := words.invented(source, outside_terms(translation.text)))
    }
    links = translator.links(
        [(readings[row].source, readings[row].translation.text) for row in invented]
    )
    for (row, inventions), row_links in zip(invented.items(), links, strict=True):
        source, translation = readings[row]
        changes = _copies(source, translation.text, set(inventions), row_links.links)
        best = translation.alternatives[0]
        same_words = [[place] for place in range(len(source.split()))]
        copied = changed(best, changes, same_words)
        new = replace(
            translation,
            **vars(copied),
            alternatives=[copied, *translation.alternatives[1:]],
            invented=inventions,
        )
        answer[row] = Reading(source, new)
    return answer


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
