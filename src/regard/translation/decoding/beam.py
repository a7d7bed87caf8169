"""Beam search: the best beginnings of each sentence, grown word by word; and the tree that records it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import ModelError
from regard.translation.decoding.constraints import Progress, in_turn
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.decoding.limits import IMPOSSIBLE, Limits, best_words
from regard.translation.engines import SearchEngine, evaluating
from regard.translation.models.protocol import Lengths, Logits, SourceIds, State
from regard.translation.settings.search import Search
from regard.translation.text.tokenizer import BOS, EOS


def beam(
    engine: SearchEngine,
    source: SourceIds,
    lengths: Lengths,
    limits: Limits,
    search: Search,
    tree: Tree | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch with beam search, ranked by log p(y | source) / ((5 + n) / 6)^alpha.

    A sentence is done when none of its live beginnings can still become one of its `nbest` best
    hypotheses. A beginning with log-probability T and all its continuations have scores of at most

        T / ((5 + longest + 1) / 6)^alpha,

    because log-probabilities are never above 0: a continuation's is at most T, and its divisor is
    largest for `longest` tokens and the end. Prefixes, forbidden repetitions and other limits only
    take words away; the probabilities of the others stay as they are. A beginning whose bound is not
    above the score of the nbest-th hypothesis is dropped at once. That changes nothing for the
    others: the bound falls with T, so those that are dropped, and all that would grow from them, rank
    behind those that can still win.

    With a `patience` above 0, a sentence is also done when `beam` x `patience` of its hypotheses have
    ended (Kasai et al. 2022, arXiv 2204.05424), though a better one may be alive.

    Finished sentences leave the batch. A `tree` records the steps, of a batch of one sentence.

    Returns:
        For each sentence at most `beam` distinct hypotheses, the best first. The first `nbest` are the best that there
        are, fewer only where the limits allow no more; the others ended in the search.

    Raises:
        ModelError: logits that are not numbers.
    """
    ranking = _Ranking(limits, search)
    with evaluating(engine.model):
        state = engine.begin(source, lengths)
        live = Live.begin(len(source), source.device)
        while len(live.sentences):
            # The state has a row for each beginning, and none for empty places.
            logits, state = engine.step(live.words[live.filled], state)
            following, parents, ended = advance(
                live, logits, limits, search.beam, compiled=engine.loops
            )
            ranking.collect(live, ended)
            following = ranking.without_hopeless(following)
            if tree is not None:
                tree.step(live, logits, limits, search.beam, following, parents, ended)
            rows = live.rows()[parents[following.filled]]
            unfinished = following.filled.any(1).nonzero().flatten()
            if len(unfinished) < len(live.sentences):
                following, limits = following.select(unfinished), limits.select(unfinished)
            state, live = _select(state, rows, len(logits)), following
    return ranking.best()


