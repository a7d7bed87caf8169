"""Masks of additive scores: what spans hold of them, and linear memory for those that have none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.attention.kernels.live import Live
from torch import Tensor

import regard
from regard.attention.kernels import blocked
from regard.attention.kernels.additive import kernels
from regard.attention.kernels.additive.requests import is_written_out, rules_of
from regard.attention.kernels.additive.spans import bounds_of
from regard.attention.masks import band, causal, documents, packed, padding
from regard.attention.positions import RelativeBias
from regard.attention.scores import Additive
from regard.attention.shapes import Frame
from regard.attention.versions import ChangedError

LENGTH = 12
IDS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 4, 4, 4])
FRAME = Frame((2,), LENGTH, LENGTH, torch.device("cpu"))

EXACT = {
    "causal": causal(align="start"),
    "band beside the keys": band(-20, 25),
    "causal & padding": causal(align="start") & padding([9, 0]),
    "documents": documents(IDS),
    "documents of each entry": documents(torch.stack([IDS, IDS.flip(0)])),
    "documents of other keys": documents(IDS, IDS + 1),
    "documents & causal": documents(IDS) & causal(align="end"),
    "prefix": causal(align="start") | padding([4, 7]),
    "touching": band(2, -1) | band(0, 3),
    "nothing | band": padding([0, 0]) | band(1, 1),
}
BOUNDED = {
    "causal in documents, or first": packed([5, 7]) & causal(align="start") | padding([1, 0]),
    "mixed documents": documents(
        IDS[torch.randperm(LENGTH, generator=torch.Generator().manual_seed(0))]
    ),
    "apart": band(5, -4) | band(0, 0),
    "two documents": documents(IDS) & documents(IDS % 2),
    "band & function": band(1, 1) & (lambda q, k: (q + k) % 2 == 0),
}
UNBOUNDED = {
    "causal in documents, or first": packed([5, 7]) & causal(align="start") | padding([1, 0]),
    "function": lambda q, k: (q * k) % 3 != 1,
    "not": ~band(1, 2),
    "or all": band(1, 1) | ~band(2, 2),
}


@pytest.mark.parametrize("name", [*EXACT, *BOUNDED])
def test_bounds_hold_every_key_that_may_be_read(name: str) -> None:
    mask = (EXACT | BOUNDED)[name]
    bounds = bounds_of(mask, FRAME)
    assert bounds is not None
    columns = torch.arange(LENGTH)
    spans = (columns >= bounds.low[..., None]) & (columns < bounds.high[..., None])
    dense = mask.dense((2,), LENGTH, LENGTH)
    assert bounds.exact == (name in EXACT)
    if bounds.exact:
        assert (spans == dense).all()
    else:
        assert (spans | ~dense).all()


@pytest.mark.parametrize("name", EXACT)
def test_exact_bounds_need_nothing_else(name: str) -> None:
    rules = rules_of(EXACT[name], FRAME)
    assert rules.low is not None
    assert (rules.asking, rules.mask) == (None, None)
    assert not is_written_out(EXACT[name], FRAME)


def _random_inputs(length: int) -> tuple[Additive, list[Tensor]]:
    torch.manual_seed(1)
    tensors = [torch.randn(1, length, 4).requires_grad_() for _ in range(3)]
    return Additive(4, 4, 8), tensors


@pytest.mark.parametrize("room", [1, 40, 1 << 22])
@pytest.mark.parametrize("name", [*EXACT, *BOUNDED, *UNBOUNDED])
def test_the_kernel_agrees_with_the_equations(
    name: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "ROOM", room)
    monkeypatch.setattr(blocked, "LOW", 2)
    score, tensors = _random_inputs(LENGTH)
    bias = torch.randn(LENGTH, LENGTH).masked_fill(torch.rand(LENGTH, LENGTH) < 0.2, -torch.inf)
    leaves = [*tensors, *score.parameters(), bias.requires_grad_()]
    results = []
    for kernel in ("cpu", "reference"):
        with regard.kernel(kernel):
            mask = (EXACT | BOUNDED | UNBOUNDED)[name]
            reading = regard.attend(*tensors, score=score, mask=mask, bias=bias)
        results.append([reading, *torch.autograd.grad(reading.sin().sum(), leaves)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("room", [40, 1 << 22])
@pytest.mark.parametrize("name", [*EXACT, "none", "tensor", "function"])
def test_a_bias_by_positions_is_called_for_some_queries_and_the_keys_that_they_reach(
    name: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "ROOM", room)
    score, tensors = _random_inputs(LENGTH)
    relative, pairs = RelativeBias(1, buckets=4), []

    def bias(query: Tensor, key: Tensor) -> Tensor:
        pairs.append(query.numel() * key.numel())
        return torch.where(query == key + 1, -torch.inf, relative.between(query, key))

    partner_masks = {
        "none": None,
        "tensor": torch.rand(2, LENGTH, LENGTH) > 0.3,
        "function": lambda query, key: key != query + 1,
    }
    mask = (EXACT | partner_masks)[name]
    positions = torch.arange(LENGTH)
    leaves = [*tensors, *score.parameters(), relative.weight]
    results = []
    for kernel, numbers in (("cpu", bias), ("reference", bias(positions[:, None], positions))):
        with regard.kernel(kernel):
            pairs.clear()
            reading = regard.attend(*tensors, score=score, mask=mask, bias=numbers)
            assert room > 40 or all(count <= 48 for count in pairs)
        results.append([reading, *torch.autograd.grad(reading.sin().sum(), leaves)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def _peak(length: int, mask: Any) -> int:
    score, tensors = _random_inputs(length)
    with Live() as live, regard.kernel("cpu"):
        regard.attend(*tensors, score=score, mask=mask).sum().backward()
    return live.peak


@pytest.mark.parametrize(
    "make",
    [
        lambda n: causal(align="end") & padding([n // 2]),
        lambda n: band(64, 0),
        lambda n: documents(torch.arange(n) // (n // 8)),
        lambda n: causal(align="start") | padding([n // 4]),
        lambda n: ~band(64, 0),
        lambda n: lambda q, k: k <= q,
    ],
    ids=["causal & padding", "band", "documents", "prefix", "not", "function"],
)
def test_memory_grows_with_the_length(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "ROOM", 1 << 11)
    short, long = 128, 512
    assert _peak(long, make(long)) < 4.5 * _peak(short, make(short))


def test_a_mask_that_is_changed_before_its_gradients_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels, "ROOM", 1)
    score, tensors = _random_inputs(LENGTH)
    allowed = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    with regard.kernel("cpu"):
        reading = regard.attend(*tensors, score=score, mask=lambda q, k: allowed[q, k])
    allowed[0] = False
    with pytest.raises(ChangedError):
        reading.sum().backward()
