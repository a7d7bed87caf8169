"""Fused attention over the tiles of a mask: what they cover, what is read, gradients and memory."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agreement.comparing import TOLERANCE, compare
from tests.attention.kernels.live import Live
from torch import Tensor

import regard
from regard.attention import masks
from regard.attention.kernels import serve, tiled
from regard.attention.masks import tiles as division
from regard.attention.masks.tiles import tiles
from regard.attention.positions import Alibi, RelativeBias
from regard.attention.shapes import Frame, ShapeError

CAUSAL = masks.causal(align="start")
CPU = torch.device("cpu")
BOUNDS = st.one_of(st.none(), st.integers(-3, 6))


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled, "AREA", 1)
    monkeypatch.setattr(tiled, "SHARE", 1)
    monkeypatch.setattr(division, "STRIP", 3)
    monkeypatch.setattr(division, "FEW", 1)


@st.composite
def rules(draw: st.DrawFn, frame: Frame, joined: bool = True) -> masks.Mask:
    kinds = ["band", "padding", "documents", "packed", "both", "either"]
    kind = draw(st.sampled_from(kinds if joined else kinds[:3]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    lead = frame.batch[:1] if draw(st.booleans()) else ()
    equal = draw(st.booleans())  # entries of a batch that are all alike
    if kind == "band":
        return masks.band(draw(BOUNDS), draw(BOUNDS), align=draw(st.sampled_from(["start", "end"])))
    if kind == "padding":
        lengths = torch.randint(0, frame.keys + 1, lead, generator=generator)
        return masks.padding(lengths[:1].expand(lead) if equal and lead else lengths)
    if kind == "documents":
        sizes = frame.queries, draw(st.sampled_from([1, frame.keys]))
        ids = [torch.randint(3, (*lead, size), generator=generator) for size in sizes]
        ids = [each[:1].expand_as(each) if equal and lead else each for each in ids]
        return masks.documents(
            *(each.sort(-1).values if draw(st.booleans()) else each for each in ids)
        )
    if kind == "packed":
        rows, columns = draw(st.integers(0, frame.queries)), draw(st.integers(0, frame.keys))
        return masks.packed([rows, frame.queries - rows], [columns, frame.keys - columns])
    left, right = draw(rules(frame, joined=False)), draw(rules(frame, joined=False))
    return left & right if kind == "both" else left | right


@st.composite
def framed(draw: st.DrawFn) -> tuple[Frame, masks.Mask]:
    batch = draw(st.sampled_from([(), (3,), (2, 3), (2, 2, 3)]))
    frame = Frame(batch, draw(st.integers(1, 17)), draw(st.integers(1, 17)), CPU)
    return frame, draw(rules(frame))


@given(framed(), st.sampled_from([None, 8, 1000]))
@settings(max_examples=150)
def test_every_pair_that_may_be_read_is_in_one_tile_and_no_other_is(
    pair: tuple[Frame, masks.Mask], room: int | None
) -> None:
    frame, mask = pair
    entries = mask.entries(frame)
    assert entries is not None
    dense = mask.dense(frame.batch, frame.queries, frame.keys)
    expected = dense.expand(*frame.batch, -1, -1).reshape(-1, frame.queries, frame.keys)
    for i, entry in enumerate(entries):
        count = torch.zeros(frame.queries, frame.keys)
        until = 0
        for tile in tiles(entry, frame, room):
            assert min(len(tile.rows), len(tile.columns)) > 0
            part = torch.ones(len(tile.rows), tile.keys, dtype=torch.bool)
            part = part.tril() if tile.triangle else part
            window = tile.window(frame)
            part = part if window is None else window.reshape(part.shape)
            rows, keys = tile.positions(frame)
            count[rows[:, None], keys] += part
            joins = tile.rows.start < until
            assert tile.joins == joins
            assert not joins or (tile.rows.stop == until and room is None)
            assert room is None or len(tile.rows) == 1 or part.numel() <= room
            until = tile.rows.stop
        at = i * len(expected) // len(entries)
        assert torch.equal(count, expected[at].float())


def draw_tensors(frame: Frame, width: int, d_value: int, dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(frame.queries)
    sizes = ((frame.queries, width), (frame.keys, width), (frame.keys, d_value))
    return [torch.randn(*frame.batch, *size, dtype=dtype).requires_grad_() for size in sizes]


@st.composite
def asked(draw: st.DrawFn) -> tuple[Frame, Any, Tensor | None]:
    """A frame, any mask over it or none, and any bias or none."""
    frame, mask = draw(framed())
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    shape = (*frame.batch, frame.queries, frame.keys)
    axes = [size if draw(st.booleans()) else 1 for size in shape]
    readable = torch.rand(axes[draw(st.integers(0, len(axes) - 2)) :], generator=generator) > 0.4
    kind = draw(st.sampled_from(["rule", "tensor", "complement", "function", "joined", "none"]))
    others = {
        "tensor": readable,
        "complement": ~mask,
        "function": lambda query, key: (query - key) % 3 == 1,
        "joined": mask & (lambda query, key: key > 2) & readable,
        "none": None,
    }
    bias = torch.randn(axes, generator=generator, dtype=torch.float64) * 3
    bias = bias.masked_fill(torch.rand(axes, generator=generator) < 0.2, -torch.inf)
    return frame, others.get(kind, mask), bias if draw(st.booleans()) else None


@given(asked(), st.sampled_from([(4, 4), (4, 7), (7, 4)]), st.booleans())
@settings(max_examples=200)
def test_readings_and_gradients_are_those_of_the_reference(
    request: tuple[Frame, Any, Tensor | None], widths: tuple[int, int], trained: bool
) -> None:
    frame, mask, bias = request
    tensors, how = draw_tensors(frame, *widths, torch.float64), {"mask": mask, "bias": bias}
    if bias is not None and trained:
        tensors.append(bias.requires_grad_())
    with regard.kernel("reference"):
        exact = regard.attend(*tensors[:3], **how)
    with regard.kernel("matmul" if bias is not None and trained else "sdpa"):
        reading = regard.attend(*tensors[:3], **how)
    compare("reading", reading, exact, 1e-12)
    expected = torch.autograd.grad(exact.sin().sum(), tensors)
    got = torch.autograd.grad(reading.sin().sum(), tensors)
    for gradient, exact_gradient in zip(got, expected, strict=True):
        compare("gradient", gradient, exact_gradient, 1e-12)


@given(asked())
@settings(max_examples=100)
def test_dropped_weights_are_0_or_scaled_and_gradients_know_which(
    request: tuple[Frame, Any, Tensor | None],
) -> None:
    frame, mask, bias = request
    query, key, _ = draw_tensors(frame, 4, 4, torch.float64)
    value = torch.eye(frame.keys, dtype=torch.float64).requires_grad_()
    leaves = [query, key, value]
    if bias is not None:
        leaves.append(bias.requires_grad_())
    with regard.kernel("matmul"):
        reading = regard.attend(query, key, value, mask=mask, bias=bias, dropout=0.5)
    weights = regard.look(query, key, mask=mask, bias=bias).weights()
    kept = (reading.detach() != 0) * 2.0
    exact = (weights * kept) @ value
    compare("reading", reading, exact, 1e-12)
    expected = torch.autograd.grad(exact.sin().sum(), leaves, allow_unused=True)
    for got, gradient in zip(
        torch.autograd.grad(reading.sin().sum(), leaves), expected, strict=True
    ):
        compare("gradient", got, gradient, 1e-12)


FUNCTIONS: dict[str, Any] = {
    "alibi": Alibi(3),
    "shut": lambda query, key: torch.where(key == query, -torch.inf, (key - query) / 7.0),
    "one head": lambda query, key: (query - key).abs() * -0.25,
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
@pytest.mark.parametrize("mask", [None, CAUSAL, CAUSAL & masks.padding([9, 4])])
@pytest.mark.parametrize("pinned", ["sdpa", "matmul", "reference", "blocked"])
def test_a_bias_by_positions_is_the_bias_of_these_positions(
    name: str, mask: Any, pinned: str
) -> None:
    tensors = draw_tensors(Frame((2, 3), 11, 9, CPU), 4, 5, torch.float64)
    rows, columns = torch.arange(11)[:, None], torch.arange(9)[None]
    function = FUNCTIONS[name]
    dense = getattr(function, "between", function)(rows, columns).double()
    with regard.kernel("reference"):
        exact = regard.attend(*tensors, mask=mask, bias=dense)
    with regard.kernel(pinned):
        reading = regard.attend(*tensors, mask=mask, bias=function)
    compare("reading", reading, exact, 1e-12)
    expected = torch.autograd.grad(exact.sin().sum(), tensors)
    for got, gradient in zip(
        torch.autograd.grad(reading.sin().sum(), tensors), expected, strict=True
    ):
        compare("gradient", got, gradient, 1e-12)
    weights = regard.look(*tensors[:2], mask=mask, bias=function).weights()
    compare("weights", weights, regard.look(*tensors[:2], mask=mask, bias=dense).weights(), 1e-12)


@pytest.mark.parametrize("mask", [None, masks.band(3, 1) & masks.padding([9, 4])])
@pytest.mark.parametrize("computed", [False, True], ids=["leaf", "computed"])
def test_what_a_bias_by_positions_learns_gets_its_gradient(mask: Any, computed: bool) -> None:
    tensors = draw_tensors(Frame((2, 3), 11, 9, CPU), 4, 5, torch.float64)
    relative = RelativeBias(3, buckets=8).double()
    factor = torch.ones((), dtype=torch.float64, requires_grad=True)
    twice = factor * 2  # its history is walked once only
    leaves = [*tensors, relative.weight, *([factor] if computed else [])]

    def bias(query: Tensor, key: Tensor) -> Tensor:
        return relative.between(query, key) * (twice if computed else 2)

    dense = relative(11, 9) * factor * 2
    exact = regard.attend(*tensors, mask=mask, bias=dense)
    expected = torch.autograd.grad(exact.sin().sum(), leaves)
    with regard.kernel("matmul"):
        reading = regard.attend(*tensors, mask=mask, bias=bias)
    compare("reading", reading, exact, 1e-12)
    for got, gradient in zip(
        torch.autograd.grad(reading.sin().sum(), leaves), expected, strict=True
    ):
        compare("gradient", got, gradient, 1e-12)


@pytest.mark.parametrize(
    ("bias", "error", "message"),
    [
        (lambda query, key: query, TypeError, "bias holds int64"),
        (lambda query, key: torch.zeros(3, 3), ShapeError, "bias covers 3 keys"),
        (lambda query, key: 1.0, TypeError, "is of type float"),
        ([1.0], TypeError, "bias is of type list"),
    ],
)
def test_a_function_that_gives_no_bias_is_refused(bias: Any, error: Any, message: str) -> None:
    single = torch.zeros(8, 4)
    with pytest.raises(error, match=message):
        regard.attend(single, single, single, bias=bias)


def test_half_of_the_weights_are_dropped_and_others_each_time() -> None:
    single = torch.zeros(1, 1, 200, 200)
    with regard.kernel("matmul"):
        readings = [
            regard.attend(single, single, torch.eye(200), mask=masks.band(20, 20), dropout=0.5)
            for _ in range(2)
        ]
    shares = [(reading != 0).sum() / (200 * 41 - 420) for reading in readings]
    assert all(0.45 < share < 0.55 for share in shares)
    assert not torch.equal(*readings)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize(
    "mask",
    [masks.band(4, 1) & masks.padding([9, 5]), masks.band(None, 3)],
    ids=["tables", "joined tiles"],
)
def test_half_precisions(dtype: torch.dtype, autocast: bool, mask: masks.Mask) -> None:
    frame = Frame((2, 2), 14, 11, CPU)
    tensors = draw_tensors(frame, 4, 4, torch.float32 if autocast else dtype)
    doubles = [tensor.detach().double().requires_grad_() for tensor in tensors]
    with regard.kernel("reference"):
        exact = regard.attend(*doubles, mask=mask)
    with (
        regard.kernel("sdpa"),
        torch.autocast("cpu", dtype, enabled=autocast and dtype != torch.float32),
    ):
        reading = regard.attend(*tensors, mask=mask)
    assert reading.dtype == dtype
    compare("reading", reading, exact, TOLERANCE[dtype])
    expected = torch.autograd.grad(exact.sin().sum(), doubles)
    for got, gradient in zip(
        torch.autograd.grad(reading.sin().sum(), tensors), expected, strict=True
    ):
        compare("gradient", got, gradient, 3 * TOLERANCE[dtype])


def test_keys_that_the_heads_share_are_read_as_they_are() -> None:
    torch.manual_seed(0)
    query = torch.randn(2, 2, 3, 9, 4, dtype=torch.float64)
    key, value = torch.randn(2, 2, 2, 1, 9, 4, dtype=torch.float64)
    mask = CAUSAL & masks.padding([9, 4])
    with regard.kernel("reference"):
        exact = regard.attend(query, key, value, mask=mask)
    with regard.kernel("sdpa"):
        compare("reading", regard.attend(query, key, value, mask=mask), exact, 1e-12)


def test_nan_in_padding_reaches_neither_reading_nor_gradients() -> None:
    tensors = draw_tensors(Frame((2, 1), 8, 8, CPU), 4, 4, torch.float64)
    with torch.no_grad():
        tensors[1][1, :, 5:], tensors[2][1, :, 5:] = torch.nan, torch.inf
    with regard.kernel("sdpa"):
        reading = regard.attend(*tensors, mask=CAUSAL & masks.padding([8, 5]))
    gradients = torch.autograd.grad(reading.sum(), tensors)
    assert all(each.isfinite().all() for each in (reading, *gradients))


@pytest.mark.parametrize("kernel", ["sdpa", "matmul", "blocked"])
@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize("spoilt", [torch.nan, -torch.inf])
def test_hidden_keys_are_found_in_gradients_and_no_inputs_are_summed(
    kernel: str, is_recorded: bool, spoilt: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "are_finite", None)
    tensors = draw_tensors(Frame((2, 1), 8, 8, CPU), 4, 4, torch.float64)
    mask, rate = CAUSAL & masks.padding([8, 5]), 0.1 if kernel == "matmul" else 0.0

    def gradients(*sides: Tensor) -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        with regard.kernel(kernel):
            reading = regard.attend(*sides, mask=mask, dropout=rate)
        return torch.autograd.grad(reading.sin().sum(), sides, create_graph=is_recorded)

    clean = gradients(*tensors)
    with torch.no_grad():
        tensors[1][1, :, 5:] = spoilt
    for name, gradient, exact in zip("qkv", gradients(*tensors), clean, strict=True):
        compare(name, gradient, exact, 1e-12)


@pytest.mark.parametrize("how", ["fused", "dropout", "trained bias", "bias by positions"])
@pytest.mark.parametrize("name", ["window", "causal and padding", "complement", "union"])
def test_second_gradients_are_those_of_the_reference(how: str, name: str) -> None:
    tensors = draw_tensors(Frame((2, 2), 12, 12, CPU), 4, 4, torch.float64)
    bias: Any = {"bias by positions": Alibi(2)}.get(how)
    union = masks.band(1, 0) | masks.padding([2])  # its tiles hold two runs of keys
    mask = {"window": masks.band(3, 2), "union": union}.get(name) or MASKS[name](12)
    leaves = list(tensors)
    if how == "trained bias":
        bias = torch.randn(2, 1, 12, 12, dtype=torch.float64).requires_grad_()
        leaves.append(bias)

    def second(reading: Tensor) -> tuple[Tensor, ...]:
        slopes = torch.autograd.grad(reading.sin().sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(slope.square().sum() for slope in slopes), leaves)

    rate = 0.5 if how == "dropout" else 0.0
    with regard.kernel("sdpa" if how in ("fused", "bias by positions") else "matmul"):
        torch.manual_seed(0)
        got = second(regard.attend(*tensors, mask=mask, bias=bias, dropout=rate))
        torch.manual_seed(0)
        value = torch.eye(12, dtype=torch.float64)
        dropped = regard.attend(*tensors[:2], value, mask=mask, dropout=rate) == 0
    if how == "dropout":
        weights = regard.look(*tensors[:2], mask=mask).weights()
        exact = weights.masked_fill(dropped, 0.0) * 2 @ tensors[2]
    else:
        with regard.kernel("reference"):
            exact = regard.attend(*tensors, mask=mask, bias=bias)
    for gradient, expected in zip(got, second(exact), strict=True):
        assert expected.any()
        compare("second gradient", gradient, expected, 1e-10)


def test_a_query_may_have_no_gradient_where_gradients_have_one() -> None:
    query, key, value = draw_tensors(Frame((1,), 12, 12, CPU), 4, 4, torch.float64)
    with regard.kernel("sdpa"):
        reading = regard.attend(query.detach(), key, value, mask=masks.band(3, 2))
    (slope,) = torch.autograd.grad(reading.sin().sum(), key, create_graph=True)
    assert torch.autograd.grad(slope.square().sum(), value)[0].any()


def test_entries_that_the_mask_alone_has_are_read() -> None:
    query = torch.randn(1, 2, 8, 4, dtype=torch.float64)
    for lengths in ([5, 5, 5], [5, 5, 4]):
        with regard.kernel("sdpa"):
            reading = regard.attend(query, query, query, mask=masks.padding(lengths) & CAUSAL)
        assert reading.shape == (3, 2, 8, 4)


def test_changed_lengths_do_not_change_gradients() -> None:
    tensors, lengths = (
        draw_tensors(Frame((2, 1), 8, 8, CPU), 4, 4, torch.float64),
        torch.tensor([8, 3]),
    )
    with regard.kernel("sdpa"):
        expected = torch.autograd.grad(
            regard.attend(*tensors, mask=masks.band(2, 2) & masks.padding(lengths)).sum(), tensors
        )
        reading = regard.attend(*tensors, mask=masks.band(2, 2) & masks.padding(lengths))
    lengths.fill_(8)
    for got, exact in zip(torch.autograd.grad(reading.sum(), tensors), expected, strict=True):
        assert torch.equal(got, exact)


def test_changed_documents_raise_before_gradients_that_are_recorded() -> None:
    tensors, ids = draw_tensors(Frame((1, 1), 8, 8, CPU), 4, 4, torch.float64), torch.arange(8) // 4
    with regard.kernel("sdpa"):
        reading = regard.attend(*tensors, mask=masks.documents(ids))
    ids.fill_(0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation: mask"):
        torch.autograd.grad(reading.sum(), tensors, create_graph=True)


@pytest.mark.parametrize(
    "mask",
    [
        masks.padding([1, 2, 3]) & CAUSAL,
        masks.documents(torch.tensor([[[0, 0, 1], [0, 1, 1]]])),
        masks.as_mask(lambda query, key: key <= query),
    ],
    ids=["more entries", "heads", "function"],
)
def test_masks_without_tiles_are_read_as_before(mask: masks.Mask) -> None:
    query = torch.randn(1, 2, 3, 4, dtype=torch.float64)
    if isinstance(mask, masks.Positional):
        assert mask.entries(Frame((1, 2), 3, 3, CPU)) is None
    with regard.kernel("reference"):
        exact = regard.attend(query, query, query, mask=mask.dense((1, 2), 3, 3))
    with regard.kernel("sdpa"):
        compare("reading", regard.attend(query, query, query, mask=mask), exact, 1e-12)


MASKS = {
    "window": lambda n: masks.band(16, 0),
    "causal and padding": lambda n: CAUSAL & masks.padding([n - 1, n // 2]),
    "prefix": lambda n: CAUSAL | masks.padding([n // 4, n // 8]),
    "documents": lambda n: masks.documents(torch.arange(n) // 50),
    "mixed documents": lambda n: masks.documents(torch.arange(n) % 7),
    "causal documents": lambda n: CAUSAL & masks.documents(torch.arange(n) // 300),
    "packed": lambda n: masks.packed([n // 8] * 8),
    "padding": lambda n: masks.padding([n, n // 3]),
    "padding of heads": lambda n: masks.padding([[n], [n // 3]]) & CAUSAL,
    "complement": lambda n: ~masks.band(16, 0),
    "function": lambda n: lambda query, key: (key <= query) & ((query - key) % 5 == 0),
    "none": lambda n: None,
}
OTHERS: dict[str, dict[str, Any]] = {
    "dropout": {"dropout": 0.1},
    "bias by positions": {"bias": Alibi(1)},
    "trained bias": {"bias": RelativeBias(1), "dropout": 0.1},
}


@pytest.mark.parametrize(
    ("name", "others"),
    [*((name, "alone") for name in MASKS), *product(["none", "prefix"], OTHERS)],
)
def test_memory_grows_with_the_length(
    name: str, others: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(division, "STRIP", 16)
    monkeypatch.setattr(tiled, "ROOM", 1 << 12)
    monkeypatch.setattr(tiled, "SHARE", 1)

    def peak(length: int) -> int:
        query, key, value = draw_tensors(Frame((2, 1), length, length, CPU), 4, 4, torch.float32)
        with Live() as live:
            reading = regard.attend(
                query, key, value, mask=MASKS[name](length), **OTHERS.get(others, {})
            )
            torch.autograd.grad(reading.sum(), (query, key, value))
        return live.peak

    assert peak(256) <= 4.5 * peak(64)


def test_short_rows_and_triangles_keep_the_single_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled, "AREA", 1 << 16)
    short, long = torch.ones(1, 1, 20, 4), torch.ones(1, 1, 300, 4)
    monkeypatch.setattr(tiled, "tiles", None)
    with regard.kernel("sdpa"):
        regard.attend(short, short, short, mask=masks.band(2, 2))
        regard.attend(long, long, long, mask=CAUSAL)
        with pytest.raises(TypeError, match="not callable"):
            regard.attend(long, long, long, mask=masks.band(2, 2))


def test_explanations_count_tiles_and_the_pairs_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(division, "STRIP", 128)
    monkeypatch.setattr(tiled, "SHARE", 0.75)
    long = torch.empty(1, 1, 1024, 4)

    def because(mask: Any, **how: Any) -> str:
        return str(regard.explain(long, long, mask=mask, **how)).splitlines()[0]

    assert because(CAUSAL).endswith("x 1024 keys on cpu")
    documents = masks.documents(torch.arange(1024) // 256)
    assert because(documents).endswith("in 4 tiles that hold 25.0% of the pairs")
    assert because(documents, dropout=0.1).startswith("matmul")
    assert because(documents, dropout=0.1).endswith("in 4 tiles that hold 25.0% of the pairs")
    assert because(CAUSAL, bias=Alibi(1)).endswith("in 8 tiles that hold 56.2% of the pairs")
    assert because(None, dropout=0.1).endswith("x 1024 keys on cpu")


@pytest.mark.parametrize("how", [{}, {"dropout": 0.1}, {"bias": Alibi(1)}])
def test_no_key_between_the_keys_of_a_union_is_read(
    how: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(division, "STRIP", 128)
    long = torch.empty(1, 1, 8192, 4)
    mask = masks.band(64, 0) | (masks.padding([64]) & masks.band(None, -1024))
    because = str(regard.explain(long, long, mask=mask, **how)).splitlines()[0]
    assert because.endswith("in 64 tiles that hold 3.0% of the pairs")


def random_mask(rows: Tensor, columns: Tensor) -> Tensor:
    return torch.rand(len(rows), columns.shape[-1]) > 0.5


def random_bias(rows: Tensor, columns: Tensor) -> Tensor:
    return torch.randn(len(rows), columns.shape[-1], dtype=torch.float64)


@pytest.mark.parametrize(
    "options",
    [{"mask": random_mask}, {"mask": CAUSAL & random_mask}, {"mask": CAUSAL, "bias": random_bias}],
    ids=["mask", "joined", "bias"],
)
def test_the_backward_pass_draws_the_random_numbers_of_functions_again(
    options: dict[str, Any],
) -> None:
    torch.manual_seed(0)
    query, key = (torch.randn(2, 160, 4, dtype=torch.float64) for _ in range(2))
    value = torch.randn(2, 160, 3, dtype=torch.float64, requires_grad=True)
    with regard.kernel("sdpa"):
        reading = regard.attend(query, key, value, **options)
    upstream = torch.randn_like(reading)
    # The reading is linear in the values.
    expected = (reading * upstream).sum().item()
    (gradient,) = torch.autograd.grad(reading, value, upstream)
    assert (gradient * value).sum().item() == pytest.approx(expected)


def test_a_bias_may_have_axes_before_those_that_the_mask_follows() -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(3, 9, 4, dtype=torch.float64) for _ in range(3))
    bias = torch.randn(2, 1, 9, 9, dtype=torch.float64).requires_grad_()
    mask = masks.padding([9, 4, 0])
    for trained in (bias, bias.detach()):
        reading = regard.attend(query, key, value, bias=trained, mask=mask)
        with regard.kernel("reference"):
            expected = regard.attend(query, key, value, bias=trained, mask=mask)
        assert torch.allclose(reading, expected)


def test_a_tensor_that_a_bias_reads_for_some_positions_alone_is_refused() -> None:
    near, far = (torch.ones((), dtype=torch.float64, requires_grad=True) for _ in range(2))

    def bias(rows: Tensor, columns: Tensor) -> Tensor:
        distances = (columns - rows).double()
        return distances * near + (distances * far if rows.max() > 8 else 0)

    sides = [torch.randn(16, 4, dtype=torch.float64) for _ in range(3)]
    reading = regard.attend(*sides, bias=bias, mask=CAUSAL)
    with pytest.raises(RuntimeError, match="its gradient would be lost"):
        reading.sum().backward()


def test_functions_of_positions_may_take_the_largest() -> None:
    query, key, value = (torch.randn(2, 200, 4) for _ in range(3))

    def bias(rows: Tensor, columns: Tensor) -> Tensor:
        return (columns - rows) / (1.0 + rows.max() - rows.min())

    def mask(rows: Tensor, columns: Tensor) -> Tensor:
        return columns <= rows.clamp(max=rows.max())

    regard.attend(query, key, value, bias=bias)
    reading = regard.attend(query, key, value, mask=mask)
    assert torch.allclose(reading, regard.attend(query, key, value, mask=CAUSAL), atol=1e-5)


@pytest.mark.parametrize("pairs", [1, 40, 90])
def test_the_tiles_of_a_function_hold_at_most_so_many_pairs(
    pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(division, "PAIRS", pairs)
    frame = Frame((1,), 30, 30, CPU)
    divided = tiles(masks.as_mask(lambda rows, columns: (rows - columns) % 5 == 0), frame)
    assert max(len(tile.rows) * tile.keys for tile in divided) <= max(pairs, frame.keys)
    assert [row for tile in divided for row in tile.rows] == list(range(frame.queries))


def test_another_thread_that_draws_changes_no_gradient_of_dropout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query, key = (torch.randn(40, 4, dtype=torch.float64) for _ in range(2))
    value = torch.randn(40, 3, dtype=torch.float64, requires_grad=True)
    weights = tiled._weights

    def interrupted(*arguments: Any) -> Any:
        torch.rand(1)  # as another thread would, between two tiles
        return weights(*arguments)

    monkeypatch.setattr(tiled, "ROOM", 64)
    monkeypatch.setattr(tiled, "_weights", interrupted)
    reading = regard.attend(query, key, value, mask=CAUSAL, dropout=0.3)
    (gradient,) = torch.autograd.grad(reading.sum(), value)
    # The reading is linear in the values.
    assert (gradient * value).sum().item() == pytest.approx(reading.sum().item())
