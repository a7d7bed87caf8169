"""Translates a batch by greedy, beam or sampled search."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from regard.errors import ConfigurationError
from regard.translation.decoding.beam import Tree, beam
from regard.translation.decoding.forced import rerank
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.decoding.limits import Limits
from regard.translation.decoding.prefix import Prefixes
from regard.translation.decoding.single import greedy, sample
from regard.translation.engines import SearchEngine
from regard.translation.models.protocol import Lengths, SourceIds, TranslationModel
from regard.translation.settings.search import Search

__all__ = ["Search", "bounds", "translate_batch"]


def translate_batch(
    model: TranslationModel,
    source: SourceIds,
    lengths: Lengths,
    search: Search | None = None,
    *,
    prefix: Prefixes | Sequence[Sequence[int]] | None = None,
    generator: torch.Generator | None = None,
    engine: SearchEngine | None = None,
    tree: Tree | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch the way `search` says.

    Args:
        search: the settings; None for the defaults, beam search with 5.
        prefix: the tokens each translation must begin with.
        generator: for sampling, on the device of the source.
        engine: it runs the model; None for the model's own layers.
        tree: records the steps of a beam search, of one sentence; other searches leave it empty.

    Returns:
        For each sentence its `nbest` hypotheses (fewer where the limits allow no more), best first.

    Raises:
        ConfigurationError: prefixes that do not fit the batch or the vocabulary.
        ModelError: logits that are not numbers.
    """
    search = search or Search()
    engine = engine or SearchEngine(model)
    if not len(source):
        return []
    if tree is not None and (len(source) > 1 or tree.nodes):
        raise ConfigurationError("a tree records the search of one sentence")
    limits = Limits.of(bounds(model, search, lengths), search, prefix)
    if search.sampling:
        hypotheses = sample(engine, source, lengths, limits, search, generator)
    elif search.beam == 1:
        hypotheses = greedy(engine, source, lengths, limits, search)
    else:
        # The coverage penalty chooses among all hypotheses of the beam.
        whole_beam = search.changed(nbest=search.beam) if search.coverage_penalty else search
        hypotheses = beam(engine, source, lengths, limits, whole_beam, tree)
    if search.coverage_penalty:
        hypotheses = rerank(model, source, lengths, hypotheses, search.coverage_penalty)
    return [group[: search.nbest] for group in hypotheses]


def bounds(model: TranslationModel, search: Search, lengths: Lengths) -> Int[Tensor, " batch"]:
    """How long each translation may become: by the settings, and by the positions that the model has learnt."""
    longest = search.longest(lengths)
    return longest if model.longest is None else longest.clamp(max=model.longest - 1)
