"""Greedy search against the plain loop over one sentence, and how a model is left behind."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.translation.decoding.toy import (
    BOS,
    EOS,
    PAD,
    Tied,
    Toy,
    greedy,
    one_by_one,
    some_sources,
)

from regard.errors import ModelError


def plainly(model: Toy, source: torch.Tensor, lengths: torch.Tensor, longest: int) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < longest:
        logits = model(source, lengths, torch.tensor([[BOS, *tokens]]))[0, -1]
        logits[[PAD, BOS]] = -math.inf
        word = int(logits.argmax())
        if word == EOS:
            break
        tokens.append(word)
    return tokens


@given(st.integers(0, 10_000), st.integers(0, 8), st.floats(-2, 3))
def test_it_writes_what_the_plain_loop_writes(seed: int, longest: int, ends: float):
    model, (source, lengths) = Toy(seed=seed, ends=ends), some_sources(4, seed)
    hypotheses = greedy(model, source, lengths, max_length=longest, length_penalty=0.5)
    for i, (hypothesis,) in enumerate(hypotheses):
        alone = source[i : i + 1], lengths[i : i + 1]
        assert hypothesis.tokens == plainly(model, *alone, longest)
        assert hypothesis.score == pytest.approx(
            one_by_one(model, *alone, hypothesis.tokens, 0.5).score, abs=1e-5
        )


def test_finished_sentences_leave_the_batch():
    model = Toy(ends=-30.0)
    hypotheses = greedy(model, *some_sources(3), max_length=torch.tensor([3, 0, 1]))
    assert [len(one.tokens) for (one,) in hypotheses] == [3, 0, 1]
    assert model.rows_read == [3, 2, 1, 1]


def test_of_equals_the_first_is_written():
    assert greedy(Tied(), *some_sources(1), max_length=2)[0][0].tokens == [1, 1]


def test_the_model_is_left_as_it_was_and_no_dropout_is_applied():
    class Dropping(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.dropping, self.frozen = torch.nn.Dropout(0.9), torch.nn.Dropout(0.9).eval()

        def logits(self, hidden: torch.Tensor) -> torch.Tensor:
            assert not torch.is_grad_enabled()
            return super().logits(self.frozen(self.dropping(hidden)))

    model, sources = Dropping(), some_sources(3)
    assert greedy(model, *sources, max_length=5) == greedy(Toy(), *sources, max_length=5)
    assert model.training
    assert model.dropping.training
    assert not model.frozen.training
    assert torch.is_grad_enabled()


def test_a_model_that_fails_is_left_as_it_was_too():
    model = Toy()
    model.shift[5] = math.nan
    with pytest.raises(ModelError, match="not a number"):
        greedy(model, *some_sources(2), max_length=3)
    assert model.training


def test_a_model_that_allows_nothing_is_an_error():
    with pytest.raises(ModelError, match="probability 0"):
        greedy(Toy(ends=-math.inf), *some_sources(2), max_length=3)


def test_half_precision_is_scored_in_float32():
    class Half(Toy):
        def logits(self, hidden: torch.Tensor) -> torch.Tensor:
            return super().logits(hidden).bfloat16()

    model, (source, lengths) = Half(), some_sources(1)
    (hypothesis,) = greedy(model, source, lengths, max_length=4)[0]
    assert hypothesis.score == pytest.approx(
        one_by_one(model, source, lengths, hypothesis.tokens, 1.0).score, abs=1e-5
    )
