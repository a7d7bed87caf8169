"""A search that writes each sentence with the words of a short list of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.errors import ConfigurationError
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.engines import SearchEngine
from regard.translation.engines.engine import ListedLogits
from regard.translation.models.protocol import Lengths, SourceIds, State, Words, own
from regard.translation.text.tokenizer import EOS

# No word: for words that may not be written, and the places behind a shorter list.
_NONE = -1


@dataclass(frozen=True)
class NarrowedState:
    """The engine's state, and which sentence each row is of."""

    inner: State
    sentences: Int[Tensor, " rows"]

    def select(self, rows: Int[Tensor, " kept"]) -> NarrowedState:
        return NarrowedState(self.inner.select(rows), self.sentences[rows])


class Narrowed(SearchEngine):
    """An engine that has each sentence of a batch written with the words of its list.

    p(word | ...) is the softmax over the list. The words of a sentence are numbered as they stand in its
    list, before which stand the special ids, which so stay what they are.

    Args:
        engine: it runs the model whose words are listed.
        lists: the ids of the words of each sentence, in order; the end mark is added.
        sentences: of the batch.

    Raises:
        ConfigurationError: not one list a sentence, ids out of order, or an id that the model does not know.
    """

    def __init__(
        self, engine: SearchEngine, lists: Sequence[Int[Tensor, " listed"]], sentences: int
    ) -> None:
        if len(lists) != sentences:
            raise ConfigurationError(f"{len(lists)} lists of words for {sentences} sentences")
        if not all(bool((each.diff() > 0).all() and (each >= 0).all()) for each in lists):
            raise ConfigurationError(
                "the ids in a list of words are not in ascending order: sort them, each id once"
            )
        output = getattr(engine.model, "output", None)
        most = max((int(each.max()) for each in lists if len(each)), default=0)
        if isinstance(output, nn.Linear) and most >= output.out_features:
            raise ConfigurationError(
                f"a list of words has id {most}: this model knows 0 to {output.out_features - 1}"
            )
        self.engine, self.model, self.loops = engine, engine.model, engine.loops
        special = torch.full((EOS + 1,), _NONE)
        special[EOS] = EOS
        listed = [torch.cat([special, each[each > EOS].cpu()]) for each in lists]
        self._lists = pad_sequence(listed, batch_first=True, padding_value=_NONE)

    def begin(self, source: SourceIds, lengths: Lengths) -> NarrowedState:
        """Rows of a sentence lie side by side, as many for every list."""
        self._lists = self._lists.to(source.device)
        each = len(source) // len(self._lists)
        sentences = torch.arange(len(self._lists), device=source.device).repeat_interleave(each)
        return NarrowedState(self.engine.begin(source, lengths), sentences)

    def step(self, words: Words, state: State) -> tuple[ListedLogits, NarrowedState]:
        state = own(NarrowedState, state)
        sentences = state.sentences
        # Of hypotheses that nobody wants a search may go on with any word, that of no word among them.
        spelt = torch.where(words > EOS, self._lists[sentences, words].clamp(min=0), words)
        logits, inner = self.engine.step_listed(spelt, state.inner, self._lists, sentences)
        return logits, NarrowedState(inner, sentences)

    def spelt(self, hypothesis: Hypothesis, sentence: int) -> Hypothesis:
        """A sentence's hypothesis in the ids of the vocabulary."""
        tokens = self._lists[sentence, hypothesis.tokens].tolist()
        return dataclasses.replace(hypothesis, tokens=tokens)
