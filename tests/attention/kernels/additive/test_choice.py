"""Which kernel serves on a GPU where nothing is pinned. The choice is asked for tensors of a processor here."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch

from regard.attention import masks
from regard.attention.kernels.choose import _on_gpu
from regard.attention.kernels.request import ask
from regard.attention.positions import Alibi
from regard.attention.scores import Additive, SoftCap

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
WINDOW = masks.band(128, 0)
ADDITIVE = Additive(16, 16, 32)


@pytest.mark.parametrize(
    ("length", "options", "kernel"),
    [
        (4096, {"score": ADDITIVE}, "triton"),
        (4096, {"score": SoftCap(ADDITIVE, 2.0), "mask": WINDOW}, "triton"),
        (8, {"score": ADDITIVE}, None),
        (4096, {"mask": WINDOW}, "triton"),
        (4096, {"mask": masks.documents(torch.arange(4096) // 512)}, "triton"),
        (2048, {"mask": WINDOW}, "triton"),
        (1024, {"mask": WINDOW}, None),
        (4096, {}, None),
        (4096, {"mask": masks.causal(align="start")}, None),
        (4096, {"mask": torch.ones(4096, dtype=torch.bool)}, None),
        (4096, {"mask": ~WINDOW}, "blocked"),
        (4096, {"mask": WINDOW, "dropout": 0.1}, "blocked"),
        (4096, {"bias": Alibi(1)}, "blocked"),
    ],
)
def test_the_kernel_of_a_gpu(
    length: int, options: dict[str, Any], kernel: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "TRITON_INTERPRET", "1"
    )  # so that tensors of a processor stand for those of a GPU
    query = torch.zeros(1, length, 16)
    selection = _on_gpu(ask(query, query, query, **options), query)
    assert (selection and selection.name) == kernel
