"""The shortlist of a model, by source word, and its file."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Self

import torch
from jaxtyping import Int
from torch import Tensor

from regard.errors import CheckpointError, ModelError
from regard.translation import weights
from regard.translation.runs import Run, Tokenizers
from regard.translation.runs.layout import SHORTLIST
from regard.translation.shortlist import lexicon
from regard.translation.text.tokenizer import EOS

EACH, ALWAYS = 100, 200
_NONE = -1
_TENSORS = {"always", "likely", "tokenizers", "sum"}


@dataclass(frozen=True)
class Shortlist:
    """The target words that a sentence may be translated with.

    Attributes:
        always: the most frequent target ids, which any sentence may have.
        likely: for each source id the target id of the same piece, if there is one, and its most
            probable translations; -1 where there are no more.
        words: the size of the target vocabulary.
    """

    always: Int[Tensor, " frequent"]
    likely: Int[Tensor, "sources each"]
    words: int

    @classmethod
    def learn(
        cls,
        sentences: lexicon.Sentences,
        tokenizers: Tokenizers,
        each: int = EACH,
        always: int = ALWAYS,
        rounds: Iterable[object] = lexicon.ROUNDS,
    ) -> Self:
        """The shortlist of sentence pairs.

        Args:
            sentences: the ids of sources and targets, without the end of the sentence.
            each: the most translations of a source word.
            always: the number of most frequent target words.
            rounds: an iterable with one item for each round of learning; it may show the progress.
        """
        # Every source has the end: it takes the target words that no source word explains.
        ended = [([*source, EOS], target) for source, target in sentences]
        found = lexicon.best(lexicon.learn(ended, len(tokenizers.target), rounds), each)
        sources, targets = (torch.from_numpy(ids) for ids in found)
        rank = torch.arange(len(sources)) - torch.searchsorted(sources, sources)
        likely = torch.full((len(tokenizers.source), 2 + int(rank.max())), _NONE)
        likely[:, 0] = _same(tokenizers)
        likely[sources, 1 + rank] = targets
        counts = Counter(chain.from_iterable(target for _, target in sentences))
        frequent = torch.tensor(sorted(word for word, _ in counts.most_common(always)))
        return cls(frequent, likely, len(tokenizers.target))

    def of(self, source: Sequence[int]) -> Int[Tensor, " listed"]:
        """The ids that a translation of this sentence may have, in order, without special ids."""
        listed = torch.zeros(self.words + 1, dtype=torch.bool)
        listed[self.always] = True
        listed[self.likely[torch.tensor([*source, EOS])]] = True  # -1 is the place behind all words
        listed[: EOS + 1] = False
        return listed[:-1].nonzero().flatten()

    def keep(self, run: Run, tokenizers: Tokenizers) -> Path:
        """Write it into the folder of the model. Raises `OSError` when that fails."""
        kind = torch.int16 if len(tokenizers.target) < 2**15 else torch.int32
        tensors = {"always": self.always.to(kind), "likely": self.likely.to(kind)}
        sums = {"tokenizers": _sum_of(tokenizers), "sum": _sum(*tensors.values())}
        return run.keep(SHORTLIST, weights.dump({**tensors, **sums}))

    @classmethod
    def open(cls, run: Run, tokenizers: Tokenizers) -> Self:
        """The shortlist in the folder of a model.

        Raises:
            ModelError: it has none.
            CheckpointError: its file is broken, or was made for other tokenizers.
        """
        path = run.folder / SHORTLIST
        if not path.exists():
            raise ModelError(
                f"{run.folder}: has no shortlist: `regard shortlist --model {run.folder}` makes one"
            )

        def check(shapes: weights.Shapes) -> None:
            for name in sorted(_TENSORS ^ shapes.keys()):
                why = "is missing" if name in _TENSORS else "has no place in it"
                raise CheckpointError(f"{path}: no shortlist: tensor '{name}' {why}")

        found = weights.load(path, run.checksum(SHORTLIST), check)
        always, likely = found["always"], found["likely"]
        if not torch.equal(found["sum"], _sum(always, likely)):
            raise CheckpointError(f"{path}: corrupted: its checksum is not that of its lists")
        if not torch.equal(found["tokenizers"], _sum_of(tokenizers)):
            raise CheckpointError(
                f"{path}: was made for other tokenizers: `regard shortlist --model {run.folder}` makes it anew"
            )
        words = len(tokenizers.target)
        good = (
            always.dtype == likely.dtype
            and likely.dtype in (torch.int16, torch.int32)
            and (always.dim(), likely.dim()) == (1, 2)
            and len(likely) == len(tokenizers.source)
            and all(bool(((t >= _NONE) & (t < words)).all()) for t in (always, likely))
            and bool((always >= 0).all())
        )
        if not good:
            raise CheckpointError(
                f"{path}: corrupted: its ids do not fit a vocabulary of {words} pieces"
            )
        return cls(always.long(), likely.long(), words)


def _same(tokenizers: Tokenizers) -> Int[Tensor, " sources"]:
    """For each source piece the target id of the same piece; names, numbers and bytes are copied."""
    source, target = tokenizers.source, tokenizers.target
    ids = {piece: i for i, piece in enumerate(target.pieces(range(len(target))))}
    same = torch.tensor([ids.get(piece, _NONE) for piece in source.pieces(range(len(source)))])
    same[: EOS + 1 + len(source.tags)] = _NONE
    return same


def _sum_of(tokenizers: Tokenizers) -> Tensor:
    """A digest of the pieces of both tokenizers, in the order of their ids."""
    sides = (tokenizers.source, tokenizers.target)
    pieces = "\n".join(piece for side in sides for piece in ["", *side.pieces(range(len(side)))])
    return _digest(pieces.encode())


def _sum(*tensors: Tensor) -> Tensor:
    """A digest of tensors."""
    return _digest(b"".join(each.flatten().view(torch.uint8).numpy().tobytes() for each in tensors))


def _digest(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(hashlib.sha256(content).digest()), dtype=torch.uint8)
