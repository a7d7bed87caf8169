"""One operator for autograd, torch.compile, vmap; refusals; dispatch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import regard
from regard.attention import masks, normalisers, scores
from regard.attention.kernels.additive.cpu.operator import additive, additive_backward
from regard.attention.kernels.choose import KernelRefusedError


def _tensors(*batch: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    torch.manual_seed(3)
    shapes = ((*batch, 5, 6), (*batch, 9, 6), (6,), (*batch, 9, 3), (5, 9))
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


def _read(a: Tensor, c: Tensor, w: Tensor, v: Tensor, bias: Tensor, cap: float = 0.0) -> Tensor:
    return additive(a, c, w, v, bias, None, None, None, None, None, cap, 0.7)[0]


@pytest.mark.parametrize("cap", [0.0, 0.8])
def test_gradients_are_those_of_differences(cap: float) -> None:
    assert torch.autograd.gradcheck(lambda *given: _read(*given, cap), _tensors(2))


def test_gradients_with_spans_and_documents() -> None:
    a, c, w, v, _ = _tensors(2)
    low, high = torch.tensor([0, 1, 2, 9, 4]), torch.tensor([[9], [6]])
    asking, stored = torch.tensor([0, 0, 1, 1, 1]), torch.arange(9) % 2

    def read(*given: Tensor) -> Tensor:
        return additive(*given, None, low, high.expand(2, 5), asking, stored, None, 0.0, 1.0)[0]

    assert torch.autograd.gradcheck(read, (a, c, w, v))


def test_the_operator_keeps_the_rules_of_torch_library() -> None:
    tensors = _tensors(2, dtype=torch.float32)
    arguments = (*tensors, None, None, None, None, torch.rand(5, 9) > 0.3, 0.0, 1.0)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(additive, arguments, test_utils=checks)


def test_numpy_never_sees_the_weight_itself() -> None:
    """FSDP frees weights that it had put together; a storage that numpy has seen cannot be freed so."""
    a, c, _, v, bias = _tensors()
    w = torch.randn(32, dtype=torch.float64).requires_grad_()  # whole groups, which need no padding
    a, c = (torch.randn(*t.shape[:-1], 32, dtype=t.dtype) for t in (a, c))
    _read(a, c, w, v, bias).sum().backward()
    assert w.untyped_storage().resizable()


@pytest.mark.parametrize(
    "mapped",
    [
        (0, 0, None, 0, None),
        (None, 0, None, None, None),
        (0, None, None, None, None),
        (None, None, None, None, 0),
    ],
)
def test_vmap_is_a_loop(mapped: tuple[int | None, ...]) -> None:
    plain = [t.detach() for t in _tensors()]
    stacked = [
        t if at is None else torch.stack([t, 2 * t, -t])
        for t, at in zip(plain, mapped, strict=True)
    ]
    for t in stacked:
        t.requires_grad_()
    alone = [
        [t if at is None else t[k] for t, at in zip(stacked, mapped, strict=True)] for k in range(3)
    ]
    assert torch.allclose(
        torch.vmap(_read, mapped)(*stacked), torch.stack([_read(*one) for one in alone])
    )
    mixture = torch.randn(3, 5, 3, dtype=torch.float64)
    together = torch.autograd.grad(torch.vmap(_read, mapped)(*stacked), stacked, mixture)
    looped = torch.stack([_read(*one) for one in alone])
    one_by_one = torch.autograd.grad(looped, stacked, mixture)
    for mine, theirs in zip(together, one_by_one, strict=True):
        assert torch.allclose(mine, theirs)


def test_several_upstream_gradients_at_once() -> None:
    tensors = _tensors(2)
    reading = _read(*tensors)
    upstream = torch.randn(4, *reading.shape, dtype=torch.float64)
    together = torch.autograd.grad(
        reading, tensors, upstream, is_grads_batched=True, retain_graph=True
    )
    for k in range(4):
        alone = torch.autograd.grad(reading, tensors, upstream[k], retain_graph=True)
        for mine, theirs in zip(together, alone, strict=True):
            assert torch.allclose(mine[k], theirs)


def test_compile_sees_one_graph() -> None:
    score = scores.Additive(8, 8, 16)
    query, key = torch.randn(2, 70, 8), torch.randn(2, 90, 8)

    def read(query: Tensor, key: Tensor) -> Tensor:
        return regard.attend(query, key, key, score=score, mask=masks.causal(align="end"))

    compiled = torch.compile(read, fullgraph=True, backend="aot_eager")
    with regard.kernel("cpu"):
        (gradient,) = torch.autograd.grad(compiled(query, key.requires_grad_()).sin().sum(), key)
        (right,) = torch.autograd.grad(read(query, key).sin().sum(), key)
    assert torch.allclose(gradient, right, atol=1e-6)


def test_there_is_no_second_gradient() -> None:
    tensors = _tensors()
    (slope,) = torch.autograd.grad(_read(*tensors).square().sum(), tensors[0], create_graph=True)
    with pytest.raises(NotImplementedError, match=r"pin regard.kernel\('blocked'\)"):
        torch.autograd.grad(slope.sum(), tensors[0])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"score": scores.Dot()}, "Dot is not an additive score"),
        ({"normaliser": normalisers.Sparsemax()}, "Sparsemax is not a softmax"),
        ({"dropout": 0.1}, "it has no dropout"),
    ],
)
def test_what_it_refuses(changes: dict[str, object], reason: str) -> None:
    arguments = {"score": scores.Additive(4, 4, 8)} | changes
    with regard.kernel("cpu"), pytest.raises(KernelRefusedError, match=reason):
        regard.attend(torch.ones(3, 4), torch.ones(5, 4), torch.ones(5, 2), **arguments)


def test_prepared_keys_are_served_too() -> None:
    score = scores.Additive(4, 6, 8)
    query, key = torch.randn(2, 3, 4), torch.randn(2, 5, 6)
    quick, prepared = scores.prepare(score, key)
    with regard.kernel("cpu"):
        assert torch.allclose(
            regard.attend(query, prepared, key, score=quick),
            regard.attend(query, key, key, score=score),
        )


def test_dispatch_goes_by_size() -> None:
    score = scores.Additive(4, 4, 64)
    large, small = torch.ones(2, 128, 4), torch.ones(2, 3, 4)
    assert regard.explain(large, large, score=score).kernel == "cpu"
    few_explanation = regard.explain(small, small, score=score)
    assert few_explanation.kernel == "reference"
    assert "too small" in few_explanation.refused["cpu"]


def test_the_backward_operator_gives_shapes_without_running() -> None:
    inputs = [t.detach() for t in _tensors(2, dtype=torch.float32)]
    out, peaks, totals = additive(*inputs, *(None,) * 5, 0.0, 1.0)
    arguments = (torch.ones_like(out), out, peaks, totals, *inputs, *(None,) * 5, 0.0, 1.0, True)
    torch.library.opcheck(
        additive_backward, arguments, test_utils=("test_schema", "test_faketensor")
    )
