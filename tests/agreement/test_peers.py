"""Agreement with torch's own attention."""

from __future__ import annotations

import pytest
import torch
from tests.agreement.comparing import compare
from torch.nn import functional as F

import regard
from regard.attention import masks
from regard.attention.kernels.choose import KERNELS

SHAPES = ((2, 3, 6, 8), (2, 3, 9, 8), (2, 3, 9, 5))


@pytest.fixture
def tensors() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64) for shape in SHAPES]


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name not in ("cpu", "triton")])
@pytest.mark.parametrize("inputs", ["nothing", "boolean", "float", "causal", "scale"])
def test_scaled_dot_product_attention(
    kernel: str, inputs: str, tensors: list[torch.Tensor]
) -> None:
    boolean = torch.rand(2, 1, 6, 9) > 0.3
    boolean[..., 0] = True
    number = torch.randn(3, 6, 9, dtype=torch.float64)
    ours, theirs = {
        "nothing": ({}, {}),
        "boolean": ({"mask": boolean}, {"attn_mask": boolean}),
        "float": ({"bias": number}, {"attn_mask": number.expand(2, 3, 6, 9)}),
        "causal": ({"mask": masks.causal(align="start")}, {"is_causal": True}),
        "scale": ({"score": regard.scores.ScaledDot(0.3)}, {"scale": 0.3}),
    }[inputs]
    with regard.kernel(kernel):
        reading = regard.attend(*tensors, **ours)
    compare("reading", reading, F.scaled_dot_product_attention(*tensors, **theirs), 1e-12)


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name not in ("cpu", "triton")])
def test_grouped_heads_are_theirs(kernel: str) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 6, 5, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8)
    theirs = F.scaled_dot_product_attention(query, key, value, enable_gqa=True)
    with regard.kernel(kernel):
        ours = regard.attend(query.unflatten(1, (2, 3)), key[:, :, None], value[:, :, None])
    compare("reading", ours.flatten(1, 2), theirs, 3e-6)
