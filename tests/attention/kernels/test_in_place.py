"""What changes in place between forward and backward: an error, or the gradients of the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.attention import masks, normalisers, scores
from regard.attention.kernels.choose import KERNELS, KernelRefusedError
from regard.attention.versions import ChangedError

GENERATOR = torch.Generator().manual_seed(0)


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


class Stretched(nn.Module):
    """A score with a buffer, and a count of its calls that it writes itself."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("stretch", draw(4))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        self.calls += 1
        return (query * self.stretch) @ key.mT


class Learned(normalisers.Normaliser):
    """A normaliser of the caller's with a tensor in an attribute."""

    def __init__(self) -> None:
        self.power = torch.ones(())

    def rows(self, scores: Tensor) -> Tensor:
        return torch.softmax(scores * self.power, -1)


def frozen(score: Any) -> tuple[dict[str, Any], Tensor]:
    return {"score": score.requires_grad_(False)}, score.weight


def of_score(score: Any, tensor: Tensor) -> tuple[dict[str, Any], Tensor]:
    return {"score": score}, tensor


def of_mask(tensor: Tensor, make: Callable[[Tensor], Any]) -> tuple[dict[str, Any], Tensor]:
    return {"mask": make(tensor)}, tensor


def stretched() -> tuple[dict[str, Any], Tensor]:
    score = Stretched()
    return {"score": score}, score.stretch


def learned() -> tuple[dict[str, Any], Tensor]:
    normaliser = Learned()
    return {"normaliser": normaliser}, normaliser.power


def closure(has_history: bool) -> tuple[dict[str, Any], Tensor]:
    matrix, root = draw(4, 4), draw(4, 4).requires_grad_()
    vectors = root * 2 if has_history else root  # with a history, blocks are kept by checkpoints
    return {"score": lambda q, k: q @ matrix @ k.mT + q @ vectors @ k.mT}, matrix


SHUT = torch.arange(6) < torch.tensor([[[6]], [[2]]])
# Arguments of a call, and the tensor to change after it.
PARTS: dict[str, Callable[[], tuple[dict[str, Any], Tensor]]] = {
    "boolean mask": lambda: of_mask(SHUT.clone(), lambda mask: mask),
    "lengths": lambda: of_mask(torch.tensor([6, 2]), masks.padding),
    "joined": lambda: of_mask(torch.tensor([6, 2]), lambda n: masks.padding(n) & masks.band(3, 3)),
    "either": lambda: of_mask(SHUT.clone(), lambda m: m | masks.band(1, 1)),
    "documents": lambda: of_mask(
        torch.tensor([0, 0, 1, 1, 2, 2]), lambda ids: masks.documents(ids[:5], ids)
    ),
    "function": lambda: of_mask(torch.tensor(4), lambda n: lambda row, column: column < n),
    "bias": lambda: (lambda bias: ({"bias": bias}, bias))(draw(5, 6)),
    "closure of a score": lambda: closure(has_history=False),
    "closure of a score with a history": lambda: closure(has_history=True),
    "buffer of a score": stretched,
    "frozen parameter": lambda: frozen(scores.Additive(4, 4, 3)),
    "frozen matrix": lambda: frozen(scores.General(4, 4)),
    "closure of a normaliser": lambda: (
        lambda power: ({"normaliser": lambda rows: torch.softmax(rows * power, -1)}, power)
    )(torch.ones(())),
    "attribute of a normaliser": learned,
}


def change(tensor: Tensor) -> None:
    with torch.no_grad():
        if tensor.dtype == torch.bool:
            tensor.logical_not_()
        else:
            tensor.copy_(tensor.flip(-1) * 2 if tensor.ndim else tensor / 2)


def leaves() -> list[Tensor]:
    return [draw(2, n, 4).requires_grad_() for n in (5, 6, 6)]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.attention.kernels.blocked.BLOCK", 100)
    monkeypatch.setattr("regard.attention.looks.weights.BLOCK", 20)
    monkeypatch.setattr("regard.attention.kernels.tiled.AREA", 1)  # sdpa in tiles


def reading(kernel: str, tensors: list[Tensor], options: dict[str, Any]) -> Tensor:
    with regard.kernel(kernel):
        return regard.attend(*tensors, **options)


ADDITIVE = scores.Additive(4, 4, 3)


def with_score(kernel: str, options: dict[str, Any]) -> None:
    """The kernels of one score take that."""
    if kernel in ("cpu", "triton"):
        options.setdefault("score", ADDITIVE)


def serves(kernel: str, options: dict[str, Any]) -> bool:
    with_score(kernel, options)
    try:
        with regard.kernel(kernel):
            regard.explain(*leaves(), **options)
    except KernelRefusedError:
        return False
    return True


def unless_refused(loss: Tensor, tensors: list[Tensor]) -> list[Tensor] | None:
    """The gradients, or None where they are refused in torch's words."""
    try:
        return list(torch.autograd.grad(loss, tensors))
    except RuntimeError as error:
        if "modified by an inplace operation" in str(error):
            return None
        raise


INTERPRETED = ("boolean mask", "lengths", "documents")  # parts enough for the slowest to test
CASES = [
    (kernel, part)
    for kernel in KERNELS
    for part in PARTS
    if (kernel != "triton" or part in INTERPRETED) and serves(kernel, PARTS[part]()[0])
]


