"""The peak memory of a process stays below a matrix of scores: every mask, bias and default kernel.

What fused kernels and compiled loops take inside counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from tests.peaks import growth, measured

import regard
from regard.attention import masks
from regard.attention.positions import Alibi, RelativeBias

CAUSAL = masks.causal(align="start")
LENGTH = 4096
# A quarter of what blocks hold otherwise, so that a matrix of this length, 64 MB, is as far above them as a larger one.
BLOCKS = {
    "looks.weights.BLOCK": 18,
    "looks.source.BLOCK": 18,
    "masks.tiles.PAIRS": 18,
    "kernels.request.LARGE": 23,
    "kernels.additive.kernels.ROOM": 20,
}
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
    "additive": lambda: {"score": regard.scores.Additive(8, 8, 2)},
    "additive, alibi": lambda: {"score": regard.scores.Additive(8, 8, 2), "bias": Alibi(1)},
    "sparsemax, alibi": lambda: {"normaliser": "sparsemax", "bias": Alibi(1)},
}
pytestmark = measured


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, power in BLOCKS.items():
        monkeypatch.setattr(f"regard.attention.{name}", 1 << power)


def attend(length: int, mask: Any, options: dict[str, Any]) -> None:
    sides = [torch.randn(1, 1, length, 8, requires_grad=True) for _ in range(3)]
    torch.autograd.grad(regard.attend(*sides, mask=mask, **options).sum(), sides)


def look(length: int, mask: Any, options: dict[str, Any]) -> None:
    query, key = (torch.randn(1, 1, length, 8, requires_grad=True) for _ in range(2))
    answers = regard.look(query, key, mask=mask, **options)
    with torch.no_grad():
        answers.top(2), answers.map(32, 32), answers.distance()
    torch.autograd.grad(answers.entropy().sum(), (query, key))


def peaks(call: Callable[..., None], name: str, option: str, *lengths: int) -> list[float]:
    """The megabytes that a call takes at each of these lengths."""
    make, options = MASKS[name], OPTIONS[option]()

    def work(length: int) -> None:
        call(length, make(length), options)

    work(1024)  # loops that this process has compiled are there in the child
    return [growth(lambda: work(1024), partial(work, length)) for length in lengths]


def check(call: Callable[..., None], name: str, option: str) -> None:
    """Below a matrix there is room for tiles and what the allocator keeps."""
    (peak,) = peaks(call, name, option, LENGTH)
    assert peak < LENGTH**2 * 4 / 2**20


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("option", ["dots", "additive"])
@pytest.mark.parametrize("name", MASKS)
def test_no_mask_makes_a_matrix(name: str, option: str) -> None:
    check(attend, name, option)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("option", [name for name in OPTIONS if name not in ("dots", "additive")])
@pytest.mark.parametrize("name", ["window", "documents"])
def test_no_option_makes_a_matrix(name: str, option: str) -> None:
    check(attend, name, option)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("option", ["dots", "additive", "alibi", "additive, alibi"])
@pytest.mark.parametrize("name", ["window", "causal"])
def test_no_look_makes_a_matrix(name: str, option: str) -> None:
    check(look, name, option)


# benchmarks/peaks.py measures all of them
@pytest.mark.parametrize(
    ("call", "name", "option"),
    [
        (attend, "causal & padding", "dots"),
        (attend, "window | padding", "dropout"),
        (attend, "window", "additive, alibi"),
        (look, "window", "alibi"),
    ],
)
def test_four_times_the_length_takes_four_times_the_memory(
    call: Callable[..., None], name: str, option: str
) -> None:
    short, long = peaks(call, name, option, 4096, 16384)
    assert long <= 4.5 * max(short, 4)  # megabytes; the allocator keeps some
