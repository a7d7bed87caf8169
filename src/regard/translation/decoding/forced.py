"""A translation that is given: its probability under the model, and its attention."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from regard.errors import ConfigurationError
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.decoding.limits import log_probabilities
from regard.translation.decoding.unroll import evaluating
from regard.translation.models.protocol import Looks, TranslationModel
from regard.translation.text.batches import targets
from regard.translation.text.tokenizer import EOS

# Positions whose logits are held at a time.
_ROWS = 1024


def score(
    model: TranslationModel,
    source: Int[Tensor, "batch source"],
    lengths: Int[Tensor, " batch"],
    translations: Sequence[Sequence[int]],
    *,
    length_penalty: float = 1.0,
) -> list[Hypothesis]:
    """The hypotheses of given translations: with the scores that a search would give them.

    Args:
        source: ids, padded.
        lengths: of each source, its end counted.
        translations: the ids of each translation, without begin and end.
        length_penalty: alpha of the score.

    Raises:
        ConfigurationError: not one translation a source.
        ModelError: logits that are not numbers.
    """
    read = _read(source, translations)
    if not len(source):
        return []
    words = torch.tensor(
        [word for tokens in translations for word in (*tokens, EOS)], device=source.device
    )
    counts = [len(tokens) + 1 for tokens in translations]
    real = torch.arange(read.shape[1]) < torch.tensor(counts)[:, None]
    with evaluating(model):
        hidden = model.hidden(source, lengths, read)[real.to(source.device)]
        parts = [
            log_probabilities(model.logits(some)).gather(1, expected.unsqueeze(1)).squeeze(1)
            for some, expected in zip(hidden.split(_ROWS), words.split(_ROWS), strict=True)
        ]
    each = torch.cat(parts).cpu().split(counts)
    return [
        Hypothesis.of(tokens, log_p.tolist(), length_penalty)
        for tokens, log_p in zip(translations, each, strict=True)
    ]


def looks(
    model: TranslationModel,
    source: Int[Tensor, "batch source"],
    lengths: Int[Tensor, " batch"],
    translations: Sequence[Sequence[int]],
) -> Looks:
    """Every look of the model while it writes given translations.

    Query i of a look at the source is the step that writes token i; the last one writes the end.

    Raises:
        ConfigurationError: not one translation a source.
    """
    with evaluating(model):
        return model.looks(source, lengths, _read(source, translations))


def _read(
    source: Int[Tensor, "batch source"], translations: Sequence[Sequence[int]]
) -> Int[Tensor, "batch target"]:
    if len(translations) != len(source):
        raise ConfigurationError(f"{len(translations)} translations for {len(source)} sources")
    return targets(translations)[0].to(source.device)
