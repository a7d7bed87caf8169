"""The one normalisation that training, translation and evaluation share."""

from __future__ import annotations

import re
import unicodedata

# Sentencepiece writes a space as U+2581, so a literal one could not be told from a space.
_SPACE_MARK = str.maketrans("\u2581", "_")
# A lone surrogate is no text at all (it comes from undecodable arguments or JSON): it cannot be encoded.
_SURROGATE = re.compile("[\ud800-\udfff]")
# Control characters (NUL, CR, VT, FF, FS ..., U+0085), line and paragraph separators, the byte order mark.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]")
_SPACES = re.compile(r"\s+")


def normalise(text: str) -> str:
    """Text as every part of the project sees it.

    Unicode NFC; control characters, line separators and byte order marks become spaces; every run of white space
    (no-break and narrow spaces among it) becomes one space, none at the ends; U+2581 becomes `_`; a lone surrogate
    becomes U+FFFD. All else stays as it is.

    >>> normalise("  Où\\u202f?\\r")
    'Où ?'
    """
    text = _SURROGATE.sub("\ufffd", text).translate(_SPACE_MARK)
    text = _CONTROL.sub(" ", unicodedata.normalize("NFC", text))
    return _SPACES.sub(" ", text).strip()
