"""One step of beam search, as pure functions over all sentences and beginnings at once.

`grow` and `go_on` say what a step is; on a processor `beam_step_loops` does both in one call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.translation.decoding.candidates import best_words
from regard.translation.decoding.limits import Limits
from regard.translation.text.tokenizer import BOS, EOS

_FEW = 32  # the loops sort by insertion, which suits short lists


@dataclass(frozen=True)
class Live:
    """The beginnings kept for each sentence, the best first; a place that is empty has total -inf.

    Attributes:
        sentences: the place of each sentence in the batch that was given.
        words: what each beginning ends with and the model reads next.
        totals: log-probability of each beginning.
        written: its tokens.
        history: their log-probabilities.
    """

    sentences: Int[Tensor, " batch"]
    words: Int[Tensor, "batch beginnings"]
    totals: Float[Tensor, "batch beginnings"]
    written: Int[Tensor, "batch beginnings tokens"]
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

    def select(self, kept: Int[Tensor, " kept"]) -> Live:
        return Live(
            self.sentences[kept],
            self.words[kept],
            self.totals[kept],
            self.written[kept],
            self.history[kept],
        )


@dataclass(frozen=True)
class Grown:
    """Beginnings with one more word, the best first, from which the next ones are chosen.

    Attributes:
        totals: log-probability of each.
        parents: which beginning it grew from.
        words: the word it grew by.
        log_p: the log-probability of that word.
        ended: the sentence and the candidate of each that ends among the best `size`: had it gone
            on, it would be kept.
    """

    totals: Float[Tensor, "batch candidates"]
    parents: Int[Tensor, "batch candidates"]
    words: Int[Tensor, "batch candidates"]
    log_p: Float[Tensor, "batch candidates"]
    ended: Int[Tensor, "ended 2"]

    @property
    def ending(self) -> Bool[Tensor, "batch candidates"]:
        return self.words == EOS


def advance(
    live: Live,
    logits: Float[Tensor, "rows vocabulary"],
    limits: Limits,
    size: int,
    *,
    compiled: bool = True,
) -> tuple[Grown, Live, Int[Tensor, "batch beginnings"]]:
    """What grew, the beginnings that go on, and the rows of the model's state that they grew from."""
    best, words = best_words(logits, limits, live.written, size + 1, compiled=compiled)
    if compiled and logits.is_cpu and size <= _FEW:
        return _compiled(live, best, words, size)
    grown = grow(live, best, words, size)
    return grown, *go_on(live, grown, size)


def grow(
    live: Live,
    best: Float[Tensor, "rows few"],
    words: Int[Tensor, "rows few"],
    size: int,
) -> Grown:
    """The best continuations, enough that `size` of them do not end.

    Each beginning gives its best `size` + 1 words, of which one may be the end; of all these the
    best 2 x `size` are kept. Equals: the better beginning first, then the smaller id.
    """
    batch, few = len(live.words), best.shape[1]
    best, words = best.reshape(batch, -1), words.reshape(batch, -1)
    totals = best + live.totals.repeat_interleave(few, 1)
    order = totals.sort(dim=-1, descending=True, stable=True).indices[:, : 2 * size]
    totals, words = totals.gather(1, order), words.gather(1, order)
    ended = (words[:, :size] == EOS) & totals[:, :size].isfinite()
    return Grown(
        totals,
        order.div(few, rounding_mode="floor"),
        words,
        best.gather(1, order),
        ended.nonzero(),
    )


def go_on(live: Live, grown: Grown, size: int) -> tuple[Live, Int[Tensor, "batch beginnings"]]:
    """The best `size` that do not end, and the rows of the model's state that they grew from."""
    # A stable sort of "ends" puts those that go on first and keeps their order.
    order = grown.ending.sort(dim=-1, stable=True).indices[:, :size]
    parents, words = grown.parents.gather(1, order), grown.words.gather(1, order)
    totals = grown.totals.gather(1, order).masked_fill(grown.ending.gather(1, order), float("-inf"))
    batch, beginnings = live.words.shape
    rows = parents + torch.arange(batch, device=parents.device).unsqueeze(1) * beginnings
    before, log_p = live.written.flatten(0, 1)[rows], live.history.flatten(0, 1)[rows]
    return Live(
        live.sentences,
        words,
        totals,
        torch.cat([before, words.unsqueeze(2)], 2),
        torch.cat([log_p, grown.log_p.gather(1, order).unsqueeze(2)], 2),
    ), rows


def _compiled(
    live: Live, best: Tensor, words: Tensor, size: int
) -> tuple[Grown, Live, Int[Tensor, "batch beginnings"]]:
    from regard.translation.decoding.beam_step_loops import grow_all

    batch, beginnings, steps = live.written.shape
    candidates = min(2 * size, beginnings * best.shape[1])
    kept = min(size, candidates)

    def room(*shape: int) -> Tensor:
        return torch.empty(batch, *shape)

    def ids(*shape: int) -> Tensor:
        return torch.empty(batch, *shape, dtype=torch.int64)

    grown = Grown(
        *(room(candidates), ids(candidates), ids(candidates), room(candidates)),
        ids(kept, 2).flatten(0, 1),
    )
    following = Live(
        *(live.sentences, ids(kept), room(kept), ids(kept, steps + 1), room(kept, steps + 1))
    )
    rows = ids(kept)
    given = (live.totals, best, words, live.written, live.history)
    made = (grown.totals, grown.parents, grown.words, grown.log_p, grown.ended)
    went = (following.totals, following.words, rows, following.written, following.history)
    found = grow_all(
        *(each.numpy() for each in given), size, *(each.numpy() for each in (*made, *went))
    )
    return replace(grown, ended=grown.ended[:found]), following, rows
