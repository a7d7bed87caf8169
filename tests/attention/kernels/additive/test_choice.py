"""Which kernel serves additive scores where nothing is pinned."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import regard
from regard.attention.scores import Additive


@pytest.mark.parametrize(("length", "kernel"), [(4096, "blocked"), (8, "reference")])
def test_triton_serves_only_where_it_is_pinned(length: int, kernel: str) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        query = torch.empty(2, length, 16, device="cuda")
        explanation = regard.explain(query, query, score=Additive(16, 16, 32))
    assert explanation.kernel == kernel
    assert "pinned" in explanation.refused["triton"]
