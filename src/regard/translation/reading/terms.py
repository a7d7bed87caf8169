"""The terms of a glossary among the spans of a line.

A term whose words the training text has is translated with its sentence; then the words that are linked to it give way
to its target. Another term, or one that stays as it is, is carried by a name (see `carrying`).
"""

from collections.abc import Sequence

from regard.translation.text.glossary import KEEP, Glossary
from regard.translation.text.letters import WORD
from regard.translation.text.spans import Span
from regard.translation.words import KnownWords


def terms_of(
    line: str, glossary: Glossary, spans: Sequence[Span], words: KnownWords | None
) -> tuple[list[Span], list[str]]:
    """The spans of a line with its terms among them, and the terms that overlap longer ones.

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
