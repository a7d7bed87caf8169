"""One hypothesis a sentence, one word at a time: what greedy search and sampling share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ModelError
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.decoding.limits import Limits
from regard.translation.engines.protocol import Searched
from regard.translation.text.tokenizer import BOS, EOS

IMPOSSIBLE = "the model gives every translation within the limits probability 0"

# From the logits, the limits and the tokens written so far to the next word and its log-probability.
Choice = Callable[
    [Float[Tensor, "batch vocabulary"], Limits, Int[Tensor, "batch tokens"]],
    tuple[Int[Tensor, " batch"], Float[Tensor, " batch"]],
]


@contextmanager
def evaluating(model: Searched | nn.Module) -> Iterator[None]:
    """Without gradients and without dropout; every module is put back as it was.

    Not inference mode: tensors that a model caches meanwhile (a table of positions, say) must serve
    training too.
    """
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def unroll(
    model: Searched,
    source: Int[Tensor, "batch source"],
    lengths: Int[Tensor, " batch"],
    limits: Limits,
    choose: Choice,
    length_penalty: float,
) -> list[Hypothesis]:
    """Write each sentence with `choose` until its end. Ended sentences leave the batch."""
    found: dict[int, Hypothesis] = {}
    if not len(source):
        return []
    with evaluating(model):
        state = model.begin(source, lengths)
        sentences = torch.arange(len(source), device=source.device)
        words = torch.full_like(sentences, BOS)
        written = words.new_empty(len(source), 0)
        history = torch.empty(written.shape, device=source.device)
        while len(sentences):
            logits, state = model.step(words, state)
            words, chosen = choose(logits, limits, written)
            if bool((chosen == float("-inf")).any()):
                raise ModelError(IMPOSSIBLE)
            history = torch.cat([history, chosen.unsqueeze(1)], 1)
            ended = words == EOS
            if bool(ended.any()):
                _collect(found, sentences[ended], written[ended], history[ended], length_penalty)
                kept = (~ended).nonzero().flatten()
                state, limits = state.select(kept), limits.select(kept)
                sentences, words = sentences[kept], words[kept]
                written, history = written[kept], history[kept]
            written = torch.cat([written, words.unsqueeze(1)], 1)
    return [found[sentence] for sentence in range(len(source))]


def _collect(
    found: dict[int, Hypothesis],
    sentences: Int[Tensor, " ended"],
    written: Int[Tensor, "ended tokens"],
    history: Float[Tensor, "ended tokens_and_end"],
    length_penalty: float,
) -> None:
    rows = zip(sentences.tolist(), written.tolist(), history.tolist(), strict=True)
    for sentence, tokens, log_p in rows:
        found[sentence] = Hypothesis.of(tokens, log_p, length_penalty)
