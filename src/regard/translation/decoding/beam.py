"""Beam search: the `size` best beginnings, grown word by word."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from regard.errors import ConfigurationError, ModelError
from regard.translation.decoding.beam_step import Grown, Live, advance
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.decoding.limits import Limits
from regard.translation.decoding.prefix import Prefixes
from regard.translation.decoding.unroll import IMPOSSIBLE, evaluating
from regard.translation.engines.protocol import Searched
from regard.translation.models.protocol import State


def beam(
    model: Searched,
    source: Int[Tensor, "batch source"],
    lengths: Int[Tensor, " batch"],
    *,
    size: int,
    max_length: int | Int[Tensor, " batch"],
    min_length: int = 0,
    prefix: Prefixes | Sequence[Sequence[int]] | None = None,
    no_repeat_ngram: int = 0,
    length_penalty: float = 1.0,
    nbest: int = 1,
    patience: float = 1.0,
    compiled: bool = True,
) -> list[list[Hypothesis]]:
    """Translate a batch with beam search, ranked by log p(y | source) / ((5 + n) / 6)^alpha.

    A sentence is done when `size` x `patience` of its hypotheses have ended (patience: Kasai et al.
    2022, arXiv 2204.05424), or when no live beginning can still reach the score of the nbest-th
    that has ended: log-probabilities only fall, so log p / ((5 + longest) / 6)^alpha is the most
    that a beginning can come to. Finished sentences leave the batch.

    Args:
        source: ids, padded.
        lengths: of each source, its end counted.
        size: beginnings kept for each sentence.
        max_length: tokens of a translation at most, one number or one a sentence; a hypothesis that
            gets that far is ended there.
        min_length: tokens of a translation at least.
        prefix: the tokens each translation must begin with.
        no_repeat_ngram: no sequence of so many tokens may occur twice, except in the prefix; 0 allows all.
        length_penalty: alpha, at least 0.
        nbest: translations wanted for each sentence, at most `size`.
        patience: above 0; math.inf stops only when nothing can get better.
        compiled: whether steps run as compiled loops, on processors.

    Returns:
        For each sentence at most `nbest` distinct hypotheses, the best first; fewer only where the
        limits allow no more.

    Raises:
        ConfigurationError: limits that do not fit the batch or each other.
        ModelError: logits that are not numbers.
    """
    _check(size, nbest, length_penalty, patience)
    limits = Limits.of(
        len(source),
        max_length,
        min_length=min_length,
        prefix=prefix,
        no_repeat_ngram=no_repeat_ngram,
        device=source.device,
    )
    if not len(source):
        return []
    ended = _Ended(limits, size, nbest, length_penalty, patience)
    with evaluating(model):
        state = model.begin(source, lengths)
        live = Live.begin(len(source), source.device)
        while len(live.sentences):
            logits, state = model.step(live.words.flatten(), state)
            grown, following, rows = advance(live, logits, limits, size, compiled=compiled)
            ended.collect(live, grown)
            live = following
            kept = ended.going_on(live)
            if len(kept) < len(live.sentences):
                live, limits, rows = live.select(kept), limits.select(kept), rows[kept]
            state = _select(state, rows.flatten(), len(logits))
    return ended.best()


class _Ended:
    """The hypotheses that have ended, and whether a sentence may stop looking for more."""

    def __init__(
        self, limits: Limits, size: int, nbest: int, length_penalty: float, patience: float
    ) -> None:
        self.nbest, self.length_penalty = nbest, length_penalty
        self.enough = size * patience
        sentences = len(limits.longest)
        self.found: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        # The score a beginning must still be able to reach: the nbest-th score, +inf where enough ended.
        self.bar = [-math.inf] * sentences
        most = ((limits.longest + 6) / 6.0).double() ** length_penalty
        self.most: list[float] = most.tolist()

    def collect(self, live: Live, grown: Grown) -> None:
        """Keep what ends among the best `size`: had they gone on, they would be kept."""
        if not len(grown.ended):
            return
        batch, column = grown.ended.unbind(1)
        parents = grown.parents[batch, column]
        rows = zip(
            live.sentences[batch].tolist(),
            live.written[batch, parents].tolist(),
            live.history[batch, parents].tolist(),
            grown.log_p[batch, column].tolist(),
            strict=True,
        )
        changed = set()
        for sentence, tokens, log_p, end in rows:
            hypothesis = Hypothesis.of(tokens, [*log_p, end], self.length_penalty)
            self.found[sentence].append(hypothesis)
            changed.add(sentence)
        for sentence in changed:
            self.bar[sentence] = self._bar(sentence)

    def going_on(self, live: Live) -> Int[Tensor, " kept"]:
        """The places of the sentences that may still find better."""
        best = zip(live.sentences.tolist(), live.totals[:, 0].tolist(), strict=True)
        kept = [i for i, (s, total) in enumerate(best) if self.bar[s] < total / self.most[s]]
        return torch.tensor(kept, device=live.sentences.device, dtype=torch.int64)

    def best(self) -> list[list[Hypothesis]]:
        if not all(self.found):
            raise ModelError(IMPOSSIBLE)
        return [sorted(found, key=lambda one: -one.score)[: self.nbest] for found in self.found]

    def _bar(self, sentence: int) -> float:
        found = self.found[sentence]
        if len(found) >= self.enough:
            return math.inf
        if len(found) < self.nbest:
            return -math.inf
        return sorted((one.score for one in found), reverse=True)[self.nbest - 1]


def _select(state: State, rows: Int[Tensor, " kept"], before: int) -> State:
    """The state of these rows; copies nothing where they are all of them in order."""
    if len(rows) == before and torch.equal(rows, torch.arange(before, device=rows.device)):
        return state
    return state.select(rows)


def _check(size: int, nbest: int, length_penalty: float, patience: float) -> None:
    if size < 1:
        raise ConfigurationError(f"beam size {size}: use 1 or more")
    if not 1 <= nbest <= size:
        raise ConfigurationError(f"nbest {nbest}: use 1 to {size}, the beam size")
    if not 0 <= length_penalty < math.inf:
        raise ConfigurationError(f"length_penalty {length_penalty}: use a number of 0 or more")
    if not patience > 0:
        raise ConfigurationError(f"patience {patience}: use a number above 0")
