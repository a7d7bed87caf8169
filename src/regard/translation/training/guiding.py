"""Guided attention: a second loss trains one head to attend to the words that given links name."""

import re
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.attention.looks.look import Look
from regard.errors import DataError
from regard.translation.evaluation.alignment import (
    Link,
    count_from_one,
    parse_links,
    threshold_links,
)
from regard.translation.linking.learning import THRESHOLD, learn
from regard.translation.runs import Tokenizers
from regard.translation.settings.training import GuideSettings
from regard.translation.text.batches import Batch
from regard.translation.text.corpora import Pair
from regard.translation.text.subwords import Ragged
from regard.translation.text.tokenizer import EOS, Tokenizer

_START = "▁"
# With `words = "marks"` a word is a run of letters and digits, or a run of other characters.
_WORDS_AND_MARKS = re.compile(r"\w+|[^\w\s]+")
_WORD = re.compile(r"\w")
# Weights are raised to this before the logarithm: a linked piece may have weight 0.
_LEAST = 1e-9


class Guide:
    """A loss on the attention of one head, by the word links of the training pairs.

    Chen et al. 2016 (arXiv 1607.01628, section 3.1); on one head of a Transformer, Garg et al. 2019 (arXiv
    1909.02074, section 4.2).

    A pair without links adds no loss.

    Raises:
        DataError: a link is malformed, or names a word that does not exist.
    """

    def __init__(
        self, section: GuideSettings, pairs: Sequence[Pair], tokenizers: Tokenizers
    ) -> None:
        self.section = section
        marks = section.words == "marks"
        # Sampled segmentations differ in each pass, so pieces are assigned to words in each batch.
        self._source, self._target = (
            _Owners(tokenizer, marks) for tokenizer in (tokenizers.source, tokenizers.target)
        )
        counts = [
            (len(split_words(pair.source, marks)), len(split_words(pair.target, marks)))
            for pair in pairs
        ]
        links = [_links(pair, words) for pair, words in zip(pairs, counts, strict=True)]
        # A training on links that seem to count from 1 would learn the words beside the right ones.
        self.from_one = count_from_one({(s, t) for s, t in each.tolist()} for each in links)
        # Row -1, of pairs that noise has changed, has no links.
        links.append(np.zeros((0, 2), dtype=np.int32))
        self._words = np.array([*counts, (0, 0)])
        self._links = np.concatenate(links)
        starts = np.cumsum([0, *map(len, links)])
        self._numbers = Ragged(np.arange(len(self._links), dtype=np.int32), starts)

    @property
    def look(self) -> str:
        """The name of the attention that the loss is computed from."""
        return f"decoder.{self.section.layer}.cross"

    def loss(self, look: Look, batch: Batch) -> Float[Tensor, ""]:
        """The summed cross-entropy, in nats, between the links and the attention weights.

        ``- sum_t sum_s g_ts log a_ts``; ``g_t`` is uniform over the source pieces that target piece t is linked to
        """
        head = self.section.head
        weights = look.weights()
        # A sum over a batch in half precision would have two correct digits.
        weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
        attention = weights.mean(1) if head is None else weights[:, head]
        linked = self.linked(batch).to(attention.dtype)
        even = linked / linked.sum(-1, keepdim=True).clamp(min=1)
        return -(even * attention.clamp(min=_LEAST).log()).sum()

    def linked(self, batch: Batch) -> Bool[Tensor, "batch target source"]:
        """Which pieces of each pair are linked; target pieces are those read or predicted at each step."""
        target = batch.target_in if self.section.rows == "read" else batch.target_out
        sources, targets = self._source.of(batch.source), self._target.of(target)
        words = torch.zeros(
            len(target), int(targets.max()) + 2, int(sources.max()) + 2, dtype=torch.bool
        )
        numbers = self._numbers.take(batch.rows)
        row = torch.from_numpy(np.repeat(np.arange(len(batch.rows)), numbers.lengths))
        link = torch.from_numpy(self._links[numbers.items]).long()
        # A tokenizer may drop a word, such as a byte order mark. Then pieces cannot be assigned: the pair is skipped.
        word_counts = torch.stack([sources.amax(-1), targets.amax(-1)], -1).cpu() + 1
        agreed = (word_counts == torch.from_numpy(self._words[batch.rows])).all(-1)[row]
        row, link = row[agreed], link[agreed]
        words[row, link[:, 1], link[:, 0]] = True
        # Pieces of no word have number -1, which indexes the last row or column, where nothing is linked.
        rows = torch.arange(len(target))[:, None, None]
        linked_pieces = words[rows, targets.cpu()[:, :, None], sources.cpu()[:, None, :]]
        return linked_pieces.to(target.device)


