"""Dot products under a mask in Triton, interpreted on a processor where there is no GPU (see tests/conftest.py)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from tests.agreement.cases import BRAIN, HALF, Case
from tests.agreement.comparing import TOLERANCE, compare
from tests.agreement.test_kernels import answer
from tests.attention.kernels.triton.test_additive import moved

import regard
from regard.attention import masks, normalisers, scores
from regard.attention.kernels.choose import KernelRefusedError

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
END = masks.causal(align="end")
SMALL = 16, 16  # so that some tiles need the mask, and others none
LONG = {"query": (2, 1, 40, 8), "key": (2, 1, 50, 8), "d_value": 6}  # past several blocks each way


def case(name: str, mask: masks.Mask, **changed: Any) -> Case:
    return Case(name, mask=mask, **{**LONG, **changed})


CASES = [
    case("causal at the end", END),
    case("window", masks.band(3, 1)),
    case("padding", masks.padding([50, 17]) & END),
    case("padding of everything", masks.padding([0, 33])),
    case("prefix", masks.causal(align="start") | masks.padding([20, 5])),
    case("packed", masks.packed([10, 0, 30], [20, 10, 20])),
    case("documents", masks.documents(torch.arange(40) // 12, torch.arange(50) // 14)),
    case("mixed documents", masks.documents(torch.arange(40) % 3, torch.arange(50) % 4) & END),
    case("half", masks.band(20, 0), dtype=HALF),
    case("bfloat16", masks.band(20, 0), dtype=BRAIN),
    case("strided", END, strided=True),
    case("wide", masks.band(9, 9), query=(40, 40), key=(50, 40), d_value=65),
    case("widest", END, query=(40, 128), key=(50, 128), d_value=128),
    case("widest, half", END, query=(40, 128), key=(50, 128), d_value=128, dtype=HALF),
    case("grouped", END, query=(1, 2, 2, 33, 8), key=(1, 2, 1, 40, 8)),
    case("shared values", END, value_batch=(1, 1)),
    case("below zero", END, score=lambda: scores.ScaledDot(-0.7)),
    case("cosine", END, score=lambda: scores.Cosine(5.0)),
    case("temperature", END, normaliser=normalisers.Softmax(0.5)),
    case("large scores", END, size=60.0, slack=300.0),
]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small tiles; launches for others are forgotten, before and after."""
    from regard.attention.kernels.triton import products, sizes

    tile = sizes.Tile(*SMALL, 4)
    monkeypatch.setattr(sizes, "of_dots", lambda *widths: sizes.DotTiles(tile, tile, tile))
    products._plan.cache_clear()
    yield
    products._plan.cache_clear()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_agrees_with_the_exact_reference(case: Case) -> None:
    built = case.build()
    exact = answer("reference", built.arguments(torch.float64))
    actual = answer("triton", moved(built.arguments(case.dtype)))
    assert actual["reading"].dtype == case.dtype
    for name in exact:
        result = None if actual[name] is None else actual[name].cpu()
        compare(name, result, exact[name], TOLERANCE[case.dtype] * case.slack)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mask": None}, "under a mask of regard.masks alone"),
        ({"mask": torch.ones(40, 50, dtype=torch.bool)}, "under a mask of regard.masks alone"),
        ({"mask": ~END}, "neither spans of keys nor documents"),
        ({"bias": torch.zeros(50)}, "adds no bias"),
        ({"dropout": 0.1}, "no dropout"),
        ({"normaliser": normalisers.Hard()}, "Hard is not a softmax"),
        ({"value": torch.zeros(2, 1, 50, 129)}, "wider than 128"),
    ],
)
def test_what_it_cannot_serve_is_refused(changes: dict[str, Any], reason: str) -> None:
    arguments = case("plain", END).build().arguments(torch.float32)
    with regard.kernel("triton"), pytest.raises(KernelRefusedError, match=reason):
        regard.attend(**moved({**arguments, **changes}))


def test_second_gradients_are_refused() -> None:
    arguments = moved(case("plain", END).build().arguments(torch.float32))
    with regard.kernel("triton"):
        reading = regard.attend(**arguments)
    (gradient,) = torch.autograd.grad(reading.sum(), arguments["query"], create_graph=True)
    with pytest.raises(NotImplementedError, match="no gradients of gradients"):
        gradient.sum().backward()
