"""The tokens of a sequence, taken from the calls of the embeddings."""

import re
from typing import NamedTuple

import torch
from torch import Tensor

POSITIONS = re.compile(r"(^|[._])(pos(?!t)|wpe)|positions?$")


class EmbeddingCall(NamedTuple):
    """A call of an embedding: its path, its number of rows, and the token ids."""

    path: str
    vocabulary: int
    tokens: Tensor


def tokens_of(tokens: list[EmbeddingCall], length: int, last: bool) -> Tensor | None:
    """The tokens of a sequence of this length: of one call, or of a prompt and the tokens after it.

    `last` chooses the last such sequence instead of the first.
    """
    tokens = [each for each in tokens if not POSITIONS.search(each.path)]
    largest = max((each.vocabulary for each in tokens), default=0)
    found: list[Tensor] = []
    for path in dict.fromkeys(each.path for each in tokens if each.vocabulary == largest):
        run: list[Tensor] = []
        for each in (each.tokens for each in tokens if each.path == path):
            follows = run and each.shape[-1] == 1 and each.shape[:-1] == run[0].shape[:-1]
            run = [*run, each] if follows else [each]
            if sum(part.shape[-1] for part in run) == length:
                found.append(torch.cat(run, -1))
    return None if not found else found[-1 if last else 0]
