"""attend(), read() and the choice of a kernel."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import regard
from regard.attention import masks, normalisers, scores
from regard.attention.kernels import choose
from regard.attention.kernels.choose import KERNELS, KernelRefusedError
from regard.attention.shapes import ShapeError

EVERY_KERNEL = pytest.mark.parametrize(
    "kernel", [name for name in KERNELS if name not in ("cpu", "triton")]
)


def test_a_soft_dictionary() -> None:
    key, value = torch.eye(3) * 50, torch.tensor([[1.0], [2.0], [3.0]])
    assert regard.attend(torch.eye(3)[1:2], key, value).item() == pytest.approx(2.0)
    assert regard.attend(torch.zeros(1, 3), key, value).item() == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((3,), (5, 3), (5, 2)), r"query has shape \[3\]: pass .* \[..., queries, width\]"),
        (((4, 3), (5, 3), (6, 2)), r"value has 6 rows, the memory holds 5 keys: .* \[..., 5, 2\]"),
        (((4, 3), (5, 2), (5, 2)), "query is 3 wide, key is 2 wide"),
        (((2, 4, 3), (3, 5, 3), (3, 5, 2)), r"batch axes \[2\], \[3\] do not broadcast"),
    ],
)
def test_shapes_that_do_not_fit(shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    query, key, value = (torch.ones(shape) for shape in shapes)
    with pytest.raises(ShapeError, match=message):
        regard.attend(query, key, value)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"bias": torch.ones(4, 6)}, ShapeError, "bias covers 6 keys, the memory holds 5"),
        ({"bias": torch.ones(4, 5, dtype=torch.bool)}, TypeError, "booleans are a mask"),
        ({"dropout": 1.5}, ValueError, "from 0 to 1"),
        ({"score": lambda q, k: q}, ShapeError, r"the score gave shape \[4, 3\]"),
    ],
)
def test_arguments_that_mean_nothing(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        regard.attend(torch.ones(4, 3), torch.ones(5, 3), torch.ones(5, 2), **arguments)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_types_that_do_not_fit(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match="pass"):
        regard.attend(torch.ones(4, 3), torch.ones(5, 3, dtype=dtype), torch.ones(5, 2))


class Largest(TorchDispatchMode):
    """The size in bytes of the largest storage that any operation made."""

    size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.size = max(self.size, tensor.untyped_storage().nbytes())
        return result


@EVERY_KERNEL
@pytest.mark.parametrize(
    ("query", "key"),
    [((16, 2, 8, 3, 32), (16, 2, 1, 64, 32)), ((64, 4, 3, 32), (1, 1, 64, 32))],
    ids=["grouped heads", "shared memory"],
)
def test_a_batch_axis_of_size_one_is_never_copied(
    kernel: str, query: tuple[int, ...], key: tuple[int, ...]
) -> None:
    query_tensor, stored = torch.randn(query), torch.randn(key)
    expanded = query_tensor.numel() // query[-2] * key[-2] * 4
    with regard.kernel(kernel), Largest() as largest:
        regard.attend(query_tensor, stored, stored, mask=masks.padding([9]))
    assert 0 < largest.size < expanded / 2


@EVERY_KERNEL
def test_dropout_drops_at_its_rate_and_keeps_the_mean(kernel: str) -> None:
    torch.manual_seed(0)
    query, key = torch.zeros(50, 4), torch.zeros(200, 4)
    with regard.kernel(kernel):
        kept_reading = regard.attend(query, key, torch.eye(200), dropout=0.3) * 200
    assert torch.allclose(kept_reading[kept_reading > 0], torch.tensor(1 / 0.7), rtol=1e-3)
    assert (kept_reading == 0).float().mean().item() == pytest.approx(0.3, abs=0.02)


@EVERY_KERNEL
def test_dropout_passes_gradients_through_what_is_kept(kernel: str) -> None:
    torch.manual_seed(0)
    value = torch.eye(30, requires_grad=True)
    with regard.kernel(kernel):
        reading = regard.attend(torch.zeros(1, 4), torch.zeros(30, 4), value, dropout=0.5)
    reading.sum().backward()
    assert value.grad is not None
    assert torch.allclose(value.grad[:, 0], reading.detach()[0])
    assert 0 < (value.grad[:, 0] == 0).sum() < 30


@EVERY_KERNEL
@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_the_extremes_of_dropout(kernel: str, rate: float) -> None:
    query, key, value = torch.randn(2, 3), torch.randn(4, 3), torch.randn(4, 3)
    with regard.kernel(kernel):
        reading = regard.attend(query, key, value, dropout=rate)
        assert torch.allclose(reading, (1 - rate) * regard.attend(query, key, value))


@EVERY_KERNEL
@pytest.mark.parametrize("rate", [1e-7, 0.999999, 1 - 1e-16])
def test_rates_that_round_to_an_extreme(kernel: str, rate: float) -> None:
    query, key, value = torch.randn(2, 3), torch.randn(4, 3), torch.randn(4, 3)
    with regard.kernel(kernel):
        assert regard.attend(query, key, value, dropout=rate).isfinite().all()


def test_dropout_follows_the_seed_of_torch() -> None:
    tensors = torch.randn(3, 6, 4).unbind()
    readings = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        readings.append(regard.attend(*tensors, dropout=0.5))
    assert torch.equal(readings[0], readings[1])
    assert not torch.equal(readings[0], readings[2])


@EVERY_KERNEL
def test_training_under_autocast(kernel: str) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 6, 8, requires_grad=True) for _ in range(3))
    exact = regard.attend(query, key, value, mask=masks.padding([2, 6]))
    with regard.kernel(kernel), torch.autocast("cpu", dtype=torch.bfloat16):
        reading = regard.attend(
            query, key.bfloat16(), value, mask=masks.padding([2, 6]), dropout=0.0
        )
    assert torch.allclose(reading.float(), exact, atol=5e-2)
    reading.float().sum().backward()
    assert value.grad is not None
    assert value.grad.isfinite().all()


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_heads_by_cosine_survive_a_sentence_with_zeros(autocast: bool, padded: bool) -> None:
    torch.manual_seed(0)
    heads, sentence = regard.MultiHeadAttention(8, 2, score=scores.Cosine()), torch.randn(2, 6, 8)
    sentence[1, 4:] = 0
    mask = masks.padding([6, 4]) if padded else None
    with torch.autocast("cpu", torch.float16, enabled=autocast):
        output = heads(sentence, mask=mask)
    output.float().square().sum().backward()
    assert output.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in heads.parameters())


def test_large_scores_are_trained_under_autocast() -> None:
    torch.manual_seed(0)
    tensors = [(size * torch.randn(2, 3, 5, 8)).requires_grad_() for size in (200.0, 200.0, 1.0)]
    with torch.autocast("cpu", torch.float16), regard.kernel("matmul"):
        reading = regard.attend(*tensors, score=scores.Dot())
    assert reading.dtype == torch.float16
    halves = [tensor.half().double() for tensor in tensors]
    exact = regard.attend(*halves, score=scores.Dot())
    assert torch.allclose(reading.double(), exact, atol=4e-3)
    assert all(s.isfinite().all() for s in torch.autograd.grad(reading.float().sum(), tensors))


@EVERY_KERNEL
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_bias_of_the_lowest_number_under_autocast(kernel: str, dtype: torch.dtype) -> None:
    bias = torch.zeros(4, 7)
    bias[1] = torch.finfo(torch.float32).min
    with torch.autocast("cpu", dtype), regard.kernel(kernel):
        reading = regard.attend(torch.zeros(4, 8), torch.zeros(7, 8), torch.eye(7), bias=bias)
    assert torch.allclose(reading.float(), torch.full((4, 7), 1 / 7), atol=1e-3)


def test_a_pinned_kernel_refuses_with_its_reason() -> None:
    query, key = torch.ones(2, 3), torch.ones(4, 3)
    with regard.kernel("sdpa"):
        with pytest.raises(KernelRefusedError, match=r"'sdpa' .* Additive is not a dot product"):
            regard.attend(query, key, key, score=scores.Additive(3, 3, 2))
        with pytest.raises(KernelRefusedError, match="Sparsemax is not a softmax"):
            regard.attend(query, key, key, normaliser=normalisers.Sparsemax())
    regard.attend(query, key, key, normaliser=normalisers.Sparsemax())


def test_pins_nest_and_belong_to_their_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key = torch.ones(2, 3), torch.ones(4, 3)
    elsewhere: list[str] = []

    def ask() -> str:
        return regard.explain(query, key).kernel

    with regard.kernel("reference"):
        with regard.kernel("matmul"):
            assert ask() == "matmul"
            thread = threading.Thread(target=lambda: elsewhere.append(ask()))
            thread.start()
            thread.join()
        assert ask() == "reference"
    assert elsewhere == ["sdpa"]
    monkeypatch.setattr(choose, "FROM_ENVIRONMENT", "matmul")
    assert ask() == "matmul"
    monkeypatch.setattr(choose, "FROM_ENVIRONMENT", "warp")
    with pytest.raises(ValueError, match=r"no kernel 'warp': there are .*matmul, reference, sdpa"):
        ask()


def test_a_pin_belongs_to_its_task(run_async: Any) -> None:
    query, key = torch.ones(2, 3), torch.ones(4, 3)

    async def pinning(name: str, inside: asyncio.Event, leave: asyncio.Event) -> None:
        with regard.kernel(name):
            inside.set()
            await leave.wait()
            assert regard.explain(query, key).kernel == name

    async def main() -> None:
        events = [asyncio.Event() for _ in range(4)]
        tasks = [
            asyncio.create_task(pinning(name, *events[at : at + 2]))
            for at, name in ((0, "reference"), (2, "matmul"))
        ]
        await events[0].wait()
        await events[2].wait()
        assert regard.explain(query, key).kernel == "sdpa"
        for leave, task in zip(events[1::2], tasks, strict=True):
            leave.set()
            await task
        assert regard.explain(query, key).kernel == "sdpa"

    run_async(main())
    assert regard.explain(query, key).kernel == "sdpa"


def test_a_compiled_function_follows_a_pin_within_and_around_it() -> None:
    query, key = torch.randn(2, 3), torch.randn(4, 3)

    def within(query: Tensor, key: Tensor) -> Tensor:
        with regard.kernel("reference"):
            return regard.attend(query, key, key)

    for function in (within, regard.attend):
        compiled = torch.compile(function, backend="eager")
        inputs = (query, key) if function is within else (query, key, key)
        expected = regard.attend(query, key, key)
        assert torch.allclose(compiled(*inputs), expected)
        with regard.kernel("matmul"):
            assert torch.allclose(compiled(*inputs), expected)
    with regard.kernel("cpu"), pytest.raises(KernelRefusedError, match="not an additive score"):
        compiled(query, key, key)


def test_explain_says_which_and_why_not_the_others() -> None:
    query, key = torch.ones(2, 3), torch.ones(4, 3)
    plain = regard.explain(query, key)
    assert (plain.kernel, set(plain.refused)) == ("sdpa", set(KERNELS) - {"sdpa"})
    assert "2 queries x 4 keys on cpu" in str(plain)
    sparse = regard.explain(query, key, normaliser=normalisers.Sparsemax())
    assert sparse.kernel == "reference"
    assert sparse.refused["sdpa"] == "Sparsemax is not a softmax"


def test_short_rows_are_trained_on_plain_products() -> None:
    short_rows, query = (torch.ones(rows, 3, requires_grad=True) for rows in (8, 70))
    assert regard.explain(short_rows, short_rows).kernel == "sdpa"
    assert regard.explain(short_rows.bfloat16(), short_rows.bfloat16()).kernel == "matmul"
    assert regard.explain(query, query).kernel == "matmul"
    assert regard.explain(query.detach(), query.detach(), dropout=0.1).kernel == "matmul"
    long = torch.ones(200, 3, requires_grad=True)
    assert regard.explain(long, long).kernel == "sdpa"
    with torch.no_grad():
        assert regard.explain(query, query).kernel == "sdpa"


@EVERY_KERNEL
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap(kernel: str) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 4, 5, 8).unbind()
    mask = torch.rand(4, 5, 5) > 0.3
    with regard.kernel(kernel):
        mapped = torch.func.vmap(lambda q, k, v, m: regard.attend(q, k, v, mask=m))
        actual = mapped(query, key, value, mask)
        assert torch.allclose(actual, regard.attend(query, key, value, mask=mask), atol=1e-6)


def test_second_derivatives() -> None:
    query, key = (torch.randn(1, 2, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    with regard.kernel("matmul"):
        assert torch.autograd.gradgradcheck(lambda q, k: regard.attend(q, k, k), (query, key))


@EVERY_KERNEL
def test_compiling_to_one_graph(kernel: str) -> None:
    tensors = torch.randn(3, 2, 5, 8).unbind()
    mask = torch.rand(2, 5, 5) > 0.3
    compiled = torch.compile(regard.attend, fullgraph=True, backend="eager")
    with regard.kernel(kernel):
        actual = compiled(*tensors, mask=mask)
        assert torch.allclose(actual, regard.attend(*tensors, mask=mask), atol=1e-6)
        assert compiled(*tensors, dropout=0.5).shape == (2, 5, 8)


def test_a_causal_bias_of_torch_is_refused_for_it_holds_no_numbers():
    from torch.nn.attention.bias import causal_lower_right

    x = torch.ones(3, 4)
    with pytest.raises(TypeError, match=r"bias is a CausalBias .* pass mask=regard.masks.causal"):
        regard.attend(x, x, x, bias=causal_lower_right(3, 3))
    with pytest.raises(TypeError, match="bias is a CausalBias"):
        regard.look(x, x, bias=causal_lower_right(3, 3))


@pytest.mark.parametrize("name", ["key", "value", "bias", "mask"])
def test_tensors_on_another_device_are_refused_by_name(name: str) -> None:
    x, readable = torch.zeros(3, 4), torch.ones(3, 3, dtype=torch.bool)
    arguments = {"key": x, "value": x, "bias": torch.zeros(3, 3), "mask": readable}
    arguments[name] = arguments[name].to("meta")
    message = rf"{name} is on meta, the query on cpu: pass {name}.to\('cpu'\)"
    with pytest.raises(ValueError, match=message):
        regard.attend(x, **arguments)
    if name == "value":
        return
    del arguments["value"]
    with pytest.raises(ValueError, match=message):
        regard.look(x, **arguments)


@pytest.mark.parametrize("make", [lambda m: m & masks.band(1, 1), lambda m: lambda row, column: m])
def test_so_are_masks_within_others_and_of_functions(make: Any) -> None:
    x = torch.zeros(3, 4)
    mask = make(torch.ones(3, 3, dtype=torch.bool, device="meta"))
    with pytest.raises(ValueError, match="mask is on meta, the query on cpu"):
        regard.attend(x, x, x, mask=mask)
