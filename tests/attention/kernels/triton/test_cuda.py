"""On a GPU: the agreement table for every kernel, the choice of kernels, memory, streams and graphs.

Without CUDA these tests are skipped. To run them: pytest tests/attention/kernels/triton
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.agreement.cases import CASES, Case
from tests.agreement.comparing import TOLERANCE, compare
from tests.agreement.test_kernels import answer
from torch import Tensor, nn

import regard
from regard.attention import masks, scores
from regard.attention.kernels.choose import KERNELS, KernelRefusedError
from regard.attention.masks.mask import Given, Joined

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no GPU: torch.cuda.is_available() is False"
)
CAUSAL = masks.causal(align="start")
# In a row of such numbers alone the sum that torch keeps for its gradients is rounded to the largest of them.
LOWEST = ("lowest bias", "lowest bias, cold")


def moved(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments on the GPU, tensors as leaves again; masks and their tensors go there by themselves."""
    moved_arguments = dict(arguments)
    for name, argument in arguments.items():
        if isinstance(argument, Tensor):
            moved_arguments[name] = argument.detach().cuda().requires_grad_(argument.requires_grad)
        elif isinstance(argument, nn.Module):
            moved_arguments[name] = argument.cuda()
        elif isinstance(argument, masks.Mask):
            moved_arguments[name] = moved_mask(argument)
    return moved_arguments


