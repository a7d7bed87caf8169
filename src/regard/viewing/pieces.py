"""Join the pieces of sentencepiece into words."""

import re
from collections.abc import Sequence

_START = "▁"
_LONE_SPACE = "␣"
_ALONE = {"<s>", "</s>", "<pad>"}
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def spans(pieces: Sequence[str]) -> list[tuple[int, int]]:
    """The range [start, stop) of the pieces of each word.

    If no piece marks the start of a word, each piece is a word.

    >>> spans(["▁hou", "se", "▁is", "</s>"])
    [(0, 2), (2, 3), (3, 4)]
    """
    if not any(piece.startswith(_START) for piece in pieces):
        return [(place, place + 1) for place in range(len(pieces))]
    starts = [place for place in range(len(pieces)) if _begins(pieces, place)]
    return list(zip(starts, [*starts[1:], len(pieces)], strict=True))


def join(pieces: Sequence[str]) -> str:
    """The text of the pieces of one word; byte pieces are decoded.

    >>> join(["▁caf", "<0xC3>", "<0xA9>"])
    'café'
    """
    encoded: list[bytes] = []
    for piece in pieces:
        byte = _BYTE.fullmatch(piece)
        encoded.append(bytes.fromhex(byte[1]) if byte else piece.encode("utf-8", "surrogatepass"))
    text = b"".join(encoded).decode("utf-8", "replace")
    return text.removeprefix(_START).replace(_START, " ") or _LONE_SPACE


def _begins(pieces: Sequence[str], place: int) -> bool:
    return (
        place == 0
        or pieces[place].startswith(_START)
        or pieces[place] in _ALONE
        or pieces[place - 1] in _ALONE
    )
