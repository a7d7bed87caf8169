"""Compiled loops are asked only where they may be: compiled, and of tensors that hold numbers."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from regard.attention.kernels import explain
from regard.attention.scores import Additive
from regard.loops import availability as loops


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated")
def test_what_holds_no_numbers_is_none_of_theirs():
    real = torch.ones(3)
    assert loops.serve(real, torch.nn.Parameter(real))
    mode = FakeTensorMode()
    fake = mode.from_tensor(real)
    assert not loops.serve(real, fake)
    with mode:
        assert not loops.serve()
    records = []
    torch.func.vmap(lambda x: records.append(loops.serve(x)) or x)(real)
    torch.jit.trace(lambda x: records.append(loops.serve(x)) or x + 1, real, check_trace=False)
    assert records == [False, False]
    assert loops.serve(real)


@pytest.mark.parametrize(("message", "compiled"), [("1", False), ("0", True), ("", True)])
def test_loops_that_nobody_compiles_are_left(monkeypatch, message, compiled):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", message)
    assert loops.serve(torch.ones(1)) == compiled
    query, key = torch.ones(2, 4), torch.ones(3, 4)
    refused = explain(query, key, score=Additive(4, 4, 4)).refused
    assert ("NUMBA_DISABLE_JIT" in refused["cpu"]) != compiled
