"""Word links learnt from the text that is to be aligned, without a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.translation.aligning.aligner import Aligned, Aligner, links_of, weights_of
from regard.translation.aligning.selection import matrix_choices
from regard.translation.aligning.word_attention import WordPair, word_attentions
from regard.translation.evaluation.alignment import (
    Link,
    argmax_links,
    flipped,
    grow_diagonal,
    measure_alignment,
    threshold_links,
)
from regard.translation.linking.learning import THRESHOLD, Posteriors, Progress, WordPairs, learn
from regard.translation.linking.priors import Priors
from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import Tokenizers

# The share of gold links among links of each mean probability, between these points a line. From the gold of
# `benchmarks/quality/aligners.py`; it changes no link at the usual threshold.
_MEANS, _SHARES = (0.0, 0.35, THRESHOLD, 1.0), (0.0, 0.24, THRESHOLD, 0.98)
_LIKELIER = 0.5
# The pairs by which heads of a translator are compared, and those that it reads at once.
_TRIAL, _CHUNK = 200, 256
_THRESHOLDS = (0.2, 0.3, 0.4)
Method = Literal["threshold", "grow-diagonal"]
Matrix = Float[Tensor, "target source"]


@dataclass(frozen=True)
class AdaptedText:
    """The links of a text that an aligner has learnt from.

    Attributes:
        pairs: the words of each sentence and of its translation.
        posteriors: the probability of each link.
        priors: what was learnt, for later text.
        aligner: a translator whose attention is averaged in.
        share: of the attention in that average.
    """

    pairs: WordPairs
    posteriors: Posteriors
    priors: Priors
    aligner: Aligner | None = None
    share: float = 0.0

    def attended(self, model: TranslationModel, tokenizers: Tokenizers) -> AdaptedText:
        """With the attention of a translator of these languages: of the head that agrees most with the learnt links.

        Its share in the average is half of their F1, so that a head that knows little changes little. Raises
        `ConfigurationError` for a model without attention to the source.
        """
        trial = [pair for pair in islice(self.aligned(), _TRIAL) if pair.links]
        words, links = (
            [(pair.source, pair.target) for pair in trial],
            [pair.links for pair in trial],
        )
        aligner, agreement = _agreeing(model, tokenizers, words, links) or (None, 0.0)
        return replace(self, aligner=aligner, share=agreement / 2)

    def aligned(
        self, method: Method = "threshold", threshold: float = THRESHOLD
    ) -> Iterator[Aligned]:
        """The links of each pair. Their weights are the means of the probabilities of both directions, `calibrated`.

        Args:
            method: "threshold" links words from that weight on; "grow-diagonal" joins the likeliest links of both
                directions by grow-diag-final-and.
        """
        for (source, target), directions in zip(self.pairs, self._directions(), strict=True):
            if directions is None:
                zeros = torch.zeros(()).expand(len(target), len(source))  # of one number in memory
                yield Aligned(list(source), list(target), set(), zeros)
                continue
            forward, backward = directions
            weights = calibrated((forward + backward) / 2)
            if method == "threshold":
                links = threshold_links(weights, threshold)
            else:
                links = grow_diagonal(_likeliest(forward), flipped(_likeliest(backward.T)))
            yield Aligned(list(source), list(target), links, weights)

    def _directions(self) -> Iterator[tuple[Matrix, Matrix] | None]:
        """Both directions of each pair; None for a pair that is too long."""
        too_long = set(self.posteriors.too_long)
        for begin in range(0, len(self.pairs), _CHUNK):
            numbers = range(begin, min(begin + _CHUNK, len(self.pairs)))
            readable = [number for number in numbers if number not in too_long]
            attention = self._attention(readable)
            for number in numbers:
                if number in too_long:
                    yield None
                    continue
                forward, backward = map(torch.from_numpy, self.posteriors.matrices(number))
                if number in attention:
                    forward = torch.lerp(forward, attention[number], self.share)
                    backward = torch.lerp(backward, attention[number], self.share)
                yield forward, backward

    def _attention(self, numbers: Sequence[int]) -> dict[int, Matrix]:
        """The attention of those pairs that the translator reads to their end."""
        if self.aligner is None:
            return {}
        read = self.aligner.align([self.pairs[number] for number in numbers])
        return {n: pair.weights for n, pair in zip(numbers, read, strict=True) if not pair.unread}


def _agreeing(
    model: TranslationModel,
    tokenizers: Tokenizers,
    pairs: Sequence[WordPair],
    links: Sequence[Set[Link]],
) -> tuple[Aligner, float] | None:
    """The aligner whose links have the greatest F1 with these, and this F1, from 0 to 1; None without a full pair.

    Its attention is balanced, and read with a threshold.

    Raises:
        ConfigurationError: the model has no attention to the source.
    """
    readings = word_attentions(model, tokenizers, pairs)
    full = next((reading for reading in readings if reading.written), None)
    if full is None:
        return None
    trials = []
    for plain in matrix_choices(full, (True,)):
        matrices = [weights_of(reading, plain) for reading in readings]
        for threshold in _THRESHOLDS:
            choice = replace(plain, method="threshold", threshold=threshold)
            theirs = [links_of(weights, choice) for weights in matrices]
            trials.append((measure_alignment(theirs, links).f1, choice))
    f1, choice = max(trials, key=lambda trial: trial[0])
    return Aligner(model, tokenizers, choice), f1 / 100


def calibrated(mean: Matrix) -> Matrix:
    """The share of right links that a mean of probabilities stands for.

    >>> calibrated(torch.tensor([0.0, 0.35, 0.44, 1.0])).tolist()
    [0.0, 0.23999999463558197, 0.4399999976158142, 0.9800000190734863]
    """
    return torch.from_numpy(np.interp(mean.numpy(), _MEANS, _SHARES).astype(np.float32))


def _likeliest(weights: Matrix) -> set[Link]:
    """The likeliest source word of each target word, where it is likelier than none."""
    return argmax_links(weights) & threshold_links(weights, _LIKELIER)


def adapt(
    pairs: WordPairs,
    *,
    seed: int = 0,
    priors: Priors | None = None,
    progress: Progress | None = None,
) -> AdaptedText:
    """Learn the links of a text from the text itself, by Gibbs sampling (`linking`).

    Args:
        pairs: words of sentences and of their translations; a side may be empty.
        seed: the same seed gives the same links, on any number of threads.
        priors: what earlier text taught.
        progress: called with the number of rounds that are done, of `all_rounds`.
    """
    return AdaptedText(pairs, *learn(pairs, seed=seed, priors=priors, progress=progress))