@pytest.mark.parametrize(("kernel", "case"), CASES)
def test_gradients_are_those_of_the_call_or_an_error(kernel: str, case: str) -> None:
    options, tensor = PARTS[case]()
    with_score(kernel, options)
    tensors = leaves()
    expected = torch.autograd.grad(reading(kernel, tensors, options).sin().sum(), tensors)
    loss = reading(kernel, tensors, options).sin().sum()
    change(tensor)
    actual = unless_refused(loss, tensors)
    if kernel == "blocked":  # which computes everything again
        assert actual is None
    if actual is not None:
        for a, b in zip(actual, expected, strict=True):
            assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("kernel", sorted(set(KERNELS) - {"triton"}))
@pytest.mark.parametrize("at", range(3), ids=["query", "key", "value"])
@pytest.mark.parametrize("has_history", [False, True], ids=["leaves", "history"])
def test_so_with_the_tensors_of_the_call(at: int, kernel: str, has_history: bool) -> None:
    options = (
        closure(has_history=True)[0] if has_history and kernel in ("blocked", "reference") else {}
    )
    with_score(kernel, options)
    tensors = leaves()
    computed = [tensor * 1 for tensor in tensors]
    loss = reading(kernel, computed, options).sin().sum()
    exact = torch.autograd.grad(loss, tensors, retain_graph=True)
    computed[at].detach().zero_()
    actual = unless_refused(loss, tensors)
    if kernel == "blocked":
        assert actual is None
    if actual is not None:
        for a, b in zip(actual, exact, strict=True):
            assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("case", PARTS)
def test_so_with_the_gradients_of_looks(case: str) -> None:
    options, tensor = PARTS[case]()
    query, key, _ = leaves()
    entropy = regard.look(query, key, **options).entropy().sum()
    change(tensor)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        entropy.backward()


@pytest.mark.parametrize("score", [None, lambda q, k: q @ k.mT], ids=["ours", "a function"])
def test_so_with_the_weights_of_queries_that_are_summed(score: Any) -> None:
    query, key, _ = leaves()
    shares, rows = torch.ones(2), torch.tensor([0, 2])
    received = regard.look(query, key, score=score).received(rows=rows, weights=shares)
    rows.zero_()  # was copied
    received.sum().backward(retain_graph=True)
    shares.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        received.sum().backward()


def test_gradients_of_gradients_are_guarded_too() -> None:
    tensors, lengths = leaves(), torch.tensor([6, 2])
    loss = reading("blocked", tensors, {"mask": masks.padding(lengths)}).sin().sum()
    (gradient,) = torch.autograd.grad(loss, tensors[0], create_graph=True)
    lengths[0] = 1
    with pytest.raises(ChangedError, match=r"mask \(torch.int64 of shape \[2\]\) is at version 1"):
        gradient.square().sum().backward()


def test_a_score_may_write_to_what_is_its_own() -> None:
    score, tensors = Stretched(), leaves()
    loss = reading("blocked", tensors, {"score": score}).sin().sum()
    torch.autograd.grad(loss, tensors, retain_graph=True)
    torch.autograd.grad(loss, tensors)
    assert score.calls > 0


def test_a_tensor_beside_the_attention_may_change() -> None:
    score = nn.Module()
    score.register_buffer("stretch", draw(4))
    score.register_buffer("running", torch.zeros(4))  # of another layer of the caller's module
    tensors = leaves()
    options = {"score": lambda q, k: (q * score.stretch) @ k.mT}
    loss = reading("blocked", tensors, options).sum()
    look = regard.look(*tensors[:2], **options)
    score.running += 1
    loss.backward()
    assert look.entropy().isfinite().all()


@pytest.mark.parametrize("kernel", ["blocked", "reference"])
def test_tensors_of_inference_mode_have_no_count_and_are_served(kernel: str) -> None:
    with torch.inference_mode():
        lengths = torch.tensor([6, 2])
    tensors = leaves()
    reading(kernel, tensors, {"mask": masks.padding(lengths.clone())}).sum().backward()
    with torch.inference_mode():
        query, key, value = leaves()
        read, look = regard.read(query, key, value, mask=masks.padding(lengths))
        assert torch.allclose(look.weights() @ value, read, atol=1e-6)


class Alternating(nn.Module):
    """A score that writes its temperature itself, on every second call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("temperature", torch.ones(()))
        self.calls = 1

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        self.calls += 1
        if self.calls % 2:
            self.temperature.mul_(0.99)
        return query @ key.mT * self.temperature


def test_a_score_may_write_to_what_is_its_own_on_some_calls_only() -> None:
    score, tensors = Alternating(), leaves()
    loss = reading("blocked", tensors, {"score": score}).sin().sum()
    torch.autograd.grad(loss, tensors, retain_graph=True)
    torch.autograd.grad(loss, tensors)
    look = regard.look(*tensors[:2], score=score)
    assert all(look.entropy().isfinite().all() for _ in range(3))
    look.entropy().sum().backward()


@pytest.mark.parametrize("score", [None, lambda q, k: q @ k.mT], ids=["ours", "a function"])
def test_a_look_says_that_memory_may_be_shared(score: Any) -> None:
    cache = draw(2, 6, 4)
    look = regard.look(draw(2, 5, 4), cache[:, :5], score=score)
    cache[:, 5] = 0.0
    with pytest.raises(
        ChangedError, match=r"key .*, or a tensor that shares its memory, was changed"
    ):
        look.weights()
