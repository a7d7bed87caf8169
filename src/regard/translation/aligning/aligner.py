"""Links between the words of given translations and the words of their sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ConfigurationError
from regard.translation.aligning.choice import Choice, of_run
from regard.translation.aligning.projection import project
from regard.translation.aligning.word_attention import (
    WordAttention,
    WordPair,
    fill_weights,
    word_attentions,
)
from regard.translation.aligning.words import Words
from regard.translation.evaluation.alignment import (
    Link,
    argmax_links,
    by_target,
    mutual_links,
    threshold_links,
)
from regard.translation.models.ensemble import Ensemble
from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import Run, Tokenizers

_ROUNDS = 10
# Added to each cell, so that cells without weight can be balanced.
_FLOOR = 1e-4


@dataclass(frozen=True, eq=False)
class Aligned:
    """A sentence, its translation, and the links between their words.

    Attributes:
        source, target: words.
        links: (source, target) positions of linked words, from 0.
        weights: the attention that the links were read from.
        unread: the number of words beyond the pieces that the model reads; they have no links.
    """

    source: list[str]
    target: list[str]
    links: set[Link]
    weights: Float[Tensor, "target source"]
    unread: int = 0

    def project(self, start: int, stop: int) -> range:
        """Where a name or a term, the source words from `start` to before `stop`, is in the translation.

        The stretch of target words with most links to these words and fewest to others; it is empty where none is
        linked. See Yarowsky et al. 2001 (aclanthology.org/H01-1035).

        Raises:
            ConfigurationError: the sentence has no such words.

        >>> links = {(0, 0), (1, 2), (2, 1)}
        >>> pair = Aligned("la casa verde".split(), "the green house".split(), links, torch.zeros(3, 3))
        >>> [pair.target[place] for place in pair.project(1, 3)]
        ['green', 'house']
        """
        if not 0 <= start < stop <= len(self.source):
            raise ConfigurationError(
                f"words {start} to {stop}: expected a start below the stop, within the {len(self.source)} source words"
            )
        sources: dict[int, list[int]] = {}
        for source, target in self.links:
            sources.setdefault(target, []).append(source)
        return project(range(start, stop), sources, range(len(self.target))).places


@dataclass(frozen=True)
class Aligner:
    """A translation model used to align words, by its attention (Bahdanau et al. 2015)."""

    model: TranslationModel
    tokenizers: Tokenizers
    choice: Choice

    @classmethod
    def of(cls, run: Run, model: TranslationModel, tokenizers: Tokenizers) -> Aligner:
        """The aligner of a run's model, or of the first of several models, by the attention that is chosen for it."""
        first_model = next(iter(model)) if isinstance(model, Ensemble) else model
        return cls(first_model, tokenizers, of_run(run))

    def align(self, pairs: Sequence[WordPair]) -> list[Aligned]:
        """Link the words of translations that are given.

        Raises:
            ConfigurationError: the model has no such layer or head, or no attention at all.
        """
        readings = word_attentions(self.model, self.tokenizers, pairs, self._layers)
        return [self._aligned(reading) for reading in readings]

    def links(self, pairs: Sequence[tuple[Words, Words]]) -> list[list[Link]]:
        """The links of sentences in pieces and their translations, by target word. Raises as `align`."""
        readings = [WordAttention(*pair) for pair in pairs]
        fill_weights(self.model, readings, self._layers)
        return [by_target(self._aligned(reading).links) for reading in readings]

    @property
    def _layers(self) -> list[int] | None:
        return None if self.choice.layer is None else [self.choice.layer]

    def _aligned(self, reading: WordAttention) -> Aligned:
        source, target = reading.source, reading.target
        weights = weights_of(reading, self.choice)
        word_links = links_of(weights, self.choice) if reading.written else set()
        links = {(s, t) for s, t in word_links if s in source.owners and t in target.owners}
        return Aligned(source.words, target.words, links, weights, source.unread + target.unread)


def weights_of(reading: WordAttention, choice: Choice) -> Float[Tensor, "target source"]:
    """The attention of a choice as one matrix. Raises `ConfigurationError` when there is no such head."""
    by_layer = getattr(reading, choice.rows)
    if not by_layer:
        return torch.zeros(len(reading.target.words), len(reading.source.words))
    if choice.layer is None:
        weights = torch.stack([heads.mean(0) for heads in by_layer.values()]).mean(0)
    else:
        heads = by_layer[choice.layer]
        if choice.head is not None and choice.head >= len(heads):
            raise ConfigurationError(
                f"head {choice.head}: the layer has heads 0 to {len(heads) - 1}"
            )
        weights = heads.mean(0) if choice.head is None else heads[choice.head]
    return sinkhorn(weights) if choice.balanced else weights


def sinkhorn(
    weights: Float[Tensor, "*batch target source"],
) -> Float[Tensor, "*batch target source"]:
    """Scale rows and columns in turn until all rows have the same sum, 1, and so have all columns.

    A source word that every target word attends to, often a full stop, keeps only the differences
    between them. Sinkhorn and Knopp 1967, "Concerning nonnegative matrices and doubly
    stochastic matrices"; ten rounds, after a floor of 1e-4.

    >>> import torch
    >>> sinkhorn(torch.tensor([[0.4, 0.6], [0.1, 0.9]])).argmax(-1).tolist()
    [0, 1]
    """
    weights = weights + _FLOOR
    for _ in range(_ROUNDS):
        weights = weights / weights.sum(-2, keepdim=True)
        weights = weights / weights.sum(-1, keepdim=True)
    return weights


def links_of(weights: Float[Tensor, "target source"], choice: Choice) -> set[Link]:
    """The links that the method of a choice reads from its matrix."""
    if choice.method == "threshold":
        return threshold_links(weights, choice.threshold)
    return argmax_links(weights) if choice.method == "argmax" else mutual_links(weights)
