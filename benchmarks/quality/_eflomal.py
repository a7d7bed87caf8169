"""eflomal (Östling and Tiedemann 2016), a statistical aligner: a program of its own under another licence."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from regard.translation.evaluation.alignment import Link, grow_diagonal
from regard.translation.evaluation.gold import read_links

_TOKEN = re.compile(r"\w+|[^\w\s]")
Words = Sequence[str]


def align(program: str, pairs: Sequence[tuple[Words, Words]]) -> list[set[Link]]:
    """Links between the words of each pair, both directions joined by grow-diag-final-and.

    The aligner sees them lower-cased and with punctuation apart; what it links of a word, links the word.
    """
    cut = [(_tokens(source), _tokens(target)) for source, target in pairs]
    full = [number for number, (source, target) in enumerate(cut) if source and target]
    with tempfile.TemporaryDirectory() as folder:
        text, forward, backward = (Path(folder) / name for name in ("text", "forward", "backward"))
        text.write_text(
            "".join(f"{_line(cut[number][0])} ||| {_line(cut[number][1])}\n" for number in full),
            encoding="utf-8",
        )
        command = [program, "-i", str(text), "-f", str(forward), "-r", str(backward)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        directions = list(zip(read_links(forward), read_links(backward), strict=True))
    linked: list[set[Link]] = [set() for _ in pairs]
    for number, (forward_links, backward_links) in zip(full, directions, strict=True):
        source, target = cut[number]
        links = grow_diagonal(forward_links, backward_links)
        linked[number] = {(source[i][0], target[j][0]) for i, j in links}
    return linked


def _tokens(words: Words) -> list[tuple[int, str]]:
    """The tokens of each word, with its number."""
    return [
        (number, token)
        for number, word in enumerate(words)
        for token in _TOKEN.findall(word.lower())
    ]


def _line(tokens: list[tuple[int, str]]) -> str:
    return " ".join(token for _, token in tokens)
