"""Products of numbers rounded to 8 bits: whole numbers are exact, and a model says nearly the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numba import njit
from tests.translation.decoding.toy import beam
from tests.translation.engines.test_compiled import LENGTHS, SHAPES, small, source

from regard.errors import ModelError
from regard.translation.engines import choose
from regard.translation.engines.compiled import products


@njit(error_model="numpy")
def multiply(x, rows, depth, weights, width, numbers, factors, tile, out):
    products.multiply(x, rows, depth, weights, 0, width, numbers, factors, tile, out)


def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    (rows, depth), width = x.shape, len(weight)
    numbers = np.zeros(rows * -(-depth // products.FOUR) * products.FOUR, np.uint8)
    factors, out = np.zeros(rows, np.float32), np.full(rows * width, 7, np.float32)
    tile = np.zeros(products.ROWS * products.COLUMNS, np.float32)
    given = x.flatten().numpy(), rows, depth, products.packed_rounded(weight).numpy(), width
    multiply(*given, numbers, factors, tile, out)
    return torch.from_numpy(out).view(rows, width)


@pytest.mark.parametrize(("rows", "depth", "width"), [(1, 4, 64), (7, 37, 71), (13, 256, 130)])
def test_whole_numbers_are_multiplied_exactly(rows: int, depth: int, width: int):
    generator = torch.Generator().manual_seed(rows)
    x = torch.randint(-127, 128, (rows, depth), generator=generator).float()
    weight = torch.randint(-127, 128, (width, depth), generator=generator).float()
    x[:, 0], weight[:, 0] = 127, -127  # so that both factors are 1
    assert torch.equal(product(x, weight), x @ weight.t())


@pytest.mark.parametrize("way", ["vnni", "pairs", "spelt out"])
@pytest.mark.parametrize("rows", [1, 3, 6])
def test_each_way_to_add_four_products_is_exact(way, rows, monkeypatch):
    needs = {"vnni": products.VNNI, "pairs": products.PAIRS}
    if not needs.get(way, True):
        pytest.skip("this processor has no instruction for it")
    for name, flag in (("vnni", "VNNI"), ("pairs", "PAIRS")):
        monkeypatch.setattr(products, flag, way == name)
    sum_tile = products._tile(products._WHOLE, products._add_bytes)

    @njit(error_model="numpy")
    def multiply_tile(weights, x, groups, out):
        sum_tile(rows, weights, x, 0, groups, out, products.COLUMNS)

    generator = torch.Generator().manual_seed(rows)
    x = torch.randint(0, 256, (rows, 40), generator=generator, dtype=torch.uint8)
    weight = torch.randint(-127, 128, (products.COLUMNS, 40), generator=generator).float()
    # The largest there are, side by side; a weight that rounds to itself.
    x[:, :8], weight[0, :8], weight[1, :8], weight[:, 39] = 255, 127, -127, 127
    packed = products.packed_rounded(weight)
    out = np.zeros(rows * products.COLUMNS, np.int32)
    multiply_tile(packed.numpy(), x.flatten().numpy(), 10, out)
    expected = x.int() @ weight.t().int()
    assert torch.equal(torch.from_numpy(out).view(rows, -1), expected)


def test_rounding_costs_as_much_as_it_says():
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(n, 300, generator=generator) for n in (5, 70))
    most = x.abs().amax(1)[:, None] / 254 * weight.abs().sum(1)
    most = most + weight.abs().amax(1) / 254 * 1.01 * (x.abs().sum(1)[:, None])
    assert bool(((product(x, weight) - x @ weight.t()).abs() <= most).all())


def test_rows_of_nothing_and_of_what_is_no_number():
    x = torch.zeros(3, 8)
    x[1, 2], x[2, 3] = torch.nan, torch.inf
    found = product(x, torch.ones(64, 8))
    assert torch.equal(found[0], torch.zeros(64))
    assert not found[1:].isfinite().any()


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_int8_search_says_nearly_the_same(changes):
    model, words = small(**changes), torch.full((3,), 2)
    with torch.no_grad():
        right = model.step(words, model.begin(source(), LENGTHS))[0]
        engine = choose(model, rounded=True)
        found = engine.step(words, engine.begin(source(), LENGTHS))[0]
    assert not torch.equal(found, right)
    assert float((found - right).norm() / right.norm()) < 0.05


def test_damaged_weights_are_told():
    model = small()
    with torch.no_grad():
        model.decoder[0].feed_forward.inner.weight[3, 3] = torch.nan
    with pytest.raises(ModelError, match="not a number"):
        beam(choose(model, rounded=True), source(), LENGTHS, size=2, max_length=5)
