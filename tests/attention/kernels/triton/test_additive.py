"""The Triton kernel, interpreted on a processor where there is no GPU (see tests/conftest.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from tests.agreement.cases import BRAIN, HALF, SINGLE, Case
from tests.agreement.comparing import TOLERANCE, compare
from tests.agreement.test_kernels import answer
from torch import Tensor

import regard
from regard.attention import masks, normalisers, scores
from regard.attention.kernels.choose import KERNELS, KernelRefusedError

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def additive() -> scores.Additive:
    return scores.Additive(4, 3, 5, bias=True)


def random_tensor(*shape: int) -> Tensor:
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) > 0.4
    mask[..., 1, :] = False  # a row with nothing to read
    return mask


def cut(*shape: int) -> Tensor:
    return torch.randn(shape).masked_fill(torch.rand(shape) < 0.3, -torch.inf)


def case(name: str, **changed: Any) -> Case:
    shapes = {"query": (2, 5, 4), "key": (2, 7, 3), "d_value": 3, "score": additive}
    return Case(name, **{**shapes, **changed})


ACROSS = {"query": (19, 4), "key": (21, 3), "d_value": 3}  # two blocks of 16 each way


def between(minimum: float) -> Any:
    """Weights of the projections by which some features are beyond what two channels may share."""

    def build() -> scores.Additive:
        score = additive()
        with torch.no_grad():
            score.query_weight[0] = minimum
        return score

    return build


TRIANGLE = masks.causal(align="end")
CASES = [
    case("plain"),
    case("half", dtype=HALF),
    case("bfloat16", dtype=BRAIN, mask=random_tensor(5, 7)),
    case("strided", strided=True),
    case("broadcast", query=(2, 1, 5, 4), key=(2, 7, 3), value_batch=(1,)),
    case("heads", score=lambda: scores.Additive(4, 3, 5, heads=2)),
    case("large", size=3e3, slack=300.0),
    case("some features are large", score=between(30.0), **ACROSS),
    case("one of everything", query=(1, 4), key=(1, 3), d_value=1),
    case("past a block", **ACROSS),
    case("causal past a block", mask=TRIANGLE, **ACROSS),
    case("band past a block", mask=masks.band(2, 1), **ACROSS),
    case("booleans past a block", mask=random_tensor(19, 21), **ACROSS),
    case("wide value", d_value=40),
    case("padding", mask=masks.padding([0, 4]) & TRIANGLE),
    case("documents", mask=masks.documents(torch.arange(5) // 2, torch.arange(7) // 3)),
    case("booleans of each entry", mask=random_tensor(2, 5, 7)),
    case("booleans of keys", mask=torch.tensor([1, 0, 1, 1, 0, 1, 1]).bool()),
    case("a function of positions", mask=lambda row, column: (row + column) % 3 > 0),
    case("temperature", normaliser=normalisers.Softmax(0.5)),
    case("packed", mask=masks.packed([2, 0, 3], [3, 1, 3])),
    case("capped", score=lambda: scores.SoftCap(additive(), 0.4), mask=random_tensor(5, 7)),
    case("bias", bias=lambda: torch.randn(2, 5, 7)),
    case("bias shared", bias=lambda: cut(5, 7), mask=TRIANGLE),
    case("bias of keys past a block", bias=lambda: torch.randn(2, 1, 21), **ACROSS),
    case("bias of queries past a block", bias=lambda: cut(19, 1), mask=TRIANGLE, **ACROSS),
    case(
        "lowest bias, cold",
        bias=lambda: torch.tensor([0.0, -3.4028235e38])[torch.arange(35).view(5, 7) // 7 % 2],
        normaliser=normalisers.Softmax(0.5),
    ),
    case("bias of entries", bias=lambda: torch.randn(2, 1, 1)),
    case(
        "grouped",
        query=(2, 3, 4, 4),
        key=(2, 1, 5, 3),
        score=lambda: scores.SoftCap(additive(), 2.0),
        bias=lambda: torch.randn(3, 1, 5),
    ),
]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.attention.kernels.triton import sizes

    monkeypatch.setattr(sizes, "LARGEST", 16)
    monkeypatch.setattr(sizes, "WIDEST", 32)


@needs_triton
@pytest.mark.usefixtures("narrow")
@pytest.mark.filterwarnings("ignore:overflow encountered")  # e^{2x} may be infinite: r is 0 then
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_agrees_with_the_exact_reference(case: Case) -> None:
    check(case)


@needs_triton
@pytest.mark.parametrize("shares", [1, 2, 3])
def test_programs_share_the_other_side(shares: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.attention.kernels.triton import sizes

    tile = sizes.Tile(16, 16, 4, wide=16)
    for side in ("of_reading", "of_gradients"):
        monkeypatch.setattr(sizes, side, lambda *lengths: (tile, shares))
    mask = TRIANGLE & masks.padding(
        [40, 0]
    )  # the first queries read nothing that later shares hold
    check(case("shares", query=(2, 37, 4), key=(2, 40, 3), d_value=20, mask=mask))


def check(case: Case) -> None:
    built = case.build()
    exact = answer("reference", built.arguments(torch.float64))
    with torch.device(DEVICE):
        actual = answer("triton", moved(built.arguments(case.dtype)))
    assert actual["reading"].dtype == case.dtype
    for name in exact:
        result = None if actual[name] is None else actual[name].cpu()
        compare(name, result, exact[name], TOLERANCE[case.dtype] * case.slack)


def moved(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments on the device that the kernel is tried on."""
    return {
        name: part.detach().to(DEVICE).requires_grad_(part.requires_grad)
        if isinstance(part, Tensor)
        else part.to(DEVICE)
        if isinstance(part, torch.nn.Module)
        else part
        for name, part in arguments.items()
    }


