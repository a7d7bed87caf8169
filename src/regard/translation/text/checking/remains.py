"""What does not belong in a line of text: odd or misread characters, what tools leave in it, files of other formats."""

import re
import unicodedata
from collections.abc import Iterator
from html import unescape

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

HEADER = "the first line looks like a header"
QUOTES = "quotes of CSV around a column"
ENTITY = "entity of HTML or XML"
JOINER = "joiner of subwords or tokens"

_FORMATS = {
    "TMX": re.compile(rb"<tmx\b"),
    "XLIFF": re.compile(rb"<xliff\b"),
    "XML": re.compile(rb"\s*<\?xml\b"),
    "PO": re.compile(rb'(?:.*\n)*?msgid "(?:.*\n)+?msgstr "'),
    "WebVTT": re.compile(rb"WEBVTT\b"),
    "JSON": re.compile(rb'\s*(?:\[\s*)?\{\s*"[^"\n]*"\s*:'),
    "SRT": re.compile(rb"\s*\d+[ \t]*\r?\n\d\d:\d\d:\d\d,\d{3} --> "),
}
_ENTITY = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]+|#[0-9]+|#[xX][0-9A-Fa-f]+);")
# BPE writes "bi@@ g", Moses "far @-@ off", OpenNMT "￭".
_JOINER = re.compile(r"\w@@(?= |\t|$)|(?<!\S)@[-/.,]@(?!\S)|\uffed")
# Within the quotes of a column each quote is written twice.
_QUOTES = re.compile(r'(?:^|(?<=\t))"(?:[^"\t]|"")*""(?:[^"\t]|"")*"(?=\t|$)')
_COLUMNS = set(
    "source target src tgt trg text sentence translation translations original reference "
    "english french german spanish italian portuguese dutch russian chinese japanese arabic "
    "en fr de es it pt nl pl ru uk zh ja ko ar hi tr cs sv eng fra deu spa ita por".split()
)


def of_line(text: str) -> Iterator[tuple[str, int]]:
    """The kinds of problems of a line, each with the position of its first character."""
    yield from troubles(text)
    yield from remains(text)


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


def of_text(head: bytes) -> str | None:
    """The format of a file that begins so; None for lines of text."""
    head = head.removeprefix(b"\xef\xbb\xbf")
    if (
        head.lstrip().startswith((b"<", b"#", b"{", b"[", b"msgid", b"WEBVTT"))
        or head[:1].isdigit()
    ):
        for name, pattern in _FORMATS.items():
            if pattern.search(head) if name in ("TMX", "XLIFF") else pattern.match(head):
                return name
    return None


def is_header(source: str, target: str) -> bool:
    """Whether a line names its columns.

    >>> is_header("Spanish", "English"), is_header("el gato", "the cat")
    (True, False)
    """
    return {source.strip(' "').lower(), target.strip(' "').lower()} <= _COLUMNS


def remains(text: str) -> Iterator[tuple[str, int]]:
    """What tools left in a line, each kind with the position of the first.

    >>> list(remains("caf&eacute;")), list(remains("bi@@ g")), list(remains("R&D; @home"))
    ([('entity of HTML or XML', 3)], [('joiner of subwords or tokens', 1)], [])
    """
    entities = (match for match in _ENTITY.finditer(text) if unescape(match[0]) != match[0])
    if "&" in text and (match := next(entities, None)):
        yield ENTITY, match.start()
    if match := _JOINER.search(text):
        yield JOINER, match.start()
    if '""' in text and (match := _QUOTES.search(text)):
        yield QUOTES, match.start()
