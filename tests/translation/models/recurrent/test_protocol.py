"""What search, training and pictures count on, for every kind of recurrent model."""

from __future__ import annotations

import pytest
import torch
from tests.translation.models.recurrent.models import KINDS, LENGTHS, SOURCE, TARGET, small

FEW = ["bahdanau", "bahdanau two dot heads", "luong concat", "luong unfed", "fixed vector"]


@pytest.mark.parametrize("kind", KINDS)
def test_steps_equal_teacher_forcing(kind: str) -> None:
    model = small(**KINDS[kind])
    state = model.begin(SOURCE, LENGTHS)
    stepped = []
    for words in TARGET.t():
        logits, state = model.step(words, state)
        stepped.append(logits)
    torch.testing.assert_close(torch.stack(stepped, 1), model(SOURCE, LENGTHS, TARGET))


@pytest.mark.parametrize("kind", FEW)
def test_padding_changes_nothing(kind: str) -> None:
    model = small(**KINDS[kind])
    junk = torch.cat([SOURCE, torch.full((3, 2), 11)], dim=1)
    junk[torch.arange(6) >= LENGTHS[:, None]] = 11
    expected = model(SOURCE, LENGTHS, TARGET)
    torch.testing.assert_close(model(junk, LENGTHS, TARGET), expected)
    alone = model(SOURCE[1:2, :2], LENGTHS[1:2], TARGET[1:2])
    torch.testing.assert_close(alone, expected[1:2])


@pytest.mark.parametrize("kind", FEW)
def test_select_reorders_sentences_and_hypotheses(kind: str) -> None:
    model = small(**KINDS[kind])
    rows = torch.tensor([2, 0, 0])
    _, logits_before = model.step(TARGET[:, 0], model.begin(SOURCE, LENGTHS))
    early, _ = model.step(TARGET[rows, 0], model.begin(SOURCE, LENGTHS).select(rows))
    torch.testing.assert_close(early, model(SOURCE, LENGTHS, TARGET)[rows, 0])
    late, _ = model.step(TARGET[rows, 1], logits_before.select(rows))
    torch.testing.assert_close(late, model(SOURCE, LENGTHS, TARGET)[rows, 1])


@pytest.mark.parametrize("kind", FEW)
def test_an_empty_source_has_finite_answers_and_gradients(kind: str) -> None:
    model = small(**KINDS[kind])
    lengths = torch.tensor([4, 0, 3])
    logits = model(SOURCE, lengths, TARGET)
    logits.square().sum().backward()
    assert torch.isfinite(logits).all()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
    torch.testing.assert_close(logits[0], model(SOURCE[:1], lengths[:1], TARGET[:1])[0])


@pytest.mark.parametrize("width", [0, 3])
def test_a_batch_of_empty_sources(width: int) -> None:
    model = small()
    nothing = torch.zeros(2, width, dtype=torch.int64)
    logits = model(nothing, torch.zeros(2, dtype=torch.int64), TARGET[:2])
    assert torch.isfinite(logits).all()
    look = model.looks(nothing, torch.zeros(2, dtype=torch.int64), TARGET[:2])["decoder.0.cross"]
    assert look.weights().sum() == 0


def test_gradients_reach_every_weight_and_no_padding() -> None:
    model = small()
    model(SOURCE, LENGTHS, TARGET).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
    embedding = model.source_embedding.weight.grad
    assert embedding is not None
    assert (embedding[0] == 0).all()
    assert (embedding[10:] == 0).all()


def test_gradient_of_a_step_is_the_limit_of_differences() -> None:
    model = small(encoder_width=2, decoder_width=3, embedding_width=2, attention_width=2)
    names, weights = zip(*model.named_parameters(), strict=True)

    def loss(*changed: torch.Tensor) -> torch.Tensor:
        inputs = dict(zip(names, changed, strict=True))
        out = torch.func.functional_call(model, inputs, (SOURCE, LENGTHS, TARGET))
        return out.logsumexp(-1).sum()

    inputs = tuple(weight.detach().requires_grad_() for weight in weights)
    assert torch.autograd.gradcheck(loss, inputs, fast_mode=True)


def test_bfloat16_autocast_stays_near() -> None:
    model = small(encoder_width=16, decoder_width=32).float()
    with torch.autocast("cpu", torch.bfloat16):
        near = model(SOURCE, LENGTHS, TARGET)
    torch.testing.assert_close(near.float(), model(SOURCE, LENGTHS, TARGET), rtol=0.05, atol=0.05)


def test_a_foreign_state_is_refused() -> None:
    with pytest.raises(TypeError, match="own DecoderState, got a Other"):
        small().advance(TARGET[:, 0], Other())


class Other:
    def select(self, rows: torch.Tensor) -> Other:
        return self
