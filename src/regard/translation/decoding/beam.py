"""Beam search: the best beginnings of each sentence, grown word by word."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ModelError
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.decoding.limits import IMPOSSIBLE, Limits, best_words
from regard.translation.decoding.live import Ended, Live
from regard.translation.decoding.tree import Tree
from regard.translation.engines import SearchEngine, evaluating
from regard.translation.models.protocol import Lengths, SourceIds, State
from regard.translation.settings.search import Search
from regard.translation.text.tokenizer import EOS


def beam(
    engine: SearchEngine,
    source: SourceIds,
    lengths: Lengths,
    limits: Limits,
    search: Search,
    tree: Tree | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch with beam search, ranked by log p(y | source) / ((5 + n) / 6)^alpha.

    A sentence is done when `beam` x `patience` of its hypotheses have ended (patience: Kasai et al.
    2022, arXiv 2204.05424), or when no live beginning can still reach the score of the nbest-th
    that has ended: log-probabilities only fall, so log p / ((5 + longest) / 6)^alpha is the most
    that a beginning can come to. Finished sentences leave the batch. A `tree` records the steps, of
    a batch of one sentence.

    Returns:
        For each sentence at most `nbest` distinct hypotheses, the best first; fewer only where the
        limits allow no more.

    Raises:
        ModelError: logits that are not numbers.
    """
    found = _Found(limits, search)
    with evaluating(engine.model):
        state = engine.begin(source, lengths)
        live = Live.begin(len(source), source.device)
        while len(live.sentences):
            logits, state = engine.step(live.words.flatten(), state)
            following, rows, ended = advance(
                live, logits, limits, search.beam, compiled=engine.loops
            )
            found.collect(live, ended)
            if tree is not None:
                tree.step(live, logits, limits, search.beam, following, rows, ended)
            live = following
            kept = found.going_on(live)
            if len(kept) < len(live.sentences):
                live, limits, rows = live.select(kept), limits.select(kept), rows[kept]
            state = _select(state, rows.flatten(), len(logits))
    return found.best()


# The next beginnings, the rows of the model's state that they grew from, and the hypotheses that ended.
Step = tuple[Live, Int[Tensor, "batch beginnings"], Ended]


def advance(
    live: Live,
    logits: Float[Tensor, "rows vocabulary"],
    limits: Limits,
    size: int,
    *,
    compiled: bool,
) -> Step:
    """One step, as a pure function over all sentences and beginnings at once.

    Each beginning gives its best `size` + 1 words, of which one may be the end; of all these the best
    2 x `size` are kept, so that `size` of them do not end. Equals: the better beginning first, then the smaller id.
    """
    best, words = best_words(logits, limits, live.written, size + 1, compiled=compiled)
    (batch, beginnings), few = live.words.shape, best.shape[1]
    best, words = best.reshape(batch, -1), words.reshape(batch, -1)
    totals = best + live.totals.repeat_interleave(few, 1)
    order = totals.sort(dim=-1, descending=True, stable=True).indices[:, : 2 * size]
    parents = order.div(few, rounding_mode="floor")
    totals, words, log_p = (each.gather(1, order) for each in (totals, words, best))
    ends = words == EOS
    among_best = ends[:, :size] & totals[:, :size].isfinite()
    sentences, places = among_best.nonzero().unbind(1)
    ended = Ended(sentences, parents[sentences, places], log_p[sentences, places])
    # A stable sort of "ends" puts those that go on first and keeps their order.
    order = ends.sort(dim=-1, stable=True).indices[:, :size]
    totals = totals.masked_fill(ends, -math.inf)
    totals, words, log_p, parents = (
        each.gather(1, order) for each in (totals, words, log_p, parents)
    )
    rows = parents + torch.arange(batch, device=parents.device).unsqueeze(1) * beginnings
    written = torch.cat([live.written.flatten(0, 1)[rows], words.unsqueeze(2)], 2)
    history = torch.cat([live.history.flatten(0, 1)[rows], log_p.unsqueeze(2)], 2)
    return Live(live.sentences, words, totals, written, history), rows, ended


class _Found:
    """The hypotheses that have ended, and whether a sentence may stop looking for more."""

    def __init__(self, limits: Limits, search: Search) -> None:
        self.nbest, self.length_penalty = search.nbest, search.length_penalty
        self.enough = search.beam * search.patience
        sentences = len(limits.longest)
        self.found: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        # The score a beginning must still be able to reach: the nbest-th score, +inf where enough ended.
        self.bar = [-math.inf] * sentences
        most = ((limits.longest + 6) / 6.0).double() ** search.length_penalty
        self.most: list[float] = most.tolist()

    def collect(self, live: Live, ended: Ended) -> None:
        """Keep the hypotheses that ended."""
        batch, beginnings, log_p = ended
        if not len(batch):
            return
        rows = zip(
            live.sentences[batch].tolist(),
            live.written[batch, beginnings].tolist(),
            live.history[batch, beginnings].tolist(),
            log_p.tolist(),
            strict=True,
        )
        changed = set()
        for sentence, tokens, before, end in rows:
            hypothesis = Hypothesis.of(tokens, [*before, end], self.length_penalty)
            self.found[sentence].append(hypothesis)
            changed.add(sentence)
        for sentence in changed:
            scores = sorted((one.score for one in self.found[sentence]), reverse=True)
            if len(scores) >= self.enough:
                self.bar[sentence] = math.inf
            elif len(scores) >= self.nbest:
                self.bar[sentence] = scores[self.nbest - 1]

    def going_on(self, live: Live) -> Int[Tensor, " kept"]:
        """The places of the sentences that may still find better."""
        best = zip(live.sentences.tolist(), live.totals[:, 0].tolist(), strict=True)
        kept = [i for i, (s, total) in enumerate(best) if self.bar[s] < total / self.most[s]]
        return torch.tensor(kept, device=live.sentences.device, dtype=torch.int64)

    def best(self) -> list[list[Hypothesis]]:
        if not all(self.found):
            raise ModelError(IMPOSSIBLE)
        return [sorted(found, key=lambda one: -one.score)[: self.nbest] for found in self.found]


def _select(state: State, rows: Int[Tensor, " kept"], before: int) -> State:
    """The state of these rows; copies nothing where they are all of them in order."""
    if len(rows) == before and torch.equal(rows, torch.arange(before, device=rows.device)):
        return state
    return state.select(rows)
