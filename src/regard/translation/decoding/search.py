"""Translates a batch by greedy, beam or sampled search, of which the greedy and the sampled one are here."""

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.ranking import top
from regard.errors import ConfigurationError, ModelError
from regard.translation.decoding.beam import Tree, beam
from regard.translation.decoding.constraints import Constraints
from regard.translation.decoding.forced import rerank
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.decoding.limits import IMPOSSIBLE, Limits, best_words, bounds
from regard.translation.decoding.prefix import Prefixes
from regard.translation.engines import SearchEngine, evaluating
from regard.translation.models.protocol import (
    Lengths,
    SourceIds,
    TranslationModel,
    log_probabilities,
)
from regard.translation.settings.search import Search
from regard.translation.text.tokenizer import BOS, EOS

__all__ = ["Search", "translate_batch"]

# From the logits, the limits and the tokens written so far to the next word and its log-probability.
Choice = Callable[
    [Float[Tensor, "batch vocabulary"], Limits, Int[Tensor, "batch 1 tokens"]],
    tuple[Int[Tensor, "batch 1"], Float[Tensor, "batch 1"]],
]


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
    ended: bool = False,
    constraints: Constraints | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch the way `search` says.

    Args:
        search: the settings; None for the defaults, beam search with 5.
        prefix: the tokens each translation must begin with.
        generator: for sampling, on the device of the source.
        engine: it runs the model; None for the model's own layers.
        tree: records the steps of a beam search, of one sentence; other searches leave it empty.
        ended: return the others, too, that a beam search ended before it knew the best, at most `beam`.
        constraints: what each translation must contain; for a beam of 2 or more, and without a prefix.

    Returns:
        For each sentence its `nbest` hypotheses (fewer where the limits allow no more), best first.

    Raises:
        ConfigurationError: prefixes that do not fit the batch or the vocabulary, or constraints of another search.
        ModelError: logits that are not numbers.
    """
    search = search or Search()
    engine = engine or SearchEngine(model)
    if not len(source):
        return []
    if tree is not None and (len(source) > 1 or tree.nodes):
        raise ConfigurationError("a tree records the search of one sentence")
    if constraints is not None and (search.sampling or search.beam == 1):
        raise ConfigurationError("constraints are for beam search: use a beam of 2 or more")
    limits = Limits.of(bounds(search, lengths, model.longest), search, prefix, constraints)
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
    return hypotheses if ended else [group[: search.nbest] for group in hypotheses]


def greedy(
    engine: SearchEngine, source: SourceIds, lengths: Lengths, limits: Limits, search: Search
) -> list[list[Hypothesis]]:
    """Translate a batch greedily: y_t = argmax p(y | y_1 ... y_(t-1), source), first of equals.

    The same as `beam` with size 1 and patience 1; the length penalty changes the score only.
    """

    def best(logits: Tensor, limits: Limits, tokens: Tensor) -> tuple[Tensor, Tensor]:
        ways = {"compiled": engine.loops, "normalised": engine.normalised}
        log_p, words = best_words(logits, limits, tokens, 1, **ways)
        return words, log_p

    hypotheses = _unroll(engine, source, lengths, limits, best, search.length_penalty)
    return [[hypothesis] for hypothesis in hypotheses]


def sample(
    engine: SearchEngine,
    source: SourceIds,
    lengths: Lengths,
    limits: Limits,
    search: Search,
    generator: torch.Generator | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch by drawing y_t from p(y | y_1 ... y_(t-1), source)^(1 / temperature), `nbest` times.

    Only the `top_k` most probable words (Fan et al. 2018, arXiv 1805.04833) and the fewest whose
    probabilities at the temperature reach `top_p` (Holtzman et al. 2020, arXiv 1904.09751) may be
    drawn. The log-probabilities kept are the model's own, not those at the temperature.

    Returns:
        For each sentence its draws, the best score first; they may be alike.
    """

    def draw_words(logits: Tensor, limits: Limits, tokens: Tensor) -> tuple[Tensor, Tensor]:
        log_p = limits.restrict(log_probabilities(logits).unsqueeze(1), tokens).squeeze(1)
        probable = keep_probable(log_p / search.temperature, search.top_k, search.top_p)
        if bool((probable.amax(-1) == -math.inf).any()):
            raise ModelError(IMPOSSIBLE)
        words = torch.multinomial(probable.softmax(-1), 1, generator=generator)
        return words, log_p.gather(1, words)

    draws = search.nbest
    rows = torch.arange(len(source), device=source.device).repeat_interleave(draws)
    hypotheses = _unroll(
        engine, source[rows], lengths[rows], limits.select(rows), draw_words, search.length_penalty
    )
    return [
        sorted(hypotheses[i : i + draws], key=lambda hypothesis: -hypothesis.score)
        for i in range(0, len(hypotheses), draws)
    ]


def keep_probable(
    scores: Float[Tensor, "rows vocabulary"], top_k: int = 0, top_p: float = 1.0
) -> Float[Tensor, "rows vocabulary"]:
    """The scores with every word outside `top_k` and `top_p` at -inf; the best one always stays."""
    if top_k == 0 and top_p == 1:
        return scores
    best, words = top(scores, min(top_k or scores.shape[-1], scores.shape[-1]))
    probable = best.softmax(-1)
    # A word stays when those before it have not yet reached top_p.
    best = best.masked_fill(probable.cumsum(-1) - probable >= top_p, -math.inf)
    return torch.full_like(scores, -math.inf).scatter(-1, words, best)


def _unroll(
    engine: SearchEngine,
    source: SourceIds,
    lengths: Lengths,
    limits: Limits,
    choose: Choice,
    length_penalty: float,
) -> list[Hypothesis]:
    """Write each sentence with `choose` until its end. Ended sentences leave the batch."""
    hypotheses: dict[int, Hypothesis] = {}
    with evaluating(engine.model):
        state = engine.begin(source, lengths)
        sentences = torch.arange(len(source), device=source.device)
        words = torch.full_like(sentences, BOS)
        tokens = words.new_empty(len(source), 0)
        history = torch.empty(tokens.shape, device=source.device)
        while len(sentences):
            logits, state = engine.step(words, state)
            choices, log_p = choose(logits, limits, tokens.unsqueeze(1))
            if bool((log_p == -math.inf).any()):
                raise ModelError(IMPOSSIBLE)
            words, history = choices[:, 0], torch.cat([history, log_p], 1)
            ended = words == EOS
            if bool(ended.any()):
                rows = (values[ended].tolist() for values in (sentences, tokens, history))
                for sentence, sentence_tokens, each_log_p in zip(*rows, strict=True):
                    hypotheses[sentence] = Hypothesis.of(
                        sentence_tokens, each_log_p, length_penalty
                    )
                unfinished = (~ended).nonzero().flatten()
                state, limits = state.select(unfinished), limits.select(unfinished)
                sentences, words = sentences[unfinished], words[unfinished]
                tokens, history = tokens[unfinished], history[unfinished]
            tokens = torch.cat([tokens, words.unsqueeze(1)], 1)
    return [hypotheses[sentence] for sentence in range(len(source))]
