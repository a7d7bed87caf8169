"""Characters that should not be in a line of text, or that were decoded with the wrong encoding."""

import re
import unicodedata
from collections.abc import Iterator

from regard.translation.text.normalisation import INVISIBLE as INVISIBLES

BOM = "byte order mark"
INVISIBLE = "invisible character (soft hyphen, mark of direction, space of no width)"
CONTROL = "control character"
SEPARATOR = "line separator inside a line"
REPLACED = "replacement character U+FFFD (lost before)"
MOJIBAKE = "looks like UTF-8 decoded as Latin-1 or Windows-1252"
NOT_NFC = "not in NFC"

_ODD = {
    CONTROL: re.compile("[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f]"),
    SEPARATOR: re.compile("[\u2028\u2029\x85]"),
    BOM: re.compile("\ufeff"),
    INVISIBLE: re.compile(INVISIBLES.pattern.replace("\ufeff", "")),
    REPLACED: re.compile("\ufffd"),
}
_CP1252 = "€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
# UTF-8 decoded with those encodings: the first byte of a character, then its other bytes.
_MISREAD = re.compile(f"[\u00c2-\u00f4][\u0080-\u00bf{_CP1252}]+")


def troubles(text: str) -> Iterator[tuple[str, int]]:
    """The kinds of problems of a line, each with the position of its first character.

    >>> list(troubles("cafÃ©"))[0][0] == MOJIBAKE
    True
    """
    if text.isascii() and text.isprintable():
        return
    for kind, pattern in _ODD.items():
        if match := pattern.search(text):
            yield kind, match.start()
    misread = (match for match in _MISREAD.finditer(text) if _was_utf8(match[0]))
    if match := next(misread, None):
        yield MOJIBAKE, match.start()
    if not unicodedata.is_normalized("NFC", text):
        characters = enumerate(zip(text, unicodedata.normalize("NFC", text), strict=False))
        yield NOT_NFC, next((place for place, (ours, its) in characters if ours != its), 0)


def _was_utf8(run: str) -> bool:
    """Whether characters, taken as bytes, are the UTF-8 of Latin letters or punctuation.

    Two letters side by side may be valid UTF-8 by chance, such as "É»", but rarely of such a character.
    """
    raw = b"".join(bytes([ord(c)]) if ord(c) < 256 else c.encode("cp1252", "replace") for c in run)
    text = raw.decode("utf-8", "ignore")
    return any("\u00a0" <= c <= "\u024f" or "\u2010" <= c <= "\u20bf" for c in text)
