"""Translations that are given: their probability under the model, attention, and coverage of the source."""

import re
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ConfigurationError
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.engines import evaluating
from regard.translation.engines.remembering import Recall
from regard.translation.models.protocol import (
    Lengths,
    Looks,
    SourceIds,
    TranslationModel,
    log_probabilities,
)
from regard.translation.text.batches import targets
from regard.translation.text.tokenizer import EOS

Translations = Sequence[Sequence[int]]
# Positions whose logits are held at a time.
_ROWS = 1024
# "decoder.2.cross", or of one model of an ensemble "0.decoder.2.cross"
_CROSS = re.compile(r"(?:(\d+)\.)?decoder\.(\d+)\.cross")
# A source word that nothing looked at costs log of this, not infinity: sparse weights can be 0.
_LEAST = 1e-6


def score(
    model: TranslationModel,
    source: SourceIds,
    lengths: Lengths,
    translations: Translations,
    *,
    length_penalty: float = 1.0,
    recall: Recall | None = None,
) -> list[Hypothesis]:
    """The hypotheses of given translations: with the scores that a search would give them.

    Args:
        translations: the ids of each translation, without begin and end.
        length_penalty: alpha of the score.
        recall: a memory that is mixed in.

    Raises:
        ConfigurationError: not one translation a source.
        ModelError: logits that are not numbers.
    """
    if not len(source):
        return []
    counts = [len(tokens) + 1 for tokens in translations]
    similar = None if recall is None else recall.similar(source, lengths, counts)
    hidden, words = states(model, source, lengths, translations)
    blocks = []
    with evaluating(model):
        for rows in torch.arange(len(words)).split(_ROWS):
            logits = model.logits(hidden[rows])
            if recall is not None and similar is not None:
                logits = recall.mix(hidden[rows], logits, similar.select(rows))
            blocks.append(log_probabilities(logits).gather(1, words[rows].unsqueeze(1)).squeeze(1))
    log_probabilities_of = torch.cat(blocks).cpu().split(counts)
    return [
        Hypothesis.of(tokens, log_p.tolist(), length_penalty)
        for tokens, log_p in zip(translations, log_probabilities_of, strict=True)
    ]


def states(
    model: TranslationModel, source: SourceIds, lengths: Lengths, translations: Translations
) -> tuple[Float[Tensor, "tokens width"], Int[Tensor, " tokens"]]:
    """The output layer's input before each token of given translations and their ends, and these tokens.

    Raises:
        ConfigurationError: not one translation a source.
    """
    read = _read(source, translations)
    words = [word for tokens in translations for word in (*tokens, EOS)]
    counts = torch.tensor([len(tokens) + 1 for tokens in translations])
    real = torch.arange(read.shape[1]) < counts[:, None]
    with evaluating(model):
        hidden = model.hidden(source, lengths, read)[real.to(source.device)]
    return hidden, torch.tensor(words, device=source.device)


def looks(
    model: TranslationModel,
    source: SourceIds,
    lengths: Lengths,
    translations: Translations,
    only: str | None = None,
) -> Looks:
    """Every look of the model while it writes given translations, or the one of that name, if there is such a look.

    Query i of a look at the source is the step that writes token i; the last one writes the end.

    Raises:
        ConfigurationError: not one translation a source.
    """
    with evaluating(model):
        return model.looks(source, lengths, _read(source, translations), only)


def cross(
    model: TranslationModel,
    source: SourceIds,
    lengths: Lengths,
    hypotheses: Sequence[Sequence[Hypothesis]],
) -> list[list[Float[Tensor, "written source"]]]:
    """How much each token of each hypothesis, its end last, looked at each token of its source.

    The hypotheses are forced once, all of them together: a search that kept the weights of every
    beginning at every step would pay for the many that it drops. See `last_cross` for which weights.

    Returns:
        A matrix for each hypothesis, without padding.

    Raises:
        ConfigurationError: the model looks at no source.
    """
    flattened = [hypothesis for group in hypotheses for hypothesis in group]
    if not flattened:
        return [[] for _ in hypotheses]
    counts = torch.tensor([len(group) for group in hypotheses])
    rows = torch.arange(len(hypotheses)).repeat_interleave(counts).to(source.device)
    with torch.no_grad():  # a look may work out its weights only now
        attention = looks(
            model, source[rows], lengths[rows], [hypothesis.tokens for hypothesis in flattened]
        )
        weights = last_cross(attention)
    if weights is None:
        raise ConfigurationError(
            "this model does not look at the source: a coverage penalty has nothing to count"
        )
    sizes = zip(weights, flattened, lengths[rows].tolist(), strict=True)
    matrices = iter(
        [matrix[: len(hypothesis.tokens) + 1, :size] for matrix, hypothesis, size in sizes]
    )
    return [[next(matrices) for _ in group] for group in hypotheses]


def last_cross(named_looks: Looks) -> Float[Tensor, "batch queries keys"] | None:
    """The mean of the heads of the last layer that looks at the source; of several models, their mean."""
    last_layers: dict[str, tuple[int, str]] = {}
    for name in named_looks:
        match = _CROSS.fullmatch(name)
        if match:
            model = match[1] or ""
            last_layers[model] = max(last_layers.get(model, (-1, "")), (int(match[2]), name))
    if not last_layers:
        return None
    means = [named_looks[name].weights().float().mean(1) for _, name in last_layers.values()]
    return torch.stack(means).mean(0)


def rerank(
    model: TranslationModel,
    source: SourceIds,
    lengths: Lengths,
    hypotheses: Sequence[Sequence[Hypothesis]],
    weight: float,
) -> list[list[Hypothesis]]:
    """Hypotheses ranked anew by score + beta sum_i log(min(sum_j p_ij, 1)).

    p_ij is the weight of source word i while target word j is written (see `last_cross`).
    Wu et al. 2016 (arXiv 1609.08144), equation 14; beta is our `weight`.

    Raises:
        ConfigurationError: the model looks at no source.
    """
    ranked = []
    for group, matrices in zip(hypotheses, cross(model, source, lengths, hypotheses), strict=True):
        rescored = [
            replace(hypothesis, score=hypothesis.score + weight * coverage(matrix))
            for hypothesis, matrix in zip(group, matrices, strict=True)
        ]
        ranked.append(sorted(rescored, key=lambda hypothesis: -hypothesis.score))
    return ranked


def coverage(weights: Float[Tensor, "written source"]) -> float:
    """sum_i log(min(sum_j p_ij, 1)) over the source words i; 0 when each got its fill."""
    return float(weights.sum(0).clamp(_LEAST, 1).log().sum())


def _read(source: SourceIds, translations: Translations) -> Int[Tensor, "batch target"]:
    if len(translations) != len(source):
        raise ConfigurationError(f"{len(translations)} translations for {len(source)} sources")
    return targets(translations)[0].to(source.device)
