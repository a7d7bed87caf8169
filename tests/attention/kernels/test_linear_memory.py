"""The peak memory of a process grows with the length and not with its square: every mask, bias and default kernel.

What fused kernels and compiled loops take inside counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.peaks import growth, measured

import regard
from regard.attention import masks
from regard.attention.positions import Alibi, RelativeBias

CAUSAL = masks.causal(align="start")
# From 4,096 to 16,384 positions; a matrix of scores has 64 and 1,024 MB.
MASKS: dict[str, Callable[[int], Any]] = {
    "none": lambda n: None,
    "causal": lambda n: CAUSAL,
    "causal at the end": lambda n: masks.causal(align="end"),
    "window": lambda n: masks.band(128, 0),
    "band": lambda n: masks.band(None, 100),
    "padding": lambda n: masks.padding([2 * n // 5]),
    "documents": lambda n: masks.documents(torch.arange(n) * 8 // n),
    "packed": lambda n: masks.packed([n // 8] * 8),
    "causal & padding": lambda n: CAUSAL & masks.padding([n - 1]),
    "causal & documents": lambda n: CAUSAL & masks.documents(torch.arange(n) // 300),
    "window & function": lambda n: masks.band(128, 0) & (lambda q, k: (q - k) % 5 == 0),
    "prefix": lambda n: CAUSAL | masks.padding([n // 4]),
}
# Most pairs may be read, or a tile says of each: from 2,048 to 8,192, in a sixteenth of the time.
DENSE: dict[str, Callable[[int], Any]] = {
    "window | padding": lambda n: masks.band(64, 0) | masks.padding([64]),
    "~padding": lambda n: ~masks.padding([n // 2]),
    "~band": lambda n: ~masks.band(16, 0),
    "~documents": lambda n: ~masks.documents(torch.arange(n) * 8 // n),
    "~packed": lambda n: ~masks.packed([n // 8] * 8),
    "mixed documents": lambda n: masks.documents(torch.arange(n) % 7),
    "function": lambda n: lambda q, k: (q - k) % 5 == 0,
}
OPTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "dots": dict,
    "dropout": lambda: {"dropout": 0.1},
    "alibi": lambda: {"bias": Alibi(1)},
    "function": lambda: {"bias": lambda q, k: (q - k).abs() * -0.1},
    "relative": lambda: {"bias": RelativeBias(1)},
    "additive": lambda: {"score": regard.scores.Additive(8, 8, 8)},
    "additive, alibi": lambda: {"score": regard.scores.Additive(8, 8, 8), "bias": Alibi(1)},
    "sparsemax, alibi": lambda: {"normaliser": "sparsemax", "bias": Alibi(1)},
}
FLOOR = 16.0  # MB that tiles and the allocator take at any length

pytestmark = measured


def attend(length: int, mask: Any, options: dict[str, Any]) -> None:
    sides = [torch.randn(1, 1, length, 8, requires_grad=True) for _ in range(3)]
    torch.autograd.grad(regard.attend(*sides, mask=mask, **options).sum(), sides)


def look(length: int, mask: Any, options: dict[str, Any]) -> None:
    query, key = (torch.randn(1, 1, length, 8, requires_grad=True) for _ in range(2))
    answers = regard.look(query, key, mask=mask, **options)
    with torch.no_grad():
        answers.top(2), answers.map(32, 32), answers.distance()
    torch.autograd.grad(answers.entropy().sum(), (query, key))


def check(
    call: Callable[..., None], make: Callable[[int], Any], option: str, short: int, long: int
) -> None:
    """Four times the length takes at most 4.5 times the memory."""
    options = OPTIONS[option]()

    def peak(length: int) -> float:
        return growth(
            lambda: call(1024, make(1024), options), lambda: call(length, make(length), options)
        )

    assert peak(long) <= 4.5 * max(peak(short), FLOOR)


@pytest.mark.parametrize("option", ["dots", "additive"])
@pytest.mark.parametrize("name", MASKS)
def test_memory_grows_with_the_length(name: str, option: str) -> None:
    check(attend, MASKS[name], option, 4096, 16384)


@pytest.mark.parametrize("option", ["dots", "additive"])
@pytest.mark.parametrize("name", DENSE)
def test_memory_of_nearly_all_pairs_grows_with_the_length(name: str, option: str) -> None:
    check(attend, DENSE[name], option, 2048, 8192)


@pytest.mark.parametrize("option", [name for name in OPTIONS if name not in ("dots", "additive")])
@pytest.mark.parametrize("name", ["window", "documents"])
def test_memory_of_other_options_grows_with_the_length(name: str, option: str) -> None:
    check(attend, MASKS[name], option, 4096, 16384)


@pytest.mark.parametrize("option", ["dots", "additive", "alibi", "additive, alibi"])
@pytest.mark.parametrize("name", ["window", "causal"])
def test_memory_of_looks_grows_with_the_length(name: str, option: str) -> None:
    check(look, MASKS[name], option, 2048, 8192)
