"""Single characters that stand for the spans of lines while these are divided, translated and joined.

They are of the planes for private use: no letters and no marks, so all readings of a sentence pass them by.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from regard.errors import ConfigurationError
from regard.translation.text.replacements import Replacement, replaced
from regard.translation.text.spans import Span

# The characters of each role. "lost" are those of carried spans that nothing carries: they are taken out, too.
# "term" are the openings of terms.
_RANGES = {
    "carried": (0xF0000, 0xF7FFE),
    "lost": (0xF8000, 0xFFFFE),
    "opening": (0x100000, 0x102000),
    "term": (0x102000, 0x104000),
    "closing": (0x104000, 0x108000),
    "taken out": (0x108000, 0x10FFFE),
}
_LOST = _RANGES["lost"][0] - _RANGES["carried"][0]


def _characters(*roles: str) -> str:
    return "".join(f"{chr(_RANGES[role][0])}-{chr(_RANGES[role][1] - 1)}" for role in roles)


STAND_IN = re.compile(f"[{_characters(*_RANGES)}]")
CARRIED = re.compile(f"[{_characters('carried')}]")
# Of a term that ends in one ("U.S."), the full stop of the sentence; none of an ellipsis.
_STOP = re.compile(r"\.(?!\.)")
# A term: its halves and the words between them.
TERM = re.compile(f"[{_characters('term')}].*?[{_characters('closing')}]")
TAKEN_OUT = f"[{_characters('lost', 'opening', 'term', 'closing', 'taken out')}]"


def role_of(stand_in: str) -> str:
    """The role of the span that a character stands for."""
    role = next(role for role, (begin, end) in _RANGES.items() if begin <= ord(stand_in) < end)
    return "opening" if role == "term" else role


def opens_term(stand_in: str) -> bool:
    begin, end = _RANGES["term"]
    return begin <= ord(stand_in) < end


def lost(stand_in: str) -> str:
    """The character for a carried span that is taken out."""
    return chr(ord(stand_in) + _LOST)


def found_again(text: str) -> str:
    """A text with the characters of carried spans in place of those of lost ones."""
    pattern = f"[{_characters('lost')}]"
    return re.sub(pattern, lambda match: chr(ord(match[0]) - _LOST), text)


class StandIn(NamedTuple):
    """The span that a character stands for, as the source and as the translation write it."""

    source: str
    target: str
    reason: str
    role: str


@dataclass
class StandIns:
    """The stand-ins of some lines; equal spans have the same.

    Attributes:
        spans: what each character stands for.
    """

    spans: dict[str, StandIn] = field(default_factory=dict)
    _characters: dict[StandIn, str] = field(default_factory=dict)
    _free: dict[str, int] = field(
        default_factory=lambda: {role: begin for role, (begin, _) in _RANGES.items()}
    )

    def put(self, line: str, spans: Sequence[Span]) -> str:
        """The line with stand-ins; spans beyond the number of characters stay in it."""
        pieces, end = list[str](), 0
        for span in [*spans, Span(len(line), len(line), "", "")]:
            pieces.append(STAND_IN.sub(self._symbol, line[end : span.start]))
            end = span.stop
            text = line[span.start : span.stop]
            if span.reason == "capitals":
                halves = [
                    self._of(StandIn("", "", span.reason, role)) for role in ("opening", "closing")
                ]
                pieces.append(span.text.join(halves))
            elif span.role == "around":
                opening = StandIn("", span.text, span.reason, "term")
                halves = [self._of(opening), self._of(StandIn("", "", span.reason, "closing"))]
                if not all(halves):
                    raise ConfigurationError("too many different terms at a time: pass fewer texts")
                pieces.append(STAND_IN.sub(self._symbol, text).join(halves))
            elif span.reason:
                pieces.append(self._of(StandIn(text, span.text, span.reason, span.role)) or text)
        return "".join(pieces)

    def _symbol(self, match: re.Match[str]) -> str:
        """The stand-in of a character that looks like one in the line itself."""
        return self._of(StandIn(match[0], match[0], "symbol", "taken out"))

    def _of(self, span: StandIn) -> str:
        if span not in self._characters and self._free[span.role] < _RANGES[span.role][1]:
            self._characters[span] = stand_in = chr(self._free[span.role])
            self._free[span.role] += 1
            self.spans[stand_in] = span
        return self._characters.get(span, "")

    def sources(self, text: str) -> list[Replacement]:
        """The changes that put spans, as their sources write them, in the places of their stand-ins."""
        sources = {character: span.source for character, span in self.spans.items()}
        return list(self._replacements(text, sources))

    def targets(self, text: str) -> list[Replacement]:
        """The same of a translation, where the words between the halves of a term give way to it."""
        targets = {character: span.target for character, span in self.spans.items()}
        return list(self._replacements(text, targets, terms=True))

    def _replacements(
        self, text: str, texts: Mapping[str, str], *, terms: bool = False
    ) -> Iterator[Replacement]:
        capitals, depth, end = False, 0, 0
        # Of the term that begins at `end`; the one before, in the text that is made.
        target, character = "", ""
        for match in STAND_IN.finditer(text):
            if match[0] not in self.spans:  # a model that writes bytes may write such a character
                continue
            between = text[end : match.start()]
            if depth and terms:
                if between:
                    apart = " " * (character.isalnum() and target[:1].isalnum())
                    yield Replacement(end, match.start(), apart + target)
                    character = target[-1:] or character
            elif between:
                character = between[-1]
                if capitals:
                    yield Replacement(end, match.start(), between.upper())
            end, target = match.end(), ""
            span, new = self.spans[match[0]], texts[match[0]]
            if span.reason == "capitals":
                capitals = span.role == "opening"
            elif span.role == "term":
                depth += 1
                if terms:
                    end, target = match.start(), new
                    continue
            elif span.reason == "term" and span.role == "closing":
                depth = max(0, depth - 1)
                if terms and not depth and character.isalnum() and text[end : end + 1].isalnum():
                    new = " "
            character = new[-1:] or character
            if terms and span.reason == "term" and not depth and character == ".":
                end += bool(_STOP.match(text, end))
            yield Replacement(match.start(), end, new)
        if target:
            yield Replacement(end, end + 1, target)

    def terms(self, text: str) -> dict[str, str]:
        """The terms of a source with stand-ins, as the source and as the translation write them."""
        answer, beginnings = dict[str, str](), list[tuple[int, str]]()
        for match in STAND_IN.finditer(text):
            span = self.spans[match[0]]
            if span.reason != "term":
                continue
            if span.role == "term":
                beginnings.append((match.end(), span.target))
            elif span.role == "closing" and beginnings:
                begin, target = beginnings.pop()
                source = text[begin : match.start()]
                answer[replaced(source, self.sources(source))] = target
            elif span.role == "carried":
                answer[span.source] = span.target
        return answer

    def divides_term(self, text: str) -> bool:
        """Whether a text ends within a term."""
        spans = (self.spans[character] for character in STAND_IN.findall(text))
        roles = [span.role for span in spans if span.reason == "term"]
        return roles.count("term") > roles.count("closing")