def draw(dtype: torch.dtype = SINGLE) -> dict[str, Any]:
    torch.manual_seed(0)
    shapes = {"query": (5, 4), "key": (7, 3), "value": (7, 2)}
    tensors = {name: torch.randn(shape, dtype=dtype) for name, shape in shapes.items()}
    return moved({**tensors, "score": additive().to(dtype)})


@needs_triton
@pytest.mark.parametrize("garbage", [float("nan"), float("inf")])
def test_what_may_not_be_read_may_hold_anything(garbage: float) -> None:
    mask = (torch.arange(7, device=DEVICE) != 5) & (torch.arange(5, device=DEVICE) != 2)[:, None]
    arguments = {**draw(), "mask": mask}
    if DEVICE == "cuda":
        pytest.skip("asking whether numbers are finite would hold up a GPU")
    for name in ("query", "key", "value"):
        arguments[name].requires_grad_()
    clean = answer("triton", arguments)
    for name in ("key", "value"):
        spoilt = arguments[name].detach().clone()
        spoilt[5] = garbage
        arguments[name] = spoilt.requires_grad_()
    with torch.no_grad():
        arguments["query"][2] = garbage
    for name, actual in answer("triton", arguments).items():
        compare(name, actual, clean[name], 1e-6)


@needs_triton
def test_two_runs_are_the_same_to_the_bit() -> None:
    arguments = draw()
    first_answer, second = answer("triton", arguments), answer("triton", arguments)
    for name, gradient in first_answer.items():
        assert gradient is not None
        assert torch.equal(gradient, second[name]), name


@needs_triton
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"score": scores.Dot()}, "under a mask of regard.masks alone"),
        ({"normaliser": normalisers.Sparsemax()}, "Sparsemax is not a softmax"),
        ({"dropout": 0.1}, "no dropout"),
        ({"value": torch.zeros(7, 0)}, "an axis has size 0"),
    ],
    ids=["score", "normaliser", "dropout", "size"],
)
def test_what_it_cannot_serve_is_refused(changes: dict[str, Any], reason: str) -> None:
    with regard.kernel("triton"), pytest.raises(KernelRefusedError, match=reason):
        regard.attend(**moved({**draw(), **changes}))


def test_double_precision_is_refused() -> None:
    with regard.kernel("triton"), pytest.raises(KernelRefusedError, match="which is less than"):
        regard.attend(**draw(torch.float64))


