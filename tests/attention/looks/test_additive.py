"""Looks at additive scores by the loops of the kernel `cpu`: every answer, however few the pairs."""

from __future__ import annotations

import pytest
import torch
from tests.agreement.cases import Case
from tests.attention.kernels.additive.test_agreement import TABLE
from tests.attention.looks.test_agreement import check, check_answers, look_and_dense
from tests.peaks import growth, measured
from torch import Tensor

import regard
from regard.attention import masks, normalisers, scores
from regard.attention.kernels.additive.kernels import Cpu
from regard.attention.looks import source
from regard.attention.looks.source import AdditiveBlocks

SOFTLY = normalisers.Softmax(0.6)
MORE = [
    Case("concat", score=lambda: scores.Concat(8, 8, 9, bias=True), normaliser=SOFTLY),
    Case(
        "either of two masks",
        score=lambda: scores.Additive(8, 8, 9),
        mask=masks.band(0, 0) | masks.padding([2, 0]),
    ),
    Case(
        "capped under a mask of positions and a temperature",
        score=lambda: scores.SoftCap(scores.Additive(8, 8, 9), 0.5),
        mask=masks.padding([5, 7]) & (lambda row, column: (row + column) % 3 > 0),
        normaliser=SOFTLY,
    ),
]
HALVES = torch.float16, torch.bfloat16
CASES = [case for case in TABLE + MORE if case.dtype not in HALVES]
EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve the smallest requests too."""
    monkeypatch.setattr(Cpu, "pays", lambda kernel, request: True)


@pytest.mark.parametrize("block", [1 << 20, 40], ids=lambda block: f"block {block}")
@EVERY_CASE
def test_the_answers_are_those_of_the_dense_weights(
    case: Case, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "BLOCK", block)
    if block < 1 << 20:
        monkeypatch.setattr(source, "LEAST", 3)  # no whole number of tiles
    look, exact = look_and_dense(case)
    assert isinstance(look._source(), AdditiveBlocks)
    assert exact.scores is not None
    check(case, "log-normaliser", look.log_normaliser(), exact.log_normaliser())
    check_answers(case, look, exact)


@pytest.mark.parametrize("threads", [2, 7])
def test_the_number_of_threads_changes_nothing(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regard.attention.kernels.additive.cpu import calls

    query, key = torch.randn(3, 70, 8), torch.randn(1, 530, 8)
    score = scores.Additive(8, 8, 21).requires_grad_(False)
    look = regard.look(query, key, score=score, mask=masks.band(300, 40))
    alone = look.weights(), look.entropy(), look.top(5)[1]
    monkeypatch.setattr(calls, "_workers", lambda problem: threads)
    for one_thread, of_threads in zip(
        alone, (look.weights(), look.entropy(), look.top(5)[1]), strict=True
    ):
        assert torch.equal(one_thread, of_threads)


def test_nan_in_keys_that_are_masked_reaches_no_answer() -> None:
    query, key = torch.randn(2, 9, 8), torch.randn(2, 40, 8)
    score, mask = scores.Additive(8, 8, 5).requires_grad_(False), masks.padding([40, 6])
    clean = regard.look(query, key, score=score, mask=mask)
    spoilt = key.clone()
    spoilt[1, 6:], spoilt[1, 30] = torch.nan, torch.inf
    look = regard.look(query, spoilt, score=score, mask=mask)
    bias = torch.zeros(2, 1, 40)
    bias[1, :, 6:] = -torch.inf
    biased = regard.look(query, spoilt, score=score, bias=bias)
    for second_look in (look, biased):
        assert torch.allclose(second_look.entropy(), clean.entropy(), atol=1e-6)
        assert torch.allclose(second_look.received(), clean.received(), atol=1e-6)
        assert torch.equal(second_look.top(3)[1], clean.top(3)[1])


def test_of_equal_keys_the_first_comes_first() -> None:
    key = torch.randn(1, 8).expand(75, 8)
    score = scores.Additive(8, 8, 16).requires_grad_(False)
    look = regard.look(torch.randn(20, 8), key, score=score, mask=masks.band(None, 3))
    assert torch.equal(look.top(3)[1], torch.arange(3).expand(20, 3))
    assert not look.argmax().any()


def test_rows_that_are_picked_are_those_of_the_whole() -> None:
    query, key = torch.randn(2, 3, 30, 8), torch.randn(2, 3, 45, 8)
    score = scores.Additive(8, 8, 9, heads=3).requires_grad_(False)
    look = regard.look(query, key, score=score, mask=masks.causal(align="end"))
    all_weights, rows = look.weights(), [29, 4, 4, 17]
    assert torch.allclose(
        look.weights(rows=rows, columns=[3, 0]), all_weights[..., rows, :][..., [3, 0]]
    )
    assert torch.allclose(look.received(rows=rows), all_weights[..., rows, :].sum(-2), atol=1e-6)
    assert torch.allclose(look[1, 2].map(5, 9), look.map(5, 9)[1, 2])
    assert torch.allclose(
        look.mean_heads().weights(rows=rows), all_weights.mean(1)[:, rows], atol=1e-6
    )


def test_a_look_beside_a_reading_with_dropout_is_of_the_weights_before_it() -> None:
    query, key = torch.randn(9, 8), torch.randn(12, 8)
    score = scores.Additive(8, 8, 9).requires_grad_(False)
    _, look = regard.read(query, key, key, score=score, dropout=0.5)
    assert isinstance(look._source(), AdditiveBlocks)
    assert torch.allclose(look.weights(), regard.look(query, key, score=score).weights())


def test_the_answers_have_their_gradients() -> None:
    torch.manual_seed(0)
    score = scores.Additive(4, 4, 5).double()
    query, key = (torch.randn(n, 4, dtype=torch.float64, requires_grad=True) for n in (9, 11))
    look = regard.look(query, key, score=score, mask=masks.causal(align="end"))
    leaves = [query, key, *score.parameters()]
    loss = look.entropy().sum() + look.received().square().sum()
    weights = look.weights()
    dense = -torch.xlogy(weights, weights).sum() + weights.sum(-2).square().sum()
    torch.testing.assert_close(
        torch.autograd.grad(loss, leaves), torch.autograd.grad(dense, leaves)
    )


@pytest.mark.parametrize("half", HALVES)
def test_half_precisions_are_as_exact_as_float32(half: torch.dtype) -> None:
    query, key = torch.randn(9, 8).to(half), torch.randn(12, 8).to(half)
    score = scores.Additive(8, 8, 9, bias=True).requires_grad_(False).to(half)
    look = regard.look(query, key, score=score)
    wide = regard.look(query.float(), key.float(), score=score.float())
    assert look.entropy().dtype == torch.float32
    assert torch.allclose(look.log_normaliser(), wide.log_normaliser(), atol=1e-6)
    assert torch.equal(look.argmax(), wide.argmax())


def test_a_score_that_is_overridden_is_called() -> None:
    class Doubled(scores.Additive):
        def combine(self, query_features: Tensor, key_features: Tensor) -> Tensor:
            return super().combine(query_features, key_features) * 2

    query, key = torch.randn(3, 8), torch.randn(4, 8)
    score = Doubled(8, 8, 3).requires_grad_(False)
    look = regard.look(query, key, score=score)
    assert not isinstance(look._source(), AdditiveBlocks)
    assert torch.allclose(look.log_normaliser(), score(query, key).logsumexp(-1))


def test_loops_are_compiled_once_for_batches_of_any_size() -> None:
    from regard.attention.kernels.additive.cpu.looks import score_rows

    score, mask = scores.Additive(8, 8, 5).requires_grad_(False), masks.causal(align="end")
    for batch in ((), (1,), (2, 3)):
        regard.look(torch.randn(*batch, 9, 8), torch.randn(*batch, 9, 8), score=score).entropy()
        regard.look(torch.randn(9, 8), torch.randn(*batch, 9, 8), score=score, mask=mask).argmax()
    single = [kinds for kinds in score_rows.signatures if "float32" in str(kinds[-1])]
    assert len(single) == 1


@measured
@pytest.mark.parametrize("length", [4096, 8192])
def test_memory_grows_with_the_lengths(length: int) -> None:
    """Megabytes over those of short looks: blocks of scores, and at 8,192 no eighth of the matrix."""
    score = scores.Additive(4, 4, 4).requires_grad_(False)

    def ask(length: int) -> None:
        query, key = torch.randn(length, 4), torch.randn(length, 4)
        look = regard.look(query, key, score=score, mask=masks.padding(length - 9))
        look.received(), look.entropy(), look.top(4), look.map(64, 64), look.log_normaliser()

    assert growth(lambda: ask(600), lambda: ask(length)) < 20 + 20 * length / 16384
