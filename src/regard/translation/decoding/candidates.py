"""The words that may come next and are best: two ways to one answer."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ModelError
from regard.translation.decoding.limits import DAMAGED, Limits, log_probabilities
from regard.translation.decoding.ranking import top


def best_words(
    logits: Float[Tensor, "rows vocabulary"],
    limits: Limits,
    written: Int[Tensor, "batch hypotheses tokens"],
    count: int,
    *,
    compiled: bool = True,
) -> tuple[Float[Tensor, "rows few"], Int[Tensor, "rows few"]]:
    """The log-probabilities of the `count` best words that may follow, and the words; of equals the first.

    Both ways, by compiled loops and by torch, give the same words; loops serve float32 on processors.

    Rows are the beginnings of each sentence side by side. Where fewer words may follow, or there
    are no more, the rest is -inf.

    Raises:
        ModelError: a logit is not a number.
    """
    few = min(count, logits.shape[1])
    if compiled and logits.is_cpu and logits.dtype == torch.float32:
        return _compiled(logits.contiguous(), limits, written, few)
    allowed = log_probabilities(logits).view(len(limits.longest), -1, logits.shape[1])
    return top(limits.restrict(allowed, written).flatten(0, 1), few)


def _compiled(logits: Tensor, limits: Limits, written: Tensor, few: int) -> tuple[Tensor, Tensor]:
    from regard.translation.decoding import candidate_loops as loops

    rows, vocabulary = logits.shape
    allowed = logits
    if limits.names_words:
        allowed = logits.clone()
        limits.forbid(allowed.view(len(limits.longest), -1, vocabulary), written)
    values, words = torch.empty(rows, few), torch.empty(rows, few, dtype=torch.int64)
    tops = torch.empty(vocabulary // loops.STRIP)
    given, room = (logits.numpy(), allowed.numpy()), (tops, values, words)
    rules = limits.rules(written.shape[2], rows)
    if not loops.best_few(*given, rules, *(each.numpy() for each in room)):
        raise ModelError(DAMAGED)
    return values, words