def with_learnt_links(pairs: Sequence[Pair], section: GuideSettings, seed: int) -> list[Pair]:
    """The pairs with the links that are learnt from them alone, as `regard align --adapt` does; the same for a seed."""
    marks = section.words == "marks"
    words = [(split_words(pair.source, marks), split_words(pair.target, marks)) for pair in pairs]
    posteriors, _ = learn(words, seed=seed)
    answer = []
    for number, pair in enumerate(pairs):
        links = set[Link]()
        if number not in posteriors.too_long:
            forward, backward = posteriors.matrices(number)
            links = threshold_links(torch.from_numpy((forward + backward) / 2), THRESHOLD)
        answer.append(pair._replace(links=" ".join(f"{s}-{t}" for s, t in sorted(links))))
    return answer


def split_words(text: str, marks: bool) -> list[str]:
    """The words that links count: separated by white space, or with `marks` also from punctuation.

    >>> split_words("¿Duerme? No...", marks=True)
    ['¿', 'Duerme', '?', 'No', '...']
    """
    return _WORDS_AND_MARKS.findall(text) if marks else text.split()


def _links(pair: Pair, words: tuple[int, int]) -> NDArray[np.int32]:
    """The links of a pair, sure or possible, as (source, target) words."""
    try:
        links = sorted(set.union(*parse_links(pair.links)))
    except DataError as fault:
        raise DataError(f'{fault}, in the links of "{pair.source[:60]}"') from None
    for link in links:
        if link[0] >= words[0] or link[1] >= words[1]:
            raise DataError(
                f'link {link[0]}-{link[1]}: "{pair.source[:60]}" has {words[0]} words and its translation '
                f"{words[1]}, counted from 0: training.guide.words tells how words are separated"
            )
    return np.array(links, dtype=np.int32).reshape(-1, 2)


class _Owners:
    """Assigns pieces to words, by the pieces alone."""

    def __init__(self, tokenizer: Tokenizer, marks: bool) -> None:
        pieces = tokenizer.pieces(range(len(tokenizer)))
        self._begins = torch.tensor([piece.startswith(_START) for piece in pieces])
        kinds = [_kind(piece) if marks else 0 for piece in pieces]
        kinds[: EOS + 1] = [0] * (EOS + 1)
        self._kinds = torch.tensor(kinds)

    def of(self, ids: Int[Tensor, "batch length"]) -> Int[Tensor, "batch length"]:
        """The number of the word of each piece, from 0; -1 for special pieces."""
        begins, kinds = self._begins.to(ids.device)[ids], self._kinds.to(ids.device)[ids]
        previous = kinds.roll(1, -1)
        previous[:, 0] = 0
        # A piece that is only a space has no kind of its own.
        turns = (kinds != previous) & (kinds > 0) & (previous > 0)
        return ((begins | turns).cumsum(-1) - 1).masked_fill(ids <= EOS, -1)


def _kind(piece: str) -> int:
    """The kind of the first character: 1 for letters and digits, 2 for others; 0 for a space alone."""
    text = piece.removeprefix(_START)
    return 0 if not text else 1 if _WORD.match(text) else 2