@dataclass(frozen=True)
class Live:
    """The beginnings kept for each sentence, the best first; a place that is empty has total -inf.

    Attributes:
        sentences: the place of each sentence in the batch that was given.
        words: what each beginning ends with and the model reads next.
        totals: log-probability of each beginning.
        tokens: its tokens.
        history: their log-probabilities.
    """

    sentences: Int[Tensor, " batch"]
    words: Int[Tensor, "batch beginnings"]
    totals: Float[Tensor, "batch beginnings"]
    tokens: Int[Tensor, "batch beginnings tokens"]
    history: Float[Tensor, "batch beginnings tokens"]

    @classmethod
    def begin(cls, sentences: int, device: torch.device) -> Self:
        """One empty beginning a sentence: the first step needs no copies of it."""
        return cls(
            torch.arange(sentences, device=device),
            torch.full((sentences, 1), BOS, device=device),
            torch.zeros(sentences, 1, device=device),
            torch.empty(sentences, 1, 0, dtype=torch.int64, device=device),
            torch.empty(sentences, 1, 0, device=device),
        )

    @cached_property
    def filled(self) -> Bool[Tensor, "batch beginnings"]:
        """The places that are not empty."""
        return self.totals > -math.inf

    def rows(self) -> Int[Tensor, " places"]:
        """For each place, of all sentences one after the other, its row among those that are not empty."""
        return self.filled.flatten().cumsum(0) - 1

    def select(self, rows: Int[Tensor, " kept"]) -> Live:
        return Live(*(getattr(self, field.name)[rows] for field in fields(self)))

    def best_words(
        self, logits: Logits, limits: Limits, count: int, *, compiled: bool
    ) -> tuple[Float[Tensor, "places few"], Int[Tensor, "places few"]]:
        """The best words after each beginning (see `limits.best_words`); empty places have only -inf.

        `logits` has a row for each beginning, and none for empty places.
        """
        filled, beginnings = self.filled.flatten(), self.tokens.shape[1]
        if len(logits) == len(filled):
            return best_words(logits, limits, self.tokens, count, compiled=compiled)
        places = filled.nonzero().flatten()
        tokens = self.tokens.flatten(0, 1)[places].unsqueeze(1)
        own_limits = limits.select(places // beginnings)
        log_p, words = best_words(logits, own_limits, tokens, count, compiled=compiled)
        shape = len(filled), log_p.shape[1]
        log_p_of_places, ends = log_p.new_full(shape, -math.inf), words.new_full(shape, EOS)
        return log_p_of_places.index_copy_(0, places, log_p), ends.index_copy_(0, places, words)


class Ended(NamedTuple):
    """The hypotheses that end among the best `size`: had they gone on, they would be kept.

    Attributes:
        sentences, beginnings: which of the live beginnings each one ends.
        log_p: the log-probability of its end.
    """

    sentences: Int[Tensor, " ended"]
    beginnings: Int[Tensor, " ended"]
    log_p: Float[Tensor, " ended"]


# The next beginnings, the place in `live` that each grew from, and the hypotheses that ended.
Step = tuple[Live, Int[Tensor, "batch beginnings"], Ended]


def advance(live: Live, logits: Logits, limits: Limits, size: int, *, compiled: bool) -> Step:
    """One step, as a pure function over all sentences and beginnings at once.

    `logits` has a row for each beginning, and none for empty places.
    Each beginning gives its best `size` + 1 words, of which one may be the end; of all these the best
    2 x `size` are kept, so that `size` of them do not end. Equals: the better beginning first, then the smaller id.
    With constraints, beginnings have their next tokens, too, and the best come in turn from the banks of `constraints`.
    """
    best, words = live.best_words(logits, limits, size + 1, compiled=compiled)
    progress = limits.constraints and limits.constraints.progress(live.tokens)
    if progress:
        best, words = _continued(live, logits, limits, best, words, progress)
    (batch, beginnings), choices = live.words.shape, best.shape[1]
    best, words = best.reshape(batch, -1), words.reshape(batch, -1)
    totals = best + live.totals.repeat_interleave(choices, 1)
    order = totals.sort(dim=-1, descending=True, stable=True).indices
    if progress:
        columns = order.tolist(), totals.tolist(), words.tolist(), progress
        turns = [in_turn(*sentence, choices) for sentence in zip(*columns, strict=True)]
        order = order.new_tensor(turns)
    order = order[:, : 2 * size]
    parents = order.div(choices, rounding_mode="floor")
    totals, words, log_p = (values.gather(1, order) for values in (totals, words, best))
    ends = words == EOS
    among_best = ends[:, :size] & totals[:, :size].isfinite()
    sentences, places = among_best.nonzero().unbind(1)
    ended = Ended(sentences, parents[sentences, places], log_p[sentences, places])
    # A stable sort of "ends" puts those that go on first and keeps their order.
    order = ends.sort(dim=-1, stable=True).indices[:, :size]
    totals = totals.masked_fill(ends, -math.inf)
    totals, words, log_p, parents = (
        values.gather(1, order) for values in (totals, words, log_p, parents)
    )
    rows = parents + torch.arange(batch, device=parents.device).unsqueeze(1) * beginnings
    tokens = torch.cat([live.tokens.flatten(0, 1)[rows], words.unsqueeze(2)], 2)
    history = torch.cat([live.history.flatten(0, 1)[rows], log_p.unsqueeze(2)], 2)
    return Live(live.sentences, words, totals, tokens, history), rows, ended


def _continued(
    live: Live,
    logits: Logits,
    limits: Limits,
    best: Tensor,
    words: Tensor,
    progress: list[list[Progress]],
) -> tuple[Tensor, Tensor]:
    """The best words of all places and the tokens that constraints continue with (see `Constraints`)."""
    assert limits.constraints is not None
    open_places = live.filled & (limits.longest > live.tokens.shape[2]).unsqueeze(1)
    rows = [
        row if is_open else None
        for row, is_open in zip(live.rows().tolist(), open_places.flatten().tolist(), strict=True)
    ]
    return limits.constraints.with_continuations(best, words, logits, rows, list(chain(*progress)))


class _Ranking:
    """The best hypotheses that have ended, and the score that others must exceed."""

    def __init__(self, limits: Limits, search: Search) -> None:
        self.nbest, self.beam = search.nbest, search.beam
        self.length_penalty = search.length_penalty
        self.enough = search.beam * search.patience or math.inf
        sentences, device = len(limits.longest), limits.longest.device
        self.hypotheses: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        self.ended = [0] * sentences
        # The nbest-th score of each sentence, +inf where enough hypotheses have ended.
        self.bar = torch.full((sentences,), -math.inf, dtype=torch.float64, device=device)
        self.largest_divisor = ((limits.longest + 6) / 6.0).double() ** search.length_penalty

    def collect(self, live: Live, ended: Ended) -> None:
        """Keep the hypotheses that ended."""
        batch, beginnings, log_p = ended
        if not len(batch):
            return
        rows = zip(
            live.sentences[batch].tolist(),
            live.tokens[batch, beginnings].tolist(),
            live.history[batch, beginnings].tolist(),
            log_p.tolist(),
            strict=True,
        )
        hypotheses = [
            (sentence, Hypothesis.of(tokens, [*log_probabilities, end], self.length_penalty))
            for sentence, tokens, log_probabilities, end in rows
        ]
        bars = {}
        for sentence, hypothesis in hypotheses:
            ranked = sorted(
                [*self.hypotheses[sentence], hypothesis], key=attrgetter("score"), reverse=True
            )
            self.hypotheses[sentence] = ranked[: self.beam]
            self.ended[sentence] += 1
            if self.ended[sentence] >= self.enough:
                bars[sentence] = math.inf
            elif len(ranked) >= self.nbest:
                bars[sentence] = ranked[self.nbest - 1].score
        self.bar[list(bars)] = self.bar.new_tensor(list(bars.values()))

    def without_hopeless(self, live: Live) -> Live:
        """Empty the places of beginnings that cannot exceed the bar (see `beam`)."""
        if not any(self.ended):
            return live
        highest = live.totals / self.largest_divisor[live.sentences].unsqueeze(1)
        hopeless = highest <= self.bar[live.sentences].unsqueeze(1)
        return replace(live, totals=live.totals.masked_fill(hopeless, -math.inf))

    def best(self) -> list[list[Hypothesis]]:
        if not all(self.hypotheses):
            raise ModelError(IMPOSSIBLE)
        return self.hypotheses


def _select(state: State, rows: Int[Tensor, " kept"], count: int) -> State:
    """The state of these rows; copies nothing where they are all of them in order."""
    if len(rows) == count and torch.equal(rows, torch.arange(count, device=rows.device)):
        return state
    return state.select(rows)


@dataclass(frozen=True)
class Node:
    """A beginning of a translation.

    Attributes:
        parent: the number of the node without its last token; -1 for none.
        token: the last token.
        log_probability: of all its tokens.
        kept: whether the search continued it, or kept it as an ended translation.
    """

    parent: int
    token: int
    log_probability: float
    kept: bool


class Tree:
    """Records the beam search of one sentence, when it is given to one.

    Attributes:
        nodes: a parent before its children, the best of a step first.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._live = [-1]  # the node of each live beginning

    def step(
        self,
        live: Live,
        logits: Logits,
        limits: Limits,
        size: int,
        following: Live,
        rows: Int[Tensor, "one beginnings"],
        ended: Ended,
    ) -> None:
        """Note a step: the beginnings before it, the logits, and the result of `beam.advance`."""
        totals_before = live.totals[0].tolist()
        grown = list(zip(rows[0].tolist(), following.words[0].tolist(), strict=True))
        totals = zip(grown, following.totals[0].tolist(), strict=True)
        # Log-probabilities by live beginning and word.
        surviving = {at: total for at, total in totals if total > float("-inf")}
        for beginning, log_p in zip(ended.beginnings.tolist(), ended.log_p.tolist(), strict=True):
            surviving[beginning, EOS] = totals_before[beginning] + log_p
        candidates = dict(surviving)
        best, words = live.best_words(logits, limits, size + 1, compiled=False)
        for beginning, (row, row_words) in enumerate(
            zip(best.tolist(), words.tolist(), strict=True)
        ):
            for log_p, word in zip(row, row_words, strict=True):
                if (total := totals_before[beginning] + log_p) > float("-inf"):
                    candidates.setdefault((beginning, word), total)
        best_grown = sorted(candidates, key=lambda at: (at not in surviving, -candidates[at]))[
            : 2 * size
        ]
        numbers = {}
        for at in sorted(best_grown, key=lambda at: -candidates[at]):
            numbers[at] = len(self.nodes)
            self.nodes.append(Node(self._live[at[0]], at[1], candidates[at], at in surviving))
        self._live = [numbers.get(at, -1) for at in grown]
