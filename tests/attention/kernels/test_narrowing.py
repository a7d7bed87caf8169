"""Masks that only cut off keys at the ends: the readings are those under the mask."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.agreement.comparing import compare
from torch import Tensor

import regard
from regard.attention import masks, normalisers, scores
from regard.attention.kernels.choose import KERNELS
from regard.attention.kernels.request import ask
from regard.attention.kernels.serve import narrowed

END = masks.causal(align="end")
EVERY_KERNEL = pytest.mark.parametrize("kernel", [name for name in KERNELS if name != "triton"])
CUTTING: dict[
    str, tuple[masks.Mask, int, int]
] = {  # masks, queries, and the keys that are left of 7
    "one step": (END, 1, 7),
    "window": (masks.band(2, 0, align="end"), 1, 3),
    "padding": (masks.padding([5, 5]), 4, 5),
    "step over padding": (END & masks.padding([5, 5]), 1, 5),
    "one document": (masks.documents(torch.tensor([1]), torch.tensor([0, 1, 1, 1, 2, 2, 2])), 1, 3),
    "one sentence": (masks.packed([4, 0], [6, 1]), 4, 6),
}


def draw(queries: int, batch: tuple[int, ...] = (2, 3)) -> list[Tensor]:
    torch.manual_seed(queries)
    sizes = (queries, 8), (7, 8), (7, 4)
    return [torch.randn(*batch, *size, dtype=torch.float64) for size in sizes]


@EVERY_KERNEL
@pytest.mark.parametrize("name", list(CUTTING))
def test_the_reading_is_that_under_the_mask(kernel: str, name: str) -> None:
    mask, queries, _ = CUTTING[name]
    tensors = draw(queries)
    score = scores.Additive(8, 8, 6).double() if kernel == "cpu" else None
    with regard.kernel("reference"):
        exact = regard.attend(*tensors, mask=mask.dense((2, 3), queries, 7), score=score)
    with torch.no_grad(), regard.kernel(kernel):
        compare("reading", regard.attend(*tensors, mask=mask, score=score), exact, 1e-12)


@pytest.mark.parametrize("name", list(CUTTING))
def test_the_mask_is_gone_and_the_keys_that_nobody_reads_too(name: str) -> None:
    mask, queries, keys = CUTTING[name]
    query, key, value = draw(queries)
    whole = ask(query, key, value, mask=mask)
    assert whole.layout is not None
    narrow = narrowed(whole, value, whole.layout)
    assert narrow is not None
    request, start = narrow
    assert request.mask is None
    assert (request.keys, request.key.shape[-2], start.shape[-2]) == (keys, keys, keys)


@pytest.mark.parametrize(
    "options",
    [
        {"mask": masks.padding([5, 4])},
        {"mask": masks.padding([0, 0])},
        {"mask": masks.causal(align="start")},
        {"mask": masks.padding([5, 5]), "bias": torch.zeros(4, 7, dtype=torch.float64)},
        {"mask": masks.padding([5, 5]), "score": lambda query, key: query @ key.mT - key.sum()},
        {
            "mask": masks.padding([5, 5]),
            "normaliser": lambda rows: rows.softmax(-1) / rows.shape[-1],
        },
    ],
    ids=["lengths", "nothing", "causal", "bias", "score", "normaliser"],
)
def test_other_requests_stay_as_they_are(options: dict[str, Any]) -> None:
    query, key, value = draw(4)
    request = ask(query, key, value, **options)
    assert request.layout is not None
    assert narrowed(request, value, request.layout) is None


def test_entries_that_the_mask_alone_has_are_read() -> None:
    query, key, value = draw(4, (1, 3))
    with torch.no_grad():
        reading = regard.attend(query, key, value, mask=masks.padding([5, 5]))
    assert reading.shape == (2, 3, 4, 4)


def test_gradients_are_those_under_the_mask() -> None:
    tensors = [tensor.requires_grad_() for tensor in draw(4)]
    with torch.no_grad():
        tensors[0][0, 0, 1] = torch.nan
    reading = regard.attend(*tensors, mask=masks.padding([5, 5]))
    gradients = torch.autograd.grad(reading[..., 2:, :].sum(), tensors)
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_numbers_beyond_the_keys_that_are_read_have_no_effect() -> None:
    query, key, value = draw(4)
    key[..., 5:, :], value[..., 5:, :] = torch.nan, torch.inf
    with torch.no_grad():
        assert regard.attend(query, key, value, mask=masks.padding([5, 5])).isfinite().all()


def test_sparse_normalisers_are_narrowed_too() -> None:
    query, key, value = draw(4)
    with torch.no_grad():
        actual = regard.attend(query, key, value, mask=masks.padding(5), normaliser="sparsemax")
        exact = regard.attend(
            query, key[..., :5, :], value[..., :5, :], normaliser=normalisers.Sparsemax()
        )
    compare("reading", actual, exact, 1e-12)
