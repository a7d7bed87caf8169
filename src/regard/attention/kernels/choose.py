"""Which kernel serves a request: the one that is pinned, or the fastest that can."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.kernels.additive.kernels import ENOUGH, Cpu
from regard.attention.kernels.blocked import Blocked
from regard.attention.kernels.dots import dots_objection
from regard.attention.kernels.matmul import Matmul
from regard.attention.kernels.reference import Reference
from regard.attention.kernels.request import Request, ask
from regard.attention.kernels.sdpa import Sdpa, is_triangle
from regard.attention.kernels.tiled import area, divide, tiles_objection
from regard.attention.kernels.triton.kernel import WRITTEN, Triton
from regard.attention.masks import Mask, MaskLike
from regard.attention.normalisers import NormaliserLike
from regard.attention.positions.biases import BiasLike
from regard.attention.products import HALVES, product_dtype
from regard.attention.scores import DotLike, ScoreLike

SHORT = 128  # rows up to here are trained faster without fusing,
FEW = 1 << 12  # from so many scores (benchmarks/small.py); below, one batch axis is read faster


class Kernel(Protocol):
    """A way to compute a reading."""

    name: str

    def objection(self, request: Request, value: Tensor) -> str | None:
        """Why this kernel cannot serve the request, or None when it can."""

    def attend(self, request: Request, value: Tensor) -> Tensor:
        """The reading, (*batch, queries, d_value)."""


REFERENCE, SDPA, MATMUL, BLOCKED, CPU = Reference(), Sdpa(), Matmul(), Blocked(), Cpu()
TRITON = Triton()
KERNELS: dict[str, Kernel] = {
    kernel.name: kernel for kernel in (MATMUL, SDPA, TRITON, CPU, BLOCKED, REFERENCE)
}


# Read once: to read it takes a tenth of the time of a small call.
FROM_ENVIRONMENT = os.environ.get("REGARD_KERNEL")
_pinned: ContextVar[str | None] = ContextVar("regard_kernel", default=None)


class _Traced(threading.local):
    """This thread's last pin, for torch.compile, which cannot read a ContextVar."""

    def __init__(self) -> None:
        self.name: str | None = None  # in the instance, where torch.compile looks for it


_traced = _Traced()


class KernelRefusedError(RuntimeError):
    """The pinned kernel cannot serve the request; the message gives its reason."""


@dataclass(frozen=True)
class Explanation:
    """Which kernel serves a request, why, and why the others do not."""

    kernel: str
    because: str
    refused: dict[str, str]

    def __str__(self) -> str:
        reasons = [f"  {name}: {reason}" for name, reason in self.refused.items()]
        return "\n".join([f"{self.kernel}: {self.because}", *reasons])


@contextmanager
def kernel(name: str) -> Iterator[None]:
    """Pin a kernel: inside, it serves every request, or raises with its reason.

    The pin is that of the running thread or asyncio task. A function that torch.compile has made
    follows the last pin of its thread.

    Args:
        name: "reference", "blocked", "sdpa", "matmul", "cpu" or "triton".

    Raises:
        ValueError: there is no kernel of that name.

    Example:
        >>> import torch, regard
        >>> with regard.kernel("reference"):
        ...     regard.attend(torch.ones(1, 2), torch.ones(3, 2), torch.ones(3, 4)).shape
        torch.Size([1, 4])
    """
    _named(name)
    outer = _traced.name if torch.compiler.is_compiling() else _pinned.get()
    _set_pin(name)
    try:
        yield
    finally:
        _set_pin(outer)


def pinned(is_traced: bool = True) -> str | None:
    """The name of the kernel that serves every request, where there is one."""
    pin = _traced.name if is_traced and torch.compiler.is_compiling() else _pinned.get()
    return pin or FROM_ENVIRONMENT


def _set_pin(name: str | None) -> None:
    _traced.name = name
    if not torch.compiler.is_compiling():
        _pinned.set(name)


def _named(name: str) -> Kernel:
    if name not in KERNELS:
        raise ValueError(f"no kernel {name!r}: there are {', '.join(sorted(KERNELS))}")
    return KERNELS[name]


def choose(request: Request, value: Tensor) -> Kernel:
    """The kernel that serves this request."""
    if name := pinned(request.is_traced):
        only = _named(name)
        if objection := only.objection(request, value):
            raise KernelRefusedError(f"kernel {name!r} cannot serve this request: {objection}")
        return only
    if not request.query.is_cpu and (kernel := _on_gpu(request, value)) is not None:
        return kernel
    if request.is_plain or _is_dots(request, value):
        if _is_plain(request, value):
            is_long = request.keys > SHORT and request.is_large and tiles_objection(request)
            return BLOCKED if is_long else MATMUL
        return SDPA if SDPA.shape_objection(request, value) is None else MATMUL
    if request.size < ENOUGH:
        return REFERENCE
    if CPU.is_chosen(request, value):
        return CPU
    return BLOCKED if request.is_large else REFERENCE


