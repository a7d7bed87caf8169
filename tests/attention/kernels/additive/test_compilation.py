"""While the loops are compiled other kernels serve; calls that must be alike wait; one signature serves all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from tests.loops.unfinished import Unfinished
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import regard
from regard.attention import masks
from regard.attention.kernels.additive import kernels
from regard.attention.kernels.additive.cpu import backward, forward, looks, preparation
from regard.attention.scores import Additive, SoftCap

MODULE = "regard.attention.kernels.additive.cpu.preparation"
SCORE = Additive(16, 16, 32, bias=True)
QUERY = torch.randn(2, 128, 16, generator=torch.Generator().manual_seed(0))


class Waiting(Unfinished):
    """Loops for which a test counts who waits; they are then ready."""

    waited = 0

    def wait(self) -> None:
        self.waited += 1
        self.finish()


@pytest.fixture
def unfinished(monkeypatch, tmp_path) -> Waiting:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    loops = Waiting(MODULE, "float32")
    monkeypatch.setitem(kernels.LOOPS, torch.float32, loops)
    return loops


def served(query: torch.Tensor = QUERY) -> str:
    return regard.explain(query, query, score=SCORE).kernel


def test_other_kernels_serve_until_the_loops_are_compiled(unfinished):
    assert served() == "reference"
    assert served(QUERY.repeat(1, 40, 1)) == "blocked"
    assert unfinished.is_started
    reading_before = regard.attend(QUERY, QUERY, QUERY, score=SCORE)
    received = regard.look(QUERY, QUERY, score=SCORE).received()
    assert unfinished.waited == 0
    unfinished.finish()
    assert served() == "cpu"
    assert_close(reading_before, regard.attend(QUERY, QUERY, QUERY, score=SCORE))
    assert_close(received, regard.look(QUERY, QUERY, score=SCORE).received())


def test_the_explanation_tells_what_is_waited_for(unfinished):
    explanation = regard.explain(QUERY, QUERY, score=SCORE)
    assert "as soon as its loops are compiled" in explanation.refused["cpu"]
    assert "small enough" in explanation.because


def test_small_calls_compile_nothing(unfinished):
    assert served(QUERY[:, :4]) == "reference"
    assert not unfinished.is_started


def test_a_pinned_kernel_serves_at_once(unfinished):
    with regard.kernel("cpu"):
        assert served() == "cpu"
        regard.attend(QUERY, QUERY, QUERY, score=SCORE)
    assert not unfinished.is_started


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("alike", [deterministic, kernels.waiting_for_loops])
def test_calls_that_must_be_computed_alike_wait_for_the_loops(unfinished, alike):
    with alike():
        regard.attend(QUERY, QUERY, QUERY, score=SCORE)
    assert unfinished.waited == 1


def test_a_checkpoint_is_computed_twice_by_one_kernel(unfinished):
    def call(x):
        return regard.attend(x, x, x, score=SCORE)

    x = QUERY.clone().requires_grad_()
    reading = checkpoint(call, x, use_reentrant=False)
    assert unfinished.waited == 1
    reading.sum().backward()
    assert x.grad is not None


def test_after_the_preparation_no_call_compiles_more():
    preparation.compile_loops("float32")
    loops = forward.forward, forward.prepare_keys, forward.prepare_values, backward.backward
    signatures = [len(loop.signatures) for loop in (*loops, looks.score_rows)]
    documents = torch.randint(0, 3, (2, 128), generator=torch.Generator().manual_seed(1))
    rules = [
        masks.causal(align="start"),
        masks.band(5, 0) & masks.padding([90, 128]),
        masks.documents(documents),
        torch.rand(2, 128, 128, generator=torch.Generator().manual_seed(2)) < 0.9,
    ]
    bias = torch.zeros(128, 128, requires_grad=True)
    for query in (QUERY, QUERY[0], QUERY.half(), QUERY[:, None].expand(2, 3, 128, 16)):
        for mask in (None, *(rules if query is QUERY else ())):
            for score in (SCORE.to(query.dtype), SoftCap(SCORE.to(query.dtype), 2.0)):
                x = query.clone().requires_grad_()
                for plane in (None, bias.to(query.dtype)):
                    reading = regard.attend(x, x, x, score=score, mask=mask, bias=plane)
                    reading.sum().backward()
                regard.look(x, x, score=score, mask=mask).received()
    SCORE.float()
    assert [len(loop.signatures) for loop in (*loops, looks.score_rows)] == signatures