def moved_mask(mask: masks.Mask) -> masks.Mask:
    """The mask with the booleans that are joined to it on the GPU."""
    if isinstance(mask, Given):
        return Given(mask.tensor.cuda())
    if isinstance(mask, Joined):
        return type(mask)(moved_mask(mask.left), moved_mask(mask.right))
    return mask


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("kernel", [*KERNELS, "chosen"])
def test_every_kernel_agrees_with_the_exact_reference(
    kernel: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = case.build()
    exact = answer("reference", built.arguments(torch.float64))
    arguments = moved(built.arguments(case.dtype))
    if kernel == "chosen":
        kernel = regard.explain(**arguments).kernel
    try:
        actual = answer(kernel, arguments)
    except KernelRefusedError as refusal:
        pytest.skip(str(refusal))
    if kernel == "sdpa" and case.name in LOWEST:
        exact = {"reading": exact["reading"]}
    for name in exact:
        result = None if actual[name] is None else actual[name].cpu()
        compare(name, result, exact[name], TOLERANCE[case.dtype] * case.slack)


def draw(
    length: int,
    width: int = 64,
    dtype: torch.dtype = torch.float32,
    batch: tuple[int, ...] = (1, 2),
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(length)
    return [
        torch.randn(*batch, length, width, generator=generator).to("cuda", dtype).requires_grad_()
        for _ in range(3)
    ]


MASKS: dict[str, Any] = {
    "causal & padding": lambda n: CAUSAL & masks.padding([n - 7]),
    "window": lambda n: masks.band(128, 0),
    "padding": lambda n: masks.padding([n // 3]),
    "prefix": lambda n: CAUSAL | masks.padding([n // 4]),
    "documents": lambda n: masks.documents(torch.arange(n) * 8 // n),
    "packed": lambda n: masks.packed([n // 8] * 8),
    "complement": lambda n: ~masks.band(128, 0),
    "function": lambda n: lambda row, column: (column <= row) & ((row - column) % 5 == 0),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masks_of_long_sequences(name: str, dtype: torch.dtype) -> None:
    length = 1000
    mask, sides = MASKS[name](length), draw(length, dtype=dtype)
    with regard.kernel("reference"):
        doubles = [side.detach().double().requires_grad_() for side in sides]
        exact = regard.attend(*doubles, mask=mask)
    with regard.kernel(regard.explain(*draw(4096), mask=MASKS[name](4096)).kernel):
        reading = regard.attend(*sides, mask=mask)
    compare("reading", reading, exact, TOLERANCE[dtype])
    expected = torch.autograd.grad(exact.sin().sum(), doubles)
    actual = torch.autograd.grad(reading.sin().sum(), sides)
    for gradient, exact_gradient in zip(actual, expected, strict=True):
        compare("gradient", gradient, exact_gradient, 3 * TOLERANCE[dtype])


@pytest.mark.parametrize("hidden", [64, 129])
@pytest.mark.parametrize("lengths", [(700, 900), (20, 20), (1, 30)])
def test_additive_scores(lengths: tuple[int, int], hidden: int) -> None:
    torch.manual_seed(0)
    queries, keys = lengths
    score = scores.Additive(48, 32, hidden).cuda()
    shapes = ((3, queries, 48), (3, keys, 32), (3, keys, 96))
    sides = [torch.randn(shape, device="cuda", requires_grad=True) for shape in shapes]
    doubles = [side.detach().double().requires_grad_() for side in sides]
    mask = masks.padding([keys, keys // 2, 0])
    exact_score = scores.Additive(48, 32, hidden).cuda().double()
    exact_score.load_state_dict({n: p.double() for n, p in score.state_dict().items()})
    with regard.kernel("reference"):
        exact = regard.attend(*doubles, score=exact_score, mask=mask)
    with regard.kernel("triton"):
        reading = regard.attend(*sides, score=score, mask=mask)
    compare("reading", reading, exact, 3e-6)
    expected = torch.autograd.grad(exact.sin().sum(), [*doubles, *exact_score.parameters()])
    actual = torch.autograd.grad(reading.sin().sum(), [*sides, *score.parameters()])
    for gradient, exact_gradient in zip(actual, expected, strict=True):
        compare("gradient", gradient, exact_gradient, 6e-6)


def peak(length: int, mask: Any, **how: Any) -> int:
    """Bytes at most over those before, forward and backward."""
    sides = draw(length, 32, batch=(1, 1))
    rule = mask(length)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    bytes_before = torch.cuda.memory_allocated()
    torch.autograd.grad(regard.attend(*sides, mask=rule, **how).sum(), sides)
    return torch.cuda.max_memory_allocated() - bytes_before


@pytest.mark.parametrize("name", MASKS)
def test_memory_grows_with_the_length(name: str) -> None:
    peak(256, MASKS[name])
    assert peak(16384, MASKS[name]) <= 4.5 * peak(4096, MASKS[name])


def test_memory_of_additive_scores_grows_with_the_length() -> None:
    score = scores.Additive(32, 32, 32).cuda()
    for name in ("window", "causal & padding"):
        assert peak(8192, MASKS[name], score=score) <= 4.5 * peak(2048, MASKS[name], score=score)


def test_the_choice_and_its_reason() -> None:
    query = torch.empty(2, 4096, 64, device="cuda")
    assert regard.explain(query, query, mask=masks.band(128, 0), dropout=0.1).kernel == "blocked"
    additive = regard.explain(query, query, score=scores.Additive(64, 64, 32).cuda())
    assert additive.kernel == "triton"
    assert "H100" in additive.because
    assert regard.explain(query, query, mask=masks.band(128, 0)).kernel == "triton"
    assert regard.explain(query, query).kernel == "sdpa"
    assert regard.explain(query, query, mask=CAUSAL).kernel == "sdpa"
    assert regard.explain(query, query, mask=~masks.band(128, 0)).kernel == "blocked"


def test_two_runs_are_the_same_to_the_bit() -> None:
    score, sides = scores.Additive(64, 64, 64).cuda(), draw(500)
    for options in ({"score": score}, {"mask": masks.band(100, 0)}):
        with regard.kernel("triton"):
            first_answers, second = (
                torch.autograd.grad(regard.attend(*sides, **options).sin().sum(), sides)
                for _ in range(2)
            )
        for a, b in zip(first_answers, second, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["window", "causal & padding", "additive"])
def test_a_graph_of_calls_can_be_captured(name: str) -> None:
    sides = [side.detach() for side in draw(1024)]
    options: dict[str, Any] = {"mask": CAUSAL & masks.padding(torch.tensor([1000], device="cuda"))}
    if name == "window":
        options = {"mask": masks.band(128, 0)}
    if name == "additive":
        options["score"] = scores.Additive(64, 64, 32).cuda().requires_grad_(False)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), regard.kernel("triton"):
        regard.attend(*sides, **options)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with regard.kernel("triton"), torch.cuda.graph(graph):
        reading = regard.attend(*sides, **options)
    for side in sides:
        side.normal_()
    graph.replay()
    with regard.kernel("triton"):
        assert torch.equal(reading, regard.attend(*sides, **options))


@pytest.mark.parametrize("kind", ["additive", "dots"])
def test_more_than_2_31_numbers(kind: str) -> None:
    """The last entries of a batch lie beyond what 32 bits count."""
    if torch.cuda.mem_get_info()[0] < 60 << 30:
        pytest.skip("it takes 60 GB of memory")
    entries, length, width = (1 << 25) // 512 + 8, 512, 128
    query = torch.zeros(entries, length, width, dtype=torch.bfloat16, device="cuda")
    query[-2:].normal_()
    assert query.numel() > 1 << 31
    options: dict[str, Any] = {"mask": masks.band(64, 0)}
    with regard.kernel("triton"), torch.no_grad():
        if kind == "additive":
            key = torch.randn(1, 32, 8, device="cuda", dtype=torch.bfloat16)
            short = query[:, :32].contiguous().view(entries, 32, width)
            score = scores.Additive(width, 8, 16).cuda().bfloat16()
            reading = regard.attend(short, key, key, score=score)
            alone = regard.attend(short[-2:], key, key, score=score)
        else:
            reading = regard.attend(query, query[-1:], query[-1:], **options)
            alone = regard.attend(query[-2:], query[-1:], query[-1:], **options)
    assert torch.allclose(reading[-2:].float(), alone.float(), atol=1e-2)


def test_a_multi_head_module_and_its_watch() -> None:
    torch.manual_seed(0)
    module = nn.ModuleDict({"attention": regard.MultiHeadAttention(64, heads=4)})
    x = torch.randn(2, 50, 64)
    mask = CAUSAL & masks.padding([50, 20])
    expected = module["attention"](x, mask=mask)
    module.cuda()
    with torch.no_grad(), regard.watch(module) as attentions:
        actual = module["attention"](x.cuda(), mask=mask)
    compare("output", actual.cpu(), expected, 1e-4)
    weights = attentions["attention"].weights().cpu()
    assert torch.allclose(weights.sum(-1), torch.ones(2, 4, 50), atol=1e-4)
