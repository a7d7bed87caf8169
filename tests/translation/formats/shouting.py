"""A translation whose result can be told: capitals outside of tags."""

import re


def upper(text: str) -> str:
    pieces = re.split(r"(</?[gx]\d+/?>)", text)
    return "".join(piece if place % 2 else piece.upper() for place, piece in enumerate(pieces))