def test_a_processor_is_refused_unless_interpreting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.attention.kernels.triton.kernel.find_spec", lambda name: True)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    arguments = {n: part.cpu() for n, part in draw().items()}
    with regard.kernel("triton"), pytest.raises(KernelRefusedError, match="is for CUDA"):
        regard.attend(**arguments)


def test_without_triton_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.attention.kernels.triton.kernel.find_spec", lambda name: None)
    arguments = {n: part.cpu() for n, part in draw().items()}
    with regard.kernel("triton"), pytest.raises(KernelRefusedError, match="not installed"):
        regard.attend(**arguments)
    assert regard.explain(**arguments).kernel != "triton"
    assert "not installed" in regard.explain(**arguments).refused["triton"]
    assert "triton" in KERNELS


@needs_triton
def test_second_gradients_are_refused() -> None:
    arguments = draw()
    arguments["query"].requires_grad_()
    with regard.kernel("triton"):
        reading = regard.attend(**arguments)
    (slope,) = torch.autograd.grad(reading.sum(), arguments["query"], create_graph=True)
    with pytest.raises(NotImplementedError, match="no gradients of gradients"):
        slope.sum().backward()
    arguments["query"] = arguments["query"].detach()
    refusal = pytest.raises(KernelRefusedError, match=r"pin regard.kernel\('blocked'\)")
    with regard.kernel("triton"), refusal:
        torch.func.grad(lambda query: regard.attend(**{**arguments, "query": query}).sum())(
            arguments["query"]
        )


COMPILE = r"""
import re
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from regard.attention.kernels.triton.backward import backward
from regard.attention.kernels.triton.bias import bias_gradients
from regard.attention.kernels.triton.dots import gradients, means_of, read
from regard.attention.kernels.triton.forward import forward, join
from regard.attention.kernels.triton.runs import runs_of_keys, runs_of_queries
from regard.attention.kernels.triton.scores import prepare_features

POINTERS = {"where": "*i64", "order": "*i64", "starts": "*i64", "spans": "*i32", "asking": "*i64",
            "stored": "*i64", "mask": "*u8", "a_beyond": "*i32", "c_beyond": "*i32", "beyond": "*i32",
            "table": "*i32", "by_queries": "*i32", "by_keys": "*i32"}
WHOLE = {"queries", "keys", "hidden", "width", "a_stored", "c_stored", "entries", "length",
         "stored_length", "stored_hidden", "shares", "query_row", "key_row", "value_row"} | {
    f"{plane}_{axis}" for plane in ("mask", "bias") for axis in ("entry", "row", "column")}
ALL = {"SPANS": True, "DOCUMENTS": True, "MASK": True, "BIAS": True, "CAPPED": True, "ALIGNED": True,
       "OUTER": 16, "INNER": 16, "WIDE": 16, "DEEP": 16, "DEPTH": 8, "WIDTH": 16, "BLOCK": 16,
       "KEY_OUTER": 16, "KEY_INNER": 16}  # the smallest: they compile in two thirds of the time
for kernel, more in ((prepare_features, {}), (forward, {}), (join, {}),
                     (backward, {"BY_KEYS": True}), (backward, {"BY_KEYS": False}),
                     (read, {}), (gradients, {}), (means_of, {}), (runs_of_keys, {}), (runs_of_queries, {}),
                     (bias_gradients, {"ONE_ROW": True, "ONE_COLUMN": False})):
    fixed = {name: value for name, value in {**ALL, **more}.items() if name in kernel.arg_names}
    types = {name: "constexpr" if name in fixed else "i32" if name in WHOLE
             else "fp32" if name in ("factor", "cap") else POINTERS.get(name, "*fp32")
             for name in kernel.arg_names}
    made = triton.compile(ASTSource(kernel, types, fixed), target=GPUTarget("cuda", 80, 32))
    print("atomics", len(re.findall(r"\b(atom|red)\.", made.asm["ptx"])))
"""


@needs_triton
def test_it_compiles_for_a_gpu_without_atomics() -> None:
    surroundings = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    ran = subprocess.run(
        [sys.executable, "-c", COMPILE],
        capture_output=True,
        text=True,
        timeout=600,
        env=surroundings,
    )
    assert ran.stdout.split("\n") == ["atomics 0"] * 11 + [""], ran.stderr
