"""A search that writes each sentence with the words of a short list of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.errors import ConfigurationError
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.engines import SearchEngine
from regard.translation.engines.protocol import NarrowedByLists
from regard.translation.models.protocol import State, own
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


class Narrowed:
    """An engine that has each sentence of a batch written with the words of its list.

    p(word | ...) is the softmax over the list. The words of a sentence are numbered as they stand in its
    list, before which stand the special ids, which so stay what they are.

    Args:
        engine: it runs the model whose words are listed.
        lists: the ids of the words of each sentence, in order; the end mark is added.

    Raises:
        ConfigurationError: an id that the model does not know.
    """

    def __init__(self, engine: SearchEngine, lists: Sequence[Int[Tensor, " listed"]]) -> None:
        self.engine = engine
        output = engine.model.projection
        if output is not None:
            _check(lists, output.out_features)
        special = torch.full((EOS + 1,), _NONE)
        special[EOS] = EOS
        listed = [torch.cat([special, each[each > EOS].cpu()]) for each in lists]
        # One more, for a batch of no sentences.
        self._lists = pad_sequence([*listed, special], batch_first=True, padding_value=_NONE)[:-1]

    @property
    def longest(self) -> int | None:
        return self.engine.longest

    def modules(self) -> Iterator[nn.Module]:
        return self.engine.modules()

    def begin(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> NarrowedState:
        """Rows of a sentence lie side by side, as many for every list."""
        self._lists = self._lists.to(source.device)
        each = len(source) // len(self._lists)
        sentences = torch.arange(len(self._lists), device=source.device).repeat_interleave(each)
        inner = self.engine.begin(source, lengths)
        if not isinstance(inner, NarrowedByLists):
            raise TypeError(f"a {type(inner).__name__} cannot be narrowed by lists of words")
        inner.narrow(self._lists, sentences)
        return NarrowedState(inner, sentences)

    def step(
        self, words: Int[Tensor, " batch"], state: State
    ) -> tuple[Float[Tensor, "batch listed"], NarrowedState]:
        state = own(NarrowedState, state)
        sentences = state.sentences
        # Of hypotheses that nobody wants a search may go on with any word, that of no word among them.
        spelt = torch.where(words > EOS, self._lists[sentences, words].clamp(min=0), words)
        logits, inner = self.engine.step(spelt, state.inner)
        return logits, NarrowedState(inner, sentences)

    def spelt(self, hypothesis: Hypothesis, sentence: int) -> Hypothesis:
        """A sentence's hypothesis in the ids of the vocabulary."""
        tokens = self._lists[sentence, hypothesis.tokens].tolist()
        return dataclasses.replace(hypothesis, tokens=tokens)


def _check(lists: Sequence[Tensor], vocabulary: int) -> None:
    most = max((int(each.max()) for each in lists if len(each)), default=0)
    if most >= vocabulary:
        raise ConfigurationError(f"a list of words has word {most}, the model knows {vocabulary}")
