"""The words of a line, by plain rules for any language that puts spaces between words."""

import re
import unicodedata
from functools import lru_cache

from regard.translation.text.normalisation import normalise

_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
# Read on a skeleton of the line, in which other letters than ASCII's are x.
_WORD = re.compile(
    r"""
      [0-9]+(?:[.,:/][0-9]+)+            # 1,000.5 and 12:30
    | '(?:s|t|d|m|re|ve|ll)\b            # the English ends: it 's
    | \w+(?!'(?:s|t|d|m|re|ve|ll)\b)'(?=\w)  # and the French beginnings: l' eau
    | \w+
    | ([^\w\s])\1*                       # a mark, or a run of the same one
    """,
    re.VERBOSE | re.ASCII | re.IGNORECASE,
)
# Thai, kana and Han, and the marks that belong to the character before: of vowels, tones, voicing and variants.
_UNSPACED = re.compile(
    "([\u0e00-\u0e4f\u0e5a-\u0e7f\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
    "[\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u3099\u309a\ufe00-\ufe0f\uff9e\uff9f\U000e0100-\U000e01ef]*)"
)


def words_of(line: str, characters: bool = False) -> list[str]:
    """The words and the punctuation marks of a line; an apostrophe stays with the shorter word beside it.

    With `characters`, each character of scripts without spaces is a word, with its marks: Chinese, Japanese, Thai.

    >>> words_of("L'eau, it's 1,000.50 m...")
    ["L'", 'eau', ',', 'it', "'s", '1,000.50', 'm', '...']
    """
    text = normalise(line)
    if characters:
        text = _UNSPACED.sub(r" \1 ", text)
    skeleton = _BEYOND_ASCII.sub(_plain, text)
    return [text[match.start() : match.end()] for match in _WORD.finditer(skeleton)]


def _plain(match: re.Match[str]) -> str:
    return _kind(match[0])


@lru_cache(maxsize=4096)
def _kind(character: str) -> str:
    """x for a letter, its marks and joiners, 0 for a digit, and otherwise the mark itself."""
    if character == "’":
        return "'"
    category = unicodedata.category(character)
    if category == "Nd":
        return "0"
    return "x" if category[0] in "LMN" or category in ("Cf", "Co", "Cn") else character
