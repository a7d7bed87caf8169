"""Words made safe to show: no invisible or reordering characters, and a limited length."""

import unicodedata

from rich.cells import cell_len, set_cell_size

_JOINERS = "\u200c\u200d"  # part of ordinary Persian and of emoji
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_MARKS = {"Mn", "Me"}
_MOST_MARKS = 8
_NUMBERED = 0.095  # smaller weights are drawn without a number
_ISOLATE, _END = "\u2068", "\u2069"  # first strong isolate, pop directional isolate


def visible(text: str) -> str:
    r"""Replace controls, bidi overrides and lone surrogates by escapes; keep 8 marks on a letter.

    Complete pairs of isolates, as `isolated` writes them, are kept: they do not reorder other text.

    >>> visible("safe\u202etxt.exe\n")
    'safe\\u202etxt.exe\\n'
    """
    characters: list[str] = []
    marks = 0
    paired = _paired(text)
    for place, character in enumerate(text):
        category = unicodedata.category(character)
        marks = marks + 1 if category in _MARKS else 0
        if marks > _MOST_MARKS:
            if marks == _MOST_MARKS + 1:
                characters.append("…")
        elif category in _UNSEEN and character not in _JOINERS and place not in paired:
            characters.append(character.encode("unicode_escape").decode("ascii"))
        else:
            characters.append(character)
    return "".join(characters)


def isolated(text: str) -> str:
    """The visible text between isolates, so that neighbouring text does not change its direction.

    An Arabic sentence keeps its full stop if a Latin one follows (Unicode UAX 9, section 2.7).
    """
    return f"{_ISOLATE}{visible(text)}{_END}"


def _paired(text: str) -> set[int]:
    """The positions of isolates that are closed, and of the characters that close them."""
    starts: list[int] = []
    paired: set[int] = set()
    for place, character in enumerate(text):
        if character == _ISOLATE:
            starts.append(place)
        elif character == _END and starts:
            paired |= {starts.pop(), place}
    return paired


def shorten(text: str, width: int, ellipsis: str = "…") -> str:
    """Crop a text to a width in terminal columns; a cropped text ends with an ellipsis.

    >>> shorten("Donaudampfschiff", 6)
    'Donau…'
    """
    if cell_len(text) <= width:
        return text
    room = width - len(ellipsis)
    return set_cell_size(text, room).rstrip(" ") + ellipsis if room >= 0 else ellipsis[:width]


def percent(weight: float) -> str:
    """A weight in percent without the sign; "" below 10%."""
    return f"{100 * weight:.0f}" if weight >= _NUMBERED else ""
