"""Masks: each rule against its definition, windows against the whole, `&` and `|`."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import regard
from regard.attention import masks
from regard.attention.kernels.choose import KERNELS
from regard.attention.shapes import Frame, ShapeError

IDS = torch.tensor([[0, 0, 1, 1, 2], [0, 1, 1, 1, 1]])
EVERY_KERNEL = pytest.mark.parametrize(
    "kernel", [name for name in KERNELS if name not in ("cpu", "triton")]
)
EVERY_MASK = pytest.mark.parametrize(
    "mask",
    [
        masks.causal(align="start"),
        masks.causal(align="end"),
        masks.band(1, 2),
        masks.band(None, 1, align="end"),
        masks.band(2, None),
        masks.band(None, None),
        masks.padding([3, 6]),
        masks.documents(IDS, torch.tensor([0, 1, 1, 0, 2, 2])),
        masks.causal(align="end") & masks.padding([3, 0]),
        masks.band(0, 0) | (torch.arange(6) < 2),
        masks.as_mask(torch.rand(2, 1, 5, 6, generator=torch.Generator().manual_seed(0)) > 0.5),
        masks.as_mask(lambda row, column: (row + column) % 2 == 0),
    ],
    ids=lambda mask: type(mask).__name__,
)


@pytest.mark.parametrize(("align", "shift"), [("start", 0), ("end", 3)])
def test_a_band_counts_both_ends_in(align: Any, shift: int) -> None:
    dense = masks.band(1, 2, align=align).dense((), 3, 6)
    for row in range(3):
        for column in range(6):
            assert dense[row, column] == (-1 <= column - (row + shift) <= 2)


def test_causal_by_both_ends() -> None:
    start, end = (
        masks.causal(align=align).dense((), 2, 4).int().tolist() for align in ("start", "end")
    )  # type: ignore[arg-type]
    assert start == [[1, 0, 0, 0], [1, 1, 0, 0]]
    assert end == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert masks.causal(align="end").dense((), 4, 2).int().tolist() == [
        [0, 0],
        [0, 0],
        [1, 0],
        [1, 1],
    ]


def test_lengths_follow_the_leading_batch_axes() -> None:
    mask = masks.padding(torch.tensor([1, 3]))
    dense = mask.dense((2, 8), 4, 3)
    assert dense.shape == (2, 1, 4, 3)
    assert dense[0, 0].int().tolist() == [[1, 0, 0]] * 4
    assert dense[1, 0].all()
    assert masks.padding(torch.tensor(2)).dense((2, 8), 1, 3).sum() == 2
    assert masks.padding([[1], [2]]).dense((2, 8), 1, 3).shape == (2, 1, 1, 3)


def test_documents_follow_the_leading_batch_axes() -> None:
    dense = masks.documents(IDS).dense((2, 8), 5, 5)
    assert dense.shape == (2, 1, 5, 5)
    assert dense[0, 0, 2].int().tolist() == [0, 0, 1, 1, 0]


@EVERY_MASK
def test_any_window_is_a_part_of_the_whole(mask: masks.Mask) -> None:
    frame = Frame((2, 3), 5, 6, torch.device("cpu"))
    rows, columns = torch.tensor([4, 1]), torch.tensor([0, 5, 3])
    dense = mask.dense(*frame[:3]).expand(2, 3, 5, 6)
    window = mask.window(rows, columns, frame).expand(2, 3, 2, 3)
    assert torch.equal(window, dense[..., rows, :][..., columns])
    assert mask.window(rows[:0], columns[:0], frame).numel() == 0


@EVERY_MASK
def test_attending_under_a_mask_is_attending_under_its_dense_form(mask: masks.Mask) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, length, 4) for length in (5, 6, 6))
    ruled, look = regard.read(query, key, value, mask=mask)
    dense = mask.dense((2, 3), 5, 6)
    assert torch.allclose(ruled, regard.attend(query, key, value, mask=dense), atol=1e-6)
    assert torch.equal(look.weights() > 0, dense.expand(2, 3, 5, 6))
    weights = look.weights(rows=range(1, 4), columns=slice(2, None))
    assert torch.allclose(weights, look.weights()[..., 1:4, 2:], atol=1e-6)


def test_joining_masks_tensors_and_functions() -> None:
    causal, tensor = masks.causal(align="start"), torch.rand(4, 4) > 0.5
    triangle = torch.ones(4, 4, dtype=torch.bool).tril()
    for combined_mask in (causal & tensor, tensor & causal, causal & (lambda row, column: tensor)):
        assert torch.equal(combined_mask.dense((), 4, 4), triangle & tensor)
    for either in (causal | tensor, tensor | causal):
        assert torch.equal(either.dense((), 4, 4), triangle | tensor)


@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        (torch.ones(4, 6, dtype=torch.bool), ShapeError, r"mask covers 6 keys, the memory holds 7"),
        (torch.ones(4, 6, dtype=torch.bool), ShapeError, r"shape \[..., 4, 7\]"),
        (torch.ones(3, 7, dtype=torch.bool), ShapeError, "mask covers 3 queries, there are 4"),
        (torch.ones(3, 4, 7, dtype=torch.bool), ShapeError, "do not broadcast"),
        (torch.ones(4, 7), TypeError, "True = may be read"),
        (masks.padding([1, 2, 3]), ShapeError, "lengths has batch axes"),
        (masks.padding(torch.ones(2, 1, 1, 1).int()), ShapeError, "lengths has 4 batch axes"),
        (masks.documents(IDS), ShapeError, "query_ids covers 5 positions, there are 4"),
        (lambda row, column: row + column, TypeError, "pass booleans"),
    ],
)
def test_a_mask_that_does_not_fit(mask: Any, error: type[Exception], message: str) -> None:
    query, key, value = torch.ones(2, 4, 3), torch.ones(2, 7, 3), torch.ones(2, 7, 3)
    with pytest.raises(error, match=message):
        regard.attend(query, key, value, mask=mask)


@pytest.mark.parametrize("lengths", [[5, 9], torch.tensor([5, 9]), 9])
@pytest.mark.parametrize("call", [regard.read, regard.attend, regard.look])
def test_a_length_beyond_the_keys_is_refused(lengths: Any, call: Any) -> None:
    query, key = torch.ones(2, 4, 3), torch.ones(2, 5, 3)
    values = () if call is regard.look else (key,)
    message = "a length is 9, the memory holds 5 keys: pass lengths of at most 5"
    for mask in (masks.padding(lengths), masks.causal(align="end") & masks.padding(lengths)):
        with pytest.raises(ShapeError, match=message):
            call(query, key, *values, mask=mask)
        with pytest.raises(ShapeError, match=message):
            mask.dense((2,), 4, 5)


@pytest.mark.parametrize("lengths", [[-1, 3], torch.tensor([[2], [-1]]), -1])
def test_a_negative_length_is_refused(lengths: Any) -> None:
    with pytest.raises(ValueError, match="a length is -1: pass lengths of at least 0"):
        masks.padding(lengths)


@pytest.mark.parametrize("heads", [1, 3, 7])  # with 7 it would be a length for each head
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_an_attention_mask_is_not_taken_for_lengths(heads: int, dtype: torch.dtype) -> None:
    attention_mask = (torch.arange(7) < torch.tensor([[7], [4]])).to(dtype)
    query = key = torch.randn(2, heads, 7, 3)
    with pytest.raises(ShapeError, match=r"0 and 1 alone, for 7 keys: .* attention_mask.sum\(-1\)"):
        regard.attend(query, key, key, mask=masks.padding(attention_mask))
    mask = masks.padding(attention_mask.sum(-1))
    assert torch.equal(mask.dense((2, heads), 7, 7)[:, 0, 0], attention_mask.bool())


def test_lengths_of_one_key_for_each_head_are_lengths() -> None:
    query, key = torch.randn(2, 3, 1, 4), torch.randn(2, 3, 5, 4)
    lengths = torch.tensor([[1, 0, 1], [1, 1, 1]])
    weights = regard.look(query, key, mask=masks.padding(lengths)).weights()
    assert torch.equal(weights[..., 0, 0], lengths.float())
    first_weights = regard.look(query, key[:, :, :1], mask=masks.padding(lengths)).weights()
    assert torch.equal(first_weights[..., 0, 0], lengths.float())


def test_lengths_that_a_transform_hides_are_not_read() -> None:
    """Ranges are not checked there: all keys where a length is above them, none where it is below 0."""
    query, key = torch.randn(3, 4, 2), torch.randn(3, 5, 2)

    def reading(query: Tensor, key: Tensor, length: Tensor) -> Tensor:
        return regard.attend(query, key, key, mask=masks.padding(length))

    lengths = torch.tensor([9, -1, 2])
    expected = reading(query, key, torch.tensor([5, 0, 2]))
    assert torch.allclose(torch.vmap(reading)(query, key, lengths), expected, atol=1e-6)
    compiled = torch.compile(reading, backend="eager", fullgraph=True)
    assert torch.allclose(compiled(query, key, lengths), expected, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: masks.band(True, 0),
        lambda: masks.band(0, False),
        lambda: masks.padding([1.5]),
        lambda: masks.padding(torch.tensor([True, False])),
        lambda: masks.documents(torch.tensor([0.5, 1.0])),
        lambda: masks.documents(torch.tensor([0, 1]), torch.tensor([0.5, 1.0])),
        lambda: masks.band(1.5, 0),
        lambda: masks.band(1, 0.5),
    ],
)
def test_what_kernels_would_round_is_refused(make: Any) -> None:
    with pytest.raises(TypeError, match=r"pass (a )?whole number"):
        make()


def test_an_alignment_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match='pass "start" or "end"'):
        masks.causal(align="middle")  # type: ignore[arg-type]


@pytest.mark.parametrize("far", [2**40, 2**63 - 1, 10**30])
@pytest.mark.parametrize("align", ["start", "end"])
@pytest.mark.parametrize(("queries", "keys"), [(4, 7), (7, 4)])
def test_bounds_beyond_all_positions_stay_small_numbers(
    far: int, align: Any, queries: int, keys: int
) -> None:
    frame, columns = Frame((), queries, keys, torch.device("cpu")), torch.arange(keys)
    for bounds in ((far, 0), (0, far), (far, -1), (-2, far), (far, far), (-far, far), (far, -far)):
        mask = masks.band(*bounds, align=align)
        low, high = (side.unsqueeze(-1) for side in mask.spans(frame))
        assert torch.equal((columns >= low) & (columns < high), mask.dense((), queries, keys))
        assert max(int(side.abs().max()) for side in (low, high)) < 2**31


@EVERY_KERNEL
def test_a_bound_beyond_64_bits_is_no_bound(kernel: str) -> None:
    query, key = torch.randn(2, 1, 4, 3).unbind()
    with regard.kernel(kernel):
        reading = regard.attend(query, key, key, mask=masks.band(10**30, 0))
        assert torch.allclose(reading, regard.attend(query, key, key, mask="causal"), atol=1e-6)


@pytest.mark.parametrize(("keys_before", "keys_after"), [(1.5, 0), (0, "2")])
def test_bounds_are_whole_numbers(keys_before: Any, keys_after: Any) -> None:
    with pytest.raises(TypeError, match="pass a whole number, or None for no bound"):
        masks.band(keys_before, keys_after)


@EVERY_KERNEL
def test_one_length_serves_queries_without_batch_axes(kernel: str) -> None:
    query, key = torch.randn(4, 3), torch.randn(6, 3)
    with regard.kernel(kernel):
        reading = regard.attend(query, key, key, mask=masks.padding(2))
        assert torch.allclose(reading, regard.attend(query, key[:2], key[:2]), atol=1e-6)


@EVERY_KERNEL
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_lengths_under_vmap(kernel: str) -> None:
    query, key = torch.randn(3, 2, 4, 8), torch.randn(3, 2, 6, 8)
    lengths = torch.tensor([6, 2, 0])
    with regard.kernel(kernel):
        mapped = torch.func.vmap(lambda q, k, n: regard.attend(q, k, k, mask=masks.padding(n)))
        actual = mapped(query, key, lengths)
        expected = regard.attend(query, key, key, mask=masks.padding(lengths))
    assert torch.allclose(actual, expected, atol=1e-6)


class Aligned(nn.Module):
    """Attention under a causal mask that ends where the keys do."""

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return regard.attend(query, key, key, mask=masks.causal(align="end"))


LENGTHS = [(4, 6), (5, 9), (7, 4), (3, 3)]


def agrees(served: Any) -> None:
    for queries, keys in LENGTHS:
        query, key = torch.randn(2, queries, 8), torch.randn(2, keys, 8)
        assert torch.allclose(served(query, key), Aligned()(query, key), atol=1e-6)


def test_the_end_of_keys_in_an_exported_graph_of_any_lengths() -> None:
    lengths = {"query": {1: Dim("queries", max=99)}, "key": {1: Dim("keys", max=99)}}
    tensors = torch.randn(2, 4, 8), torch.randn(2, 6, 8)
    agrees(torch.export.export(Aligned(), tensors, dynamic_shapes=lengths).module())


def test_the_end_of_keys_in_a_traced_graph_of_any_lengths() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of comparisons that are recorded, and of trace itself
        agrees(torch.jit.trace(Aligned(), (torch.randn(2, 3, 8), torch.randn(2, 3, 8))))


def test_the_end_of_keys_in_one_compiled_graph() -> None:
    torch._dynamo.reset()
    agrees(torch.compile(Aligned(), fullgraph=True, backend="eager"))


@pytest.mark.parametrize("name", ["causal", "band", "padding", "documents", "packed"])
def test_a_function_of_masks_that_was_not_called(name: str) -> None:
    x, function = torch.zeros(2, 5, 4), getattr(masks, name)
    with pytest.raises(TypeError, match=rf"regard.masks.{name}: call it, .* regard.masks.{name}\("):
        regard.attend(x, x, x, mask=function)
    with pytest.raises(TypeError, match="call it"):
        masks.band(1, 1) & function


@pytest.mark.parametrize("lengths", ["5", ["a"], [[1], [1, 2]], None])
def test_lengths_that_are_no_numbers(lengths: Any) -> None:
    for make in (masks.padding, masks.packed, masks.documents):
        with pytest.raises(TypeError, match="pass a tensor or a list of whole numbers"):
            make(lengths)


@pytest.mark.parametrize(
    "combined_mask", [lambda m: m, lambda m: m & masks.band(1, 1), lambda m: ~m]
)
@pytest.mark.parametrize("name", ["padding", "documents"])
def test_numbers_on_meta(name: str, combined_mask: Any) -> None:
    numbers = torch.zeros(5, dtype=torch.int64, device="meta")
    x = torch.zeros(5, 5, 4)
    with pytest.raises(ValueError, match=r"on meta, where tensors hold no numbers: pass .* on cpu"):
        regard.attend(x, x, x, mask=combined_mask(getattr(masks, name)(numbers)))
    with pytest.raises(ValueError, match="on meta, where tensors hold no numbers"):
        masks.packed(numbers)


def test_a_complement_is_checked() -> None:
    x = torch.zeros(2, 5, 4)
    with pytest.raises(ShapeError, match="a length is 9"):
        regard.attend(x, x, x, mask=~masks.padding([2, 9]))


def test_parts_are_now_called_rules() -> None:
    mask = masks.causal(align="start") & masks.padding([3])
    with pytest.deprecated_call(match="rules"):
        assert mask.parts() == mask.rules()


def test_the_ends_of_a_reach_have_their_old_names_too() -> None:
    reach = masks.causal(align="start").reach(range(1, 3), Frame((), 4, 4, torch.device("cpu")))
    with pytest.deprecated_call(match="hull"):
        assert reach.some == reach.hull == range(3)
    with pytest.deprecated_call(match="common"):
        assert reach.every == reach.common == range(2)
