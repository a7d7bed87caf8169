"""Training on the words alone: what the padded pass makes, number for number, and nothing of padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from regard.translation.models.transformer import Transformer, TransformerSettings, packed
from regard.translation.models.transformer.packed.attention import attend
from regard.translation.models.transformer.packed.residual import add_and_norm
from regard.translation.models.transformer.packed.sentences import Sentences

VOCABULARY = 23
LENGTHS = {
    "unequal": ([4, 1, 17, 33], [2, 19, 1, 40]),
    "equal": ([5, 5, 5], [6, 6, 6]),
    "one": ([3], [1]),
}
SHAPES = {
    "pre": {},
    "post": {"norm": "post"},
    "gelu": {"activation": "gelu", "norm": "post"},
    "silu": {"activation": "silu"},
    "biased": {"attention_bias": True, "output_bias": True},
    "learned": {"positions": "learned", "scale_embedding": False},
    "untied": {"tied": "none"},
    "odd": {"width": 36, "heads": 4, "feed_forward": 20},
    "wide": {"width": 80, "heads": 2},
    "deep": {"encoder_layers": 3, "decoder_layers": 1},
}


def model_of(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    parts = {"encoder_layers": 2, "decoder_layers": 2, "width": 32, "heads": 4, "feed_forward": 48}
    settings = TransformerSettings(**{**parts, "dropout": 0.0, "longest": 64, **changes})
    model = Transformer(settings, VOCABULARY, VOCABULARY)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.uniform_(-1, 1)
    return model.train()


def batch_of(lengths: tuple[list[int], list[int]]) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(1)
    sides = []
    for side in lengths:
        each = torch.tensor(side)
        words = torch.randint(4, VOCABULARY, (len(side), max(side)), generator=draw)
        sides += [words.masked_fill(torch.arange(max(side)) >= each[:, None], 0), each]
    return tuple(sides)


def outcome(model: Transformer, batch: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    model.zero_grad()
    words = model.words(*batch)
    draw = torch.Generator().manual_seed(2)
    upstream = torch.randn(words.shape, generator=draw, dtype=torch.float64).to(words)
    (words * upstream).sum().backward()
    return [words.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_words_and_gradients_are_those_of_the_padded_pass(changes, lengths):
    batch = batch_of(lengths)
    model = model_of(**changes)
    assert packed.serves(model, *batch[:3])
    found = outcome(model, batch)
    model.pack = False
    exact = outcome(model.double(), batch)
    assert len(found) == len(exact)
    for own, other in zip(found, exact, strict=True):
        assert own.shape == other.shape
        assert (own - other).norm() <= 1e-4 * max(1e-2, other.norm())


@pytest.mark.parametrize("threads", [2, 3])
def test_more_threads_change_only_rounding(threads, single_thread):
    batch = batch_of(LENGTHS["unequal"])
    expected = outcome(model_of(), batch)
    torch.set_num_threads(threads)
    for own, other in zip(outcome(model_of(), batch), expected, strict=True):
        assert torch.allclose(own, other, rtol=1e-4, atol=1e-5)


@pytest.fixture
def single_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_what_padding_holds_changes_nothing():
    source, lengths, target, target_lengths = batch_of(LENGTHS["unequal"])
    model = model_of()
    expected = outcome(model, (source, lengths, target, target_lengths))
    for side, each in ((source, lengths), (target, target_lengths)):
        side[torch.arange(side.shape[1]) >= each[:, None]] = 7
    found = outcome(model, (source, lengths, target, target_lengths))
    assert all(torch.equal(*both) for both in zip(found, expected, strict=True))


def test_dropout_keeps_the_mean_and_the_same_numbers_on_the_way_back():
    torch.manual_seed(3)
    norm = nn.LayerNorm(64)
    x, f = torch.zeros(500, 64), torch.ones(500, 64, requires_grad=True)
    bias = torch.ones(64, requires_grad=True)
    total, _ = add_and_norm(x, f, bias, 0.25, norm)
    kept = total != 0
    assert torch.equal(total[kept], torch.full_like(total[kept], 2 / 0.75))
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.01)
    total.sum().backward()
    assert torch.equal(f.grad != 0, kept)
    assert torch.allclose(bias.grad, f.grad.sum(0))


def test_the_same_seed_drops_the_same():
    batch = batch_of(LENGTHS["unequal"])
    made = []
    for _ in range(2):
        model = model_of(dropout=0.3)
        torch.manual_seed(5)
        made.append(outcome(model, batch))
    assert all(torch.equal(*both) for both in zip(*made, strict=True))
    again = outcome(model, batch)
    assert not torch.equal(made[0][0], again[0])


def test_attention_over_a_column_block_is_read_where_it_lies():
    torch.manual_seed(0)
    starts = np.array([0, 3, 7])
    memory = torch.randn(7, 100)[:, 20:52].requires_grad_()
    query = torch.randn(7, 16, requires_grad=True)
    alone = memory.detach().clone().requires_grad_()
    attend(query, memory, starts, starts, 2).sum().backward()
    expected = query.grad.clone()
    query.grad = None
    attend(query, alone, starts, starts, 2).sum().backward()
    assert torch.equal(query.grad, expected)


def test_words_of_a_batch_keep_their_places():
    sentences = Sentences.of(torch.tensor([[5, 6, 0], [7, 8, 9]]), torch.tensor([2, 3]))
    assert sentences.words.tolist() == [5, 6, 7, 8, 9]
    assert sentences.places.tolist() == [0, 1, 0, 1, 2]
    assert sentences.starts.tolist() == [0, 2, 5]


def test_what_it_does_not_serve_is_padded():
    source, lengths, target, target_lengths = batch_of(LENGTHS["unequal"])
    model = model_of()
    expected = model.words(source, lengths, target, target_lengths)
    with torch.no_grad():
        assert not packed.serves(model, source, lengths, target)
        found = model.words(source, lengths, target, target_lengths)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert not packed.serves(model.double(), source, lengths, target)
    assert not packed.serves(model_of(), source, lengths - lengths.min(), target)
    long = torch.zeros(1, 10_000, dtype=torch.int64)
    assert not packed.serves(model_of(), long, lengths, target)


def test_tensors_without_numbers_are_left_to_the_layers():
    model, (source, lengths, target, _) = model_of(), batch_of(LENGTHS["unequal"])
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    assert packed.serves(model, source, lengths, target)
    assert not packed.serves(model, mode.from_tensor(source), lengths, target)
    with mode:
        assert not packed.serves(model, source, lengths, target)
        x = torch.empty(4, 33, 32)
        assert model.encoder[0](x, torch.ones(4, 1, 1, 33, dtype=torch.bool)).shape == x.shape


def test_a_compiled_pass_is_the_padded_one():
    model, batch = model_of(encoder_layers=1, decoder_layers=1), batch_of(LENGTHS["unequal"])
    expected = outcome(model, batch)
    model.words = torch.compile(model.words, backend="eager")
    for own, other in zip(outcome(model, batch), expected, strict=True):
        assert torch.allclose(own, other, rtol=1e-4, atol=1e-5)


def test_hooks_are_called_and_other_layers_keep_their_own_way():
    batch, model = batch_of(LENGTHS["unequal"]), model_of()
    seen: list[Any] = []
    hook = model.decoder[0].feed_forward.inner.register_forward_hook(lambda *_: seen.append(1))
    assert not packed.serves(model, *batch[:3])
    model.words(*batch)
    assert seen
    hook.remove()
    assert packed.serves(model, *batch[:3])
    model.encoder[0].feed_forward.outer = nn.Sequential(model.encoder[0].feed_forward.outer)
    assert not packed.serves(model, *batch[:3])


def test_gradients_of_gradients_are_refused():
    batch, model = batch_of(LENGTHS["equal"]), model_of()
    words = model.words(*batch)
    (slope,) = torch.autograd.grad(
        words.square().sum(), model.decoder[1].feed_forward.inner.weight, create_graph=True
    )
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def test_lengths_beyond_the_batch_are_refused():
    with pytest.raises(ValueError, match="a length of 4 in a batch of 3 positions"):
        Sentences.of(torch.ones(2, 3, dtype=torch.int64), torch.tensor([4, 3]))