def _is_dots(request: Request, value: Tensor) -> bool:
    return isinstance(request.score, DotLike) and dots_objection(request, value) is None


def _on_gpu(request: Request, value: Tensor) -> Kernel | None:
    """The kernel for a device that divides nothing into tiles; None where the others are as good there."""
    if TRITON.is_chosen(request, value):
        return TRITON
    if request.is_traced or is_triangle(request):
        return None
    by_positions = isinstance(request.mask, Mask) or request.bias_function is not None
    return BLOCKED if by_positions and request.queries * request.keys >= WRITTEN else None


def _is_plain(request: Request, value: Tensor) -> bool:
    """Whether plain products are faster, as measured on a CPU in float32 and bfloat16.

    torch's fused attention has no dropout there and no gradient for a bias, and falls back on the
    whole matrix; its backward pass is slow on many short rows, and on all of them in half precision.
    Without gradients it is ahead but on few scores of one batch axis, as it takes two.
    """
    if not request.query.is_cpu:
        return False
    if request.dropout or (request.has_bias and request.trains_bias):
        return True
    is_half = product_dtype(value) in HALVES
    if not torch.is_grad_enabled() or not (
        request.query.requires_grad or request.key.requires_grad or value.requires_grad
    ):
        is_small = len(request.frame.batch) == 1 and request.pairs < FEW
        return is_small and request.is_regular and not (is_half or request.is_traced)
    if request.keys > SHORT or request.queries > SHORT:
        return False
    return request.pairs >= FEW or request.is_traced or is_half


def explain(
    query: Float[Tensor, "*#batch queries d_query"],
    key: Float[Tensor, "*#batch keys d_key"],
    value: Float[Tensor, "*#batch keys d_value"] | None = None,
    *,
    score: ScoreLike | None = None,
    bias: BiasLike | None = None,
    mask: MaskLike | None = None,
    normaliser: NormaliserLike | None = None,
    dropout: float = 0.0,
) -> Explanation:
    """Which kernel `attend` would use for these arguments, and why not the others.

    Args: those of `attend`; the value defaults to the key.

    Returns:
        An Explanation: `.kernel`, `.because`, and `.refused`, a reason for each other kernel.

    Raises:
        KernelRefusedError: a kernel is pinned that cannot serve this.

    Example:
        >>> import torch
        >>> from regard.normalisers import Sparsemax
        >>> explain(torch.ones(1, 2), torch.ones(3, 2), normaliser=Sparsemax()).kernel
        'reference'
    """
    value = key if value is None else value
    request = ask(
        query, key, value, score=score, bias=bias, mask=mask, normaliser=normaliser, dropout=dropout
    )
    choice = choose(request, value)
    refused = {
        name: candidate.objection(request, value) or _passed_over(candidate, choice, request)
        for name, candidate in KERNELS.items()
        if candidate is not choice
    }
    because = "pinned" if pinned() else _because(choice, request, value)
    return Explanation(choice.name, because, refused)


def _passed_over(candidate: Kernel, choice: Kernel, request: Request) -> str:
    """Why a kernel that could serve a request does not."""
    if candidate is CPU and not pinned() and CPU.pays(request):
        return (
            "can serve this as soon as its loops are compiled, which another process does now, once; "
            f"{choice.name} serves until then"
        )
    if candidate is CPU and choice is REFERENCE:
        return f"can serve this, which is too small to gain by it; {choice.name} comes first"
    return f"can serve this; {choice.name} comes first"


def _because(choice: Kernel, request: Request, value: Tensor) -> str:
    size = f"{request.queries} queries x {request.keys} keys on {request.query.device.type}"
    if choice is REFERENCE and CPU.objection(request, value) is None and not CPU.pays(request):
        return f"the fastest at this size, {size}"
    if choice is REFERENCE:
        return f"small enough to be computed as a whole, {size}"
    if choice is TRITON:
        return f"the fastest that serves this on a GPU, as measured on an H100, {size}"
    if choice is BLOCKED:
        return f"too large to be computed as a whole, {size}"
    tiled = choice in (MATMUL, SDPA) and not is_triangle(request)
    if tiled and (division := divide(request, fused=choice is SDPA)) is not None:
        share = area(division) / (len(division) * request.queries * request.keys)
        size += f", in {sum(map(len, division))} tiles that hold {share:.1%} of the pairs"
    return f"the fastest that serves this, {size}"
