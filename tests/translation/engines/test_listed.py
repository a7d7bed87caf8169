"""The output layer for a few words: what the whole layer says of them, and nothing of the others computed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from regard.errors import ConfigurationError
from regard.translation.decoding.search import Search, translate_batch
from regard.translation.engines import SearchEngine
from regard.translation.engines.engine import listed_logits
from regard.translation.models.recurrent.model import RecurrentModel
from regard.translation.models.transformer.model import Transformer
from regard.translation.settings.recurrent import RecurrentSettings
from regard.translation.settings.transformer import TransformerSettings

VOCABULARY = 71
LISTS = torch.tensor([[-1, 3, 70, -1], [4, 5, 6, 7], [-1, -1, -1, 50]])
OWN = torch.tensor([0, 0, 2, 1, 1, 1, 0])
SOURCE, LENGTHS = torch.tensor([[5, 9, 8, 3], [6, 3, 0, 0], [7, 7, 3, 0]]), torch.tensor([4, 2, 3])


def recurrent(**changes: object) -> RecurrentModel:
    torch.manual_seed(0)
    sizes = {
        "encoder_width": 12,
        "decoder_width": 16,
        "embedding_width": 20,
        "attention_width": 8,
        "tied": "none",
    }
    return RecurrentModel(RecurrentSettings(**(sizes | changes)), 20, VOCABULARY).eval()


def expected(model: RecurrentModel, hidden: Tensor) -> Tensor:
    words = LISTS[OWN]
    every = model.logits(hidden).gather(1, words.clamp(min=0))
    return torch.where(words < 0, -torch.inf, every)


def refuse(*_: object) -> None:
    raise AssertionError("the logits of all words were computed")


@pytest.mark.parametrize("tied", ["none", "target"])
def test_only_the_words_of_lists_are_computed(tied, monkeypatch):
    model, hidden = recurrent(tied=tied), torch.randn(len(OWN), 20)
    nn.init.normal_(model.output.bias)
    with torch.inference_mode():
        right = expected(model, hidden)
        monkeypatch.setattr(model, "logits", refuse)
        found = listed_logits(model.output, hidden, LISTS, OWN)
        transposed = listed_logits(model.output, hidden.t().contiguous().t(), LISTS, OWN)
    torch.testing.assert_close(found, right, atol=2e-6, rtol=2e-6)
    assert torch.equal(transposed, found)


def test_hooks_and_other_precisions_have_the_layers_own_logits():
    model, seen = recurrent(), []
    words = torch.tensor([2, 2, 2])

    def logits(model: RecurrentModel) -> Tensor:
        engine = SearchEngine(model)
        state = engine.begin(SOURCE, LENGTHS)
        return engine.step_listed(words, state, LISTS, torch.arange(3))[0]

    with torch.inference_mode():
        right = logits(model)
        handle = model.output.register_forward_hook(lambda *given: seen.append(given))
        torch.testing.assert_close(logits(model), right, atol=2e-6, rtol=2e-6)
        handle.remove()
        assert len(seen) == 1
        found = logits(recurrent().double())
    torch.testing.assert_close(found.float(), right, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("attention", ["bahdanau", "luong", "none"])
def test_a_recurrent_search_computes_the_words_of_lists_alone(beam, attention, monkeypatch):
    model = recurrent(attention=attention)
    lists = [torch.tensor(words) for words in ([4, 9, 33], [5, 70], [6, 7, 8, 9])]
    search = Search(beam=beam, max_length=6)
    with torch.inference_mode():
        plain = SearchEngine(model, loops=False)
        right = translate_batch(model, SOURCE, LENGTHS, search, lists=lists, engine=plain)
        monkeypatch.setattr(model, "logits", refuse)
        found = translate_batch(model, SOURCE, LENGTHS, search, lists=lists)
    assert [one[0].tokens for one in found] == [one[0].tokens for one in right]
    for one, other in zip(found, right, strict=True):
        assert one[0].score == pytest.approx(other[0].score, abs=1e-5)


def test_a_transformers_own_layers_may_be_narrowed_too(monkeypatch):
    """Where no plan serves: scores with a bias are not among its loops."""
    torch.manual_seed(0)
    settings = TransformerSettings(width=16, heads=2, feed_forward=24, positions="alibi")
    model = Transformer(settings, VOCABULARY, VOCABULARY).eval()
    lists = [torch.tensor([4, 9, 33])] * 3
    monkeypatch.setattr(model, "logits", refuse)
    with torch.inference_mode():
        found = translate_batch(model, SOURCE, LENGTHS, Search(beam=2, max_length=5), lists=lists)
    assert {word for one in found for word in one[0].tokens} <= {4, 9, 33}


@pytest.mark.parametrize("compiled", [True, False])
def test_hypotheses_beyond_a_list_go_nowhere(compiled):
    """A short list beside a long one: of the beam some places have no word at all."""
    model, lists = recurrent(), [torch.tensor([5]), torch.arange(4, 60), torch.tensor([6, 7])]
    search = Search(beam=5, nbest=5, max_length=6)
    engine = SearchEngine(model, loops=compiled)
    with torch.inference_mode():
        found = translate_batch(model, SOURCE, LENGTHS, search, lists=lists, engine=engine)
        for row, words in enumerate(lists):
            one = slice(row, row + 1)
            (alone,) = translate_batch(
                model, SOURCE[one], LENGTHS[one], search, lists=[words], engine=engine
            )
            assert [each.tokens for each in found[row]] == [each.tokens for each in alone]


def test_words_that_the_model_does_not_know_are_refused():
    lists = [torch.tensor([4]), torch.tensor([5, VOCABULARY]), torch.tensor([6])]
    with pytest.raises(ConfigurationError, match="has id 71: this model knows 0 to 70"):
        translate_batch(recurrent(), SOURCE, LENGTHS, lists=lists)
