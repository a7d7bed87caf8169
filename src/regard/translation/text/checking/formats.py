"""Files of other formats, and what their tools leave in text: headers, quotes, entities, joiners."""

import re
from collections.abc import Iterator
from html import unescape

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
