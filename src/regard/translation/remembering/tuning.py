"""How a datastore is mixed in, chosen on a validation text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import DataError
from regard.translation.datastore import Mixing
from regard.translation.engines.remembering import Recall
from regard.translation.evaluation.scores import measure
from regard.translation.models.protocol import log_probabilities
from regard.translation.remembering.pairs import Encoded, as_read, batches, states_of
from regard.translation.text.batches import sources
from regard.translation.text.corpora import Pair
from regard.translation.translator import Translator

SENTENCES = 200  # of the text, spread over it
NEIGHBOURS = (8, 16, 32)
TEMPERATURES = (0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5)
REACHES = (0.1, 0.13, 0.16, 0.2, 0.3, 0.5, 1.0)
LIKENESSES = (0.0, 0.5, 1.0, 2.0, 4.0)
WEIGHTS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_LEAST = 1e-9


class Trial(NamedTuple):
    """The scores of a weight."""

    weight: float
    bleu: float
    chrf: float


def tune(
    translator: Translator,
    pairs: Sequence[Pair],
    folder: str | Path,
    *,
    similar: int = 0,
    lists: int | None = None,
    tracked: Callable[[Sequence[float]], Iterable[float]] = iter,
) -> tuple[Mixing, list[Trial]]:
    """Choose all but the weight by the probability of the targets, the weight by BLEU; keep the choice in the folder.

    BLEU is that of greedy translations. Weight 0, the model alone, is among those tried.

    Args:
        pairs: lines and their translations, of which at most 200 are read.
        similar: read the entries of so many similar pairs.
        lists: read so many lists of near states; None for the usual number, or for 0 with `similar`.
        tracked: the weights as they are tried, perhaps with a bar.

    Raises:
        DataError: no pair can be used, or the memory is empty.
        ModelError: the folder is of another model, or damaged.
    """
    step = max(1, len(pairs) // SENTENCES)
    pairs = [pair for pair in pairs[::step] if all(pair[:2])][:SENTENCES]
    if lists is None:
        lists = 0 if similar else Mixing().lists
    translator.read_memory(folder, similar=similar, lists=lists)
    try:
        best, trials = _tried(translator, folder, pairs, tracked)
    finally:
        translator.forget()
    mixing = best.changed(weight=max(trials, key=lambda trial: trial.bleu).weight)
    with translator.datastore(folder, write=True) as datastore:
        datastore.set_mixing(mixing)
    return mixing, trials


def _tried(
    translator: Translator,
    folder: str | Path,
    pairs: Sequence[Pair],
    tracked: Callable[[Sequence[float]], Iterable[float]],
) -> tuple[Mixing, list[Trial]]:
    """The likeliest mixing, and the scores of its translations with each weight."""
    recall = translator.recall
    assert recall is not None
    if not any(map(len, recall.tables)):
        raise DataError(
            f"{folder}: the memory is empty: write sentence pairs into it with `regard remember`"
        )
    best = _likeliest(translator, recall, pairs)
    search, trials = translator.search.changed(beam=1), []
    for weight in tracked(WEIGHTS):
        translator.recall = replace(recall, mixing=best.changed(weight=weight))
        texts = [
            one.text for one in translator.translate([pair[0] for pair in pairs], search=search)
        ]
        scores = measure(texts, [pair[1] for pair in pairs])
        trials.append(Trial(weight, scores.bleu or 0.0, scores.chrf or 0.0))
    return best, trials


def _likeliest(translator: Translator, recall: Recall, pairs: Sequence[Pair]) -> Mixing:
    """The mixing under which the targets are most probable."""
    read = as_read(translator, pairs)
    if not read:
        raise DataError("no usable sentence pairs: nothing to tune with")
    passes = [_Pass.of(translator, batch) for batch in batches(translator, read)]
    model = torch.cat([one.model for one in passes])
    losses = {}
    for likeness in LIKENESSES if recall.mixing.similar else LIKENESSES[:1]:
        reading = replace(recall, mixing=recall.mixing.changed(likeness=likeness))
        distances, hits = (
            torch.cat(each) for each in zip(*(one.nearest(reading) for one in passes), strict=True)
        )
        for count, temperature, reach in product(NEIGHBOURS, TEMPERATURES, REACHES):
            mixing = reading.mixing.changed(neighbours=count, temperature=temperature, reach=reach)
            weights = replace(reading, mixing=mixing).weights(distances[:, :count])
            total, memory = weights.sum(1), (weights * hits[:, :count]).sum(1)
            for weight in WEIGHTS[1:]:
                mixed = (1 - weight * total) * model + weight * memory
                losses[mixing.changed(weight=weight)] = -float(mixed.clamp(min=_LEAST).log().mean())
    return min(losses, key=losses.__getitem__)


class _Pass(NamedTuple):
    """Sentence pairs, the states before their target tokens, these tokens and their probabilities under the model."""

    batch: Sequence[Encoded]
    states: Tensor
    tokens: Tensor
    model: Tensor

    @classmethod
    def of(cls, translator: Translator, batch: Sequence[Encoded]) -> _Pass:
        states, tokens = states_of(translator, batch)
        with torch.no_grad():
            logits = translator.model.logits(states.to(next(translator.model.parameters()))).cpu()
        model = log_probabilities(logits).gather(1, tokens[:, None])[:, 0].exp()
        return cls(batch, states, tokens, model)

    def nearest(self, recall: Recall) -> tuple[Tensor, Tensor]:
        """The distances of the nearest entries, and which of them have the token."""
        source, lengths = sources([ids for ids, _ in self.batch])
        similar = recall.similar(source, lengths, [len(ids) + 1 for _, ids in self.batch])
        distances, tokens, _ = recall.nearest(self.states, similar, max(NEIGHBOURS), compiled=True)
        return distances, tokens == self.tokens[:, None]
