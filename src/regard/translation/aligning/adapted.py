"""Word links learnt from the text that is to be aligned, without a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from regard.translation.aligning.aligner import Aligned
from regard.translation.evaluation.alignment import (
    Link,
    argmax_links,
    flipped,
    grow_diagonal,
    threshold_links,
)
from regard.translation.linking.learning import Posteriors, Progress, WordPairs, learn
from regard.translation.linking.priors import Priors

THRESHOLD = 0.45
_LIKELIER = 0.5
Method = Literal["threshold", "grow-diagonal"]


@dataclass(frozen=True)
class AdaptedText:
    """The links of a text that an aligner has learnt from.

    Attributes:
        pairs: the words of each sentence and of its translation.
        posteriors: the probability of each link.
        priors: what was learnt, for later text.
    """

    pairs: WordPairs
    posteriors: Posteriors
    priors: Priors

    def aligned(
        self, method: Method = "threshold", threshold: float = THRESHOLD
    ) -> Iterator[Aligned]:
        """The links of each pair. Their weights are the means of the probabilities of both directions.

        Args:
            method: "threshold" links words from that mean on; "grow-diagonal" joins the likeliest links of both
                directions by grow-diag-final-and.
        """
        for number, (source, target) in enumerate(self.pairs):
            if number in self.posteriors.too_long:
                zeros = torch.zeros(()).expand(len(target), len(source))  # of one number in memory
                yield Aligned(list(source), list(target), set(), zeros)
                continue
            forward, backward = map(torch.from_numpy, self.posteriors.matrices(number))
            weights = (forward + backward) / 2
            if method == "threshold":
                links = threshold_links(weights, threshold)
            else:
                links = grow_diagonal(_likeliest(forward), flipped(_likeliest(backward.T)))
            yield Aligned(list(source), list(target), links, weights)


def _likeliest(weights: Float[Tensor, "target source"]) -> set[Link]:
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
