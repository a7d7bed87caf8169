"""Words made safe to show: nothing invisible, nothing that reorders, nothing endless."""

from __future__ import annotations

import unicodedata

_JOINERS = "\u200c\u200d"  # part of ordinary Persian and of emoji
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_MARKS = {"Mn", "Me"}
_MOST_MARKS = 8
_ISOLATE, _END = "\u2068", "\u2069"  # first strong isolate, pop directional isolate


def visible(text: str) -> str:
    r"""Write controls, bidi overrides and lone surrogates as escapes.

    Isolates of `isolated` stay where each has its end: they change the order of nothing around them.

    Args:
        text: any string, also one with lone surrogates.

    Returns:
        The text with such characters as escapes, and no more than 8 marks upon one letter.

    >>> visible("safe\u202etxt.exe\n")
    'safe\\u202etxt.exe\\n'
    """
    shown: list[str] = []
    marks = 0
    paired = _paired(text)
    for place, character in enumerate(text):
        category = unicodedata.category(character)
        marks = marks + 1 if category in _MARKS else 0
        if marks > _MOST_MARKS:
            if marks == _MOST_MARKS + 1:
                shown.append("…")
        elif category in _UNSEEN and character not in _JOINERS and place not in paired:
            shown.append(character.encode("unicode_escape").decode("ascii"))
        else:
            shown.append(character)
    return "".join(shown)


def isolated(text: str) -> str:
    """The text, visible, between isolates: its direction is its own, whatever stands beside it.

    An Arabic sentence keeps its full stop where a Latin one follows (Unicode UAX 9, section 2.7).
    """
    return f"{_ISOLATE}{visible(text)}{_END}"


def _paired(text: str) -> set[int]:
    """The places of isolates with an end, and of those ends."""
    opened: list[int] = []
    paired: set[int] = set()
    for place, character in enumerate(text):
        if character == _ISOLATE:
            opened.append(place)
        elif character == _END and opened:
            paired |= {opened.pop(), place}
    return paired


def cells(text: str) -> int:
    """Columns that a text takes in a terminal: 2 for a wide character, 0 for a mark.

    >>> cells("家e\u0301")
    3
    """
    return sum(_cells_of(character) for character in text)


def shorten(text: str, width: int, ellipsis: str = "…") -> str:
    """Crop a text to a width in terminal columns, with an ellipsis where something is gone.

    >>> shorten("Donaudampfschiff", 6)
    'Donau…'
    """
    if len(text) <= width and text.isascii():
        return text
    room = width - len(ellipsis)
    taken, kept = 0, 0
    for place, character in enumerate(text):
        taken += _cells_of(character)
        if taken > width:
            return text[:kept] + ellipsis if room >= 0 else ellipsis[:width]
        if taken <= room:
            kept = place + 1
    return text


def _cells_of(character: str) -> int:
    if unicodedata.category(character) in _MARKS or character in f"{_JOINERS}{_ISOLATE}{_END}":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
