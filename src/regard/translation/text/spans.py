"""The stretches of a line that a model cannot read: markup, code, addresses, placeholders, symbols, and more."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

# Scans begin at the start of a run, or are bounded: no line takes time that grows with the square of its length.
_PATTERNS = {
    "markup": r"</?[A-Za-z][^<>]*>|<[!?][^<>]*>|&(?:\#\d{1,7}|\#x[0-9A-Fa-f]{1,6}|[A-Za-z]\w{1,30});",
    "address": r"(?:https?|ftp)://[^\s<>\"]*[^\s<>\".,;:!?)\]}'»…]|www\.[^\s<>\"]*[^\s<>\".,;:!?)\]}'»…]"
    r"|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "code": r":[A-Za-z][\w.:+-]{0,40}:`[^`]+`|``[^`]+``|`[^`]+`_{0,2}|(?<![\w.])[\w.]+\(\)|(?<![\w.])[\w.]*_[\w.]*\w"
    r"|(?<![\w-])--[a-z][\w-]*",
    "placeholder": r"%\([^()\s]{0,60}\)[-\#0+]*\d*(?:\.\d+)?[A-Za-z]|(?<!\d)%(?:\d\$)?[-\#0+]*\d{0,3}(?:\.\d{1,3})?"
    r"[sdifgxXcr@](?![^\W\d_])|\$?\{\{?[^{}\s]*\}\}?|\$[A-Za-z_]\w*",
    "user": r"(?<![\w@\#])[@\#][^\W_]\w*",
    "number": r"(?<![\w+])\+\d(?:[\d .()-]*\d)?(?!\w)|(?<![\w.,:/–-])\d+(?:[.,]\d+)*[ ]?[–—-][ ]?"
    r"\d+(?:[.,]\d+)*(?![\w–-]|[.,:/]\d)"
    r"|(?<![\w-])(?:[A-Z]+-?\d+|\d+[A-Z]+)[A-Z\d]*(?![\w-])|(?<![\w-])[A-Z]{2}[ ]\d{3,4}(?!\w)",
}
_SPAN = re.compile("|".join(f"(?P<{reason}>{pattern})" for reason, pattern in _PATTERNS.items()))
# Without one of these characters a line has no span of the patterns above.
_SIGN = re.compile(r"[<&`_@#%{$+:()–—\d]|--|www")
_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)[^<>]*?(/?)>")
# HTML's elements without an end.
_VOID = frozenset("br hr img input link meta wbr".split())
_BRACKETS = {"“": "”", "‘": "’", "„": "“", "[": "]", "‹": "›", "«": "»", "「": "」", "『": "』"}


class Span(NamedTuple):
    """A stretch of a line that is not translated.

    Attributes:
        start, stop: its characters.
        text: as the translation is to write it.
        reason: "markup", "code", "address", "placeholder", "user", "number", "script" (a word of letters that the model
            does not read), "symbol", "capitals" (words that are read in small letters) or "term" (see `glossary`).
        role: "carried", by a word that stands for it; "taken out", and put back at its place, alone; "opening" and
            "closing" are the halves of a pair around what they stood around; "around" has such halves itself.
    """

    start: int
    stop: int
    text: str
    reason: str
    role: str = "carried"


def spans(line: str, readable: Set[str]) -> list[Span]:
    """The spans of a line, of whose characters a model can read some.

    >>> [span.text for span in spans("Escribe a <b>ana@x.es</b> ❤️", set("Escribe a"))]
    ['<b>', 'ana@x.es', '</b>', '❤️']
    """
    matches = list(_matches(line))
    strange = {
        character
        for character in set(line) - readable
        if not character.isspace() and not unicodedata.combining(character)
    }
    if strange:
        gaps = zip(
            [0, *(span.stop for span in matches)],
            [*(span.start for span in matches), len(line)],
            strict=True,
        )
        stretches = [span for gap in gaps for span in _strange(line, strange, *gap)]
        if _in_another_script(line, [*matches, *stretches]):
            stretches = [span for span in stretches if span.reason != "script"]
        matches = sorted([*matches, *stretches])
    return _paired(line, matches) if matches else matches


def _matches(line: str) -> Iterator[Span]:
    if not _SIGN.search(line):
        return
    shouted = line.isupper()
    for match in _SPAN.finditer(line):
        reason = str(match.lastgroup)
        if reason == "number" and shouted and match[0][0].isalpha():
            continue
        role = "taken out" if reason == "markup" else "carried"
        yield Span(*match.span(), match[0], reason, role)


def _strange(line: str, strange: Set[str], start: int, stop: int) -> Iterator[Span]:
    """The words and runs of symbols, within some characters of a line, that have characters which are not read."""
    letters = "".join(map(re.escape, sorted(filter(_is_letter, strange))))
    symbols = "".join(
        map(re.escape, sorted(character for character in strange if not _is_letter(character)))
    )
    patterns = [rf"(?P<script>(?<![\w{letters}])[\w{letters}]*[{letters}][\w{letters}]*)"] * bool(
        letters
    )
    patterns += [f"(?P<symbol>[{symbols}]+)"] * bool(symbols)
    for match in re.compile("|".join(patterns)).finditer(line, start, stop):
        role = "carried" if match.lastgroup == "script" else "taken out"
        yield Span(*match.span(), match[0], str(match.lastgroup), role)


def _in_another_script(line: str, spans: Sequence[Span]) -> bool:
    """Whether most letters of a line are of words that a model cannot read: then nothing else is left to translate."""
    foreign = sum(span.stop - span.start for span in spans if span.reason == "script")
    spanned = sum(span.stop - span.start for span in spans)
    return 2 * foreign > len(line) - spanned + foreign


def _is_letter(character: str) -> bool:
    """Whether a character is written in words; marks above letters of other scripts are, too."""
    return character.isalnum() or unicodedata.category(character) == "Mc"


def _paired(line: str, matches: Sequence[Span]) -> list[Span]:
    """The spans of a line, those that are pairs with the roles of halves."""
    answer, open_places, open_keys = list(matches), list[tuple[str, int]](), Counter[str]()
    for place, span in enumerate(matches):
        if span.role != "taken out":
            continue
        opens, closes = _keys(line, span)
        if closes and open_keys[closes]:
            key = ""
            while key != closes:  # halves between them have no other half
                key, opening = open_places.pop()
                open_keys[key] -= 1
            answer[opening] = answer[opening]._replace(role="opening")
            answer[place] = span._replace(role="closing")
        elif opens:
            open_places.append((opens, place))
            open_keys[opens] += 1
    return answer


def _keys(line: str, span: Span) -> tuple[str, str]:
    """The key of the pair that a span would open, and of the pair that it would close; "" for none."""
    if tag := _TAG.fullmatch(span.text):
        name = tag[2].lower()
        if tag[3] or name in _VOID:
            return "", ""
        return ("", name) if tag[1] else (name, "")
    if span.reason == "markup":
        return "", ""
    left_character = line[span.start - 1 : span.start] if span.start else ""
    right_character = line[span.stop : span.stop + 1]
    opens = span.text if _in_word(right_character) and not _in_word(left_character) else ""
    closes = span.text if _in_word(left_character, ".,!?") and not _in_word(right_character) else ""
    return _BRACKETS.get(opens, opens), closes


def _in_word(character: str, marks: str = "¿¡<") -> bool:
    return character != "" and (character.isalnum() or character in marks)
