"""The one normalisation that training, translation and evaluation share."""

import re
import unicodedata
from itertools import chain, groupby

# Sentencepiece writes a space as U+2581, so a literal one could not be told from a space.
_SPACE_MARK = "\u2581"
# A lone surrogate comes from undecodable arguments or JSON, and cannot be encoded.
_SURROGATE = re.compile("[\ud800-\udfff]")
# Control characters (NUL, CR, VT, FF, FS ..., U+0085), line and paragraph separators.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# They show nothing: the soft hyphen, marks of direction, the byte order mark, spaces of no width. Joiners are not among
# them (U+200C, U+200D): they are part of Persian words and of emoji.
INVISIBLE = re.compile("[\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
# From this length on, combining marks are put in order here: unicodedata's time grows with the square of their number.
_LONG = 1000


def normalise(text: str) -> str:
    """Text in the one form that all parts of the project use.

    The text is cleaned (see `clean`) and in Unicode NFC; every run of white space (no-break and narrow spaces among it)
    becomes one space, none at the ends; U+2581 becomes `_`. Other characters are unchanged.

    >>> normalise("  Où\\u202f?\\r")
    'Où ?'
    """
    return " ".join(composed(text).replace(_SPACE_MARK, "_").split())


def composed(text: str) -> str:
    """A clean text in Unicode NFC, with its white space as it is.

    >>> len(composed("e\\u0301l"))
    2
    """
    text = clean(text)
    if len(text) > _LONG and not text.isascii():
        text = _ordered(text)
    return unicodedata.normalize("NFC", text)


def clean(text: str) -> str:
    """A text without characters that nobody sees; its words are those of the normalised text.

    Control characters and line separators become spaces; soft hyphens, marks of direction, byte order marks and spaces
    of no width are left out; a lone surrogate becomes U+FFFD.

    >>> clean("\\ufeffdi\\u00adrec\\u00adto\\0ya")
    'directo ya'
    """
    if text.isprintable():  # what is replaced is not, and most texts need no search for it
        return text
    return _CONTROL.sub(" ", INVISIBLE.sub("", _SURROGATE.sub("\ufffd", text)))


def _ordered(text: str) -> str:
    """Each character decomposed and each run of marks in canonical order; NFC gives the same result."""
    decomposed = chain.from_iterable(unicodedata.normalize("NFD", c) for c in text)
    runs = groupby(decomposed, key=lambda c: unicodedata.combining(c) > 0)
    return "".join(
        "".join(sorted(run, key=unicodedata.combining) if marks else run) for marks, run in runs
    )
