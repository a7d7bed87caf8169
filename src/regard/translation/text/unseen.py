"""unseen.json: the source pieces that occur in no training source, so that the encoder never learned them.

A vocabulary has such pieces when the target shares it, or when a letter occurs only as a word: the sources of the task
reverse have the piece `▁b`, but never the piece `b` that "ab" needs.
"""

from __future__ import annotations

import json
from collections.abc import Set
from pathlib import Path

from pydantic import TypeAdapter

from regard.translation import checksums
from regard.translation.text.subwords import Segmenter
from regard.translation.text.tokenizer import Tokenizer

UNSEEN = "unseen.json"
_PIECES = TypeAdapter(frozenset[str])
_LARGEST_FILE = 64 * 2**20


def unseen(tokenizer: Tokenizer, sources: Segmenter) -> frozenset[str]:
    """The pieces of text that no segmentation of the training sources has."""
    ids = filter(tokenizer.is_text, range(len(tokenizer)))
    return frozenset(tokenizer.pieces(sorted(set(ids) - sources.ids)))


def dump(pieces: Set[str]) -> bytes:
    """The content of the file."""
    return (json.dumps(sorted(pieces), ensure_ascii=False) + "\n").encode()


def read(path: Path, checksum: str | None) -> frozenset[str]:
    """The pieces that a file lists.

    Raises:
        CheckpointError: it cannot be read, has another checksum, or is not a list of pieces.
    """
    content = checksums.content(path, checksum, _LARGEST_FILE)
    return checksums.parsed(_PIECES, content, path, "a list of pieces")
