"""Sentences packed on one axis read what they read alone, and pairs across them are not computed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.agreement.comparing import compare
from torch import Tensor

import regard
from regard.attention import masks, normalisers, scores
from regard.attention.kernels import blocked
from regard.attention.kernels.additive.cpu.operator import additive
from regard.attention.kernels.additive.requests import rules_of
from regard.attention.kernels.choose import KERNELS
from regard.attention.kernels.request import ask
from regard.attention.masks import tiles as division
from regard.attention.shapes import Frame, ShapeError

LENGTHS = [3, 1, 0, 5, 2]
KEY_LENGTHS = [2, 4, 3, 0, 5]
CAUSAL = masks.causal(align="start")
EVERY_KERNEL = pytest.mark.parametrize("kernel", [name for name in KERNELS if name != "triton"])


def draw(*shapes: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(s, dtype=torch.float64).requires_grad_() for s in shapes]


def score_for(kernel: str) -> Any:
    torch.manual_seed(2)
    return scores.Additive(6, 6, 5).double() if kernel == "cpu" else None


def alone(lengths: list[int], keys: list[int], tensors: list[Tensor], **how: Any) -> Tensor:
    """Every sentence a request of its own, on the reference."""
    query, key, value = tensors
    sentences = zip(
        query.split(lengths, -2), key.split(keys, -2), value.split(keys, -2), strict=True
    )
    with regard.kernel("reference"):
        return torch.cat([regard.attend(*part, **how) for part in sentences], -2)


@EVERY_KERNEL
@pytest.mark.parametrize("rule", [None, CAUSAL, masks.band(1, 1)], ids=["all", "causal", "band"])
def test_a_sentence_reads_what_it_reads_alone(kernel: str, rule: masks.Mask | None) -> None:
    tensors = draw((2, 11, 6), (2, 11, 6), (2, 11, 3))
    mask, score = masks.packed(LENGTHS), score_for(kernel)
    expected = alone(LENGTHS, LENGTHS, tensors, mask=rule, score=score)
    with regard.kernel(kernel):
        actual = regard.attend(*tensors, mask=mask if rule is None else rule & mask, score=score)
    compare("reading", actual, expected, 1e-12)
    theirs = torch.autograd.grad(expected.sin().sum(), tensors)
    for exact, local_value in zip(
        theirs, torch.autograd.grad(actual.sin().sum(), tensors), strict=True
    ):
        compare("gradient", local_value, exact, 1e-12)


@EVERY_KERNEL
def test_queries_of_one_packing_read_keys_of_another(kernel: str) -> None:
    tensors = draw((3, 11, 6), (1, 14, 6), (1, 14, 3))
    bias = torch.randn(11, 14, dtype=torch.float64)
    mask, score = masks.packed(LENGTHS, KEY_LENGTHS), score_for(kernel)
    with regard.kernel("reference"):
        dense = mask.dense((3,), 11, 14)
        expected = regard.attend(*tensors, mask=dense, score=score, bias=bias)
    with regard.kernel(kernel):
        actual = regard.attend(*tensors, mask=mask, score=score, bias=bias)
    compare("reading", actual, expected, 1e-12)
    assert not actual[:, 4:9].any()  # a sentence without keys
    theirs = torch.autograd.grad(expected.sin().sum(), tensors)
    for exact, local_value in zip(
        theirs, torch.autograd.grad(actual.sin().sum(), tensors), strict=True
    ):
        compare("gradient", local_value, exact, 1e-12)


@pytest.mark.parametrize("lengths", [[3, 0, 4], [3, 4]])
@pytest.mark.parametrize("kernel", ["sdpa", "matmul"])
def test_a_sentence_of_nothing_does_not_widen_the_others(kernel: str, lengths: list[int]) -> None:
    single = torch.ones(2, 7, 4)
    with torch.autocast("cpu", torch.bfloat16), regard.kernel(kernel):
        reading = regard.attend(single, single, single, mask=masks.packed(lengths))
        double = regard.attend(*[single.double()] * 3, mask=masks.packed(lengths))
    assert (reading.dtype, double.dtype) == (torch.bfloat16, torch.float64)


def test_a_padded_batch_reads_the_same() -> None:
    lengths = torch.tensor([4, 2, 5])
    packs = draw((8, 11, 6), (8, 11, 6), (8, 11, 3))  # heads first
    padded = []
    for tensor in packs:
        sentences = [part.transpose(0, 1) for part in tensor.split(lengths.tolist(), -2)]
        stacked = torch.nn.utils.rnn.pad_sequence(sentences, batch_first=True)
        padded.append(stacked.transpose(1, 2))
    padded_reading = regard.attend(*padded, mask=masks.padding(lengths) & CAUSAL)
    packed = regard.attend(*packs, mask=masks.packed(lengths) & CAUSAL)
    for packed_sentence, sentence in zip(
        packed.split(lengths.tolist(), -2), padded_reading, strict=True
    ):
        compare("reading", packed_sentence, sentence[:, : packed_sentence.shape[-2]], 1e-12)


def test_it_is_the_mask_of_documents() -> None:
    cumulative = torch.tensor([0, 3, 4, 9])
    ids = torch.tensor([0, 0, 0, 1, 2, 2, 2, 2, 2])
    frame = Frame((), 9, 9, torch.device("cpu"))
    mask = masks.packed(cumulative.diff())
    assert torch.equal(mask.dense((), 9, 9), masks.documents(ids).dense((), 9, 9))
    for rows in (range(3), range(2, 5), range(4, 9), range(0)):
        bound, dense = mask.reach(rows, frame), mask.dense((), 9, 9)[rows.start : rows.stop]
        read = dense.any(0).nonzero().flatten().tolist()
        assert not read or (min(read), max(read)) == (bound.hull.start, bound.hull.stop - 1)
        assert dense[:, list(bound.common)].all()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: masks.packed([3, -1]), ValueError, "negative"),
        (lambda: masks.packed([3.5, 1.5]), ValueError, "one whole number"),
        (lambda: masks.packed([3, 1], [4]), ValueError, "2 lengths and 1 key_lengths"),
        (lambda: masks.packed([3, 1]), ShapeError, "lengths add up to 4, there are 5 queries"),
        (lambda: masks.packed([5], [4]), ShapeError, "key_lengths add up to 4, there are 5 keys"),
    ],
)
def test_lengths_that_mean_nothing(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        regard.attend(torch.ones(5, 2), torch.ones(5, 2), torch.ones(5, 2), mask=make())


def test_tiles_are_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(division, "FEW", 1)
    frame = Frame((), 11, 11, torch.device("cpu"))
    for mask, triangle in ((masks.packed(LENGTHS), False), (masks.packed(LENGTHS) & CAUSAL, True)):
        tiles = [(tile.rows, tile.columns, tile.triangle) for tile in division.tiles(mask, frame)]
        spans = [range(3), range(3, 4), range(4, 9), range(9, 11)]
        assert tiles == [(span, span, triangle and len(span) > 1) for span in spans]


@pytest.mark.parametrize(
    ("mask", "share"),
    [
        (masks.packed([64] * 16), 1 / 16),
        (masks.documents(torch.arange(1024) // 64), 1 / 16),
        (masks.band(31, 32), 1 / 7),
        (CAUSAL, 0.6),
        (masks.padding([100]), 0.1),
    ],
    ids=["packed", "documents", "band", "causal", "padding"],
)
def test_blocks_pass_over_what_nobody_may_read(
    mask: masks.Mask, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = torch.zeros(1, 1024, 8)
    spans = blocked.spans_of(ask(long, long, mask=mask, normaliser=normalisers.Sparsemax()), 128)
    sizes = [(s.rows.stop - s.rows.start) * (s.columns.stop - s.columns.start) for s in spans]
    assert sum(sizes) <= 1024 * 1024 * share
    rows = [row for s in spans for row in range(s.rows.start, s.rows.stop)]
    assert rows == list(range(1024))


def test_a_function_of_the_callers_sees_every_key() -> None:
    long = torch.zeros(1, 1024, 8)
    for options in ({"normaliser": torch.sigmoid}, {"score": lambda q, k: q @ k.mT}):
        spans = blocked.spans_of(ask(long, long, mask=masks.packed([64] * 16), **options), 256)
        assert all(s.columns == slice(0, 1024) for s in spans)


@pytest.mark.parametrize(
    ("mask", "reads"),
    [
        (masks.packed([8, 8], [256, 256]), slice(0, 8)),
        (masks.band(None, 200), slice(0, 16)),
        (masks.padding([256]), slice(0, 16)),
    ],
    ids=["packed", "band", "padding"],
)
def test_the_compiled_loops_never_visit_what_nobody_may_read(
    mask: masks.Mask, reads: slice
) -> None:
    """Keys of a block that is not visited cannot spoil anything: here they are all NaN."""
    torch.manual_seed(0)
    a, c, w, v = torch.randn(1, 16, 8), torch.randn(1, 512, 8), torch.randn(8), torch.randn(512, 3)
    c[:, 256:] = torch.nan
    v[256:] = torch.nan
    leaves = [tensor.requires_grad_() for tensor in (a, c, w, v)]
    rules = rules_of(mask, Frame((1,), 16, 512, torch.device("cpu")))
    assert rules.mask is None
    reading = additive(*leaves, None, rules.low, rules.high, None, None, None, 0.0, 1.0)[0]
    assert reading[:, reads].isfinite().all()
    upstream = torch.zeros_like(reading)
    upstream[:, reads] = 1
    slopes = torch.autograd.grad(reading, leaves, upstream)
    assert slopes[0][:, reads].isfinite().all()
    if reads == slice(0, 16):
        assert all(slope.isfinite().all() for slope in slopes)


@EVERY_KERNEL
@pytest.mark.parametrize("keys", [0, 3])
def test_sentences_without_any_query(kernel: str, keys: int) -> None:
    query, key = torch.randn(2, 0, 6), torch.randn(2, keys, 6)
    mask = masks.packed([0, 0], [0, keys])
    if kernel in ("sdpa", "matmul", "cpu"):
        pytest.skip("an axis has size 0")
    with regard.kernel(kernel):
        assert regard.attend(query, key, key, mask=mask).shape == (2, 0, 6)
        either = mask | masks.documents(torch.zeros(0).long(), torch.zeros(keys).long())
        assert regard.attend(query, key, key, mask=either).shape == (2, 0, 6)
