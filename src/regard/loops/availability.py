"""Whether compiled loops may compute something: they read numbers where they lie in memory."""

import os

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

OFF = "NUMBA_DISABLE_JIT"
TRACERS = (torch._C._TorchDispatchModeKey.FAKE, torch._C._TorchDispatchModeKey.PROXY)
# Every call asks these: a name of this module is found in a third of the time.
_is_compiling = torch.compiler.is_compiling
_is_tracing = torch._C._is_tracing
_tracing_state = torch._C._get_tracing_state
_has_transforms = torch._C._are_functorch_transforms_active
_dispatch_modes = torch._C._len_torch_dispatch_stack


def serve(*tensors: Tensor) -> bool:
    """Whether compiled loops may read these tensors: plain tensors, and nothing is traced."""
    return are_compiled() and not transformed() and all(map(_is_plain, tensors))


def are_compiled() -> bool:
    """Whether loops are compiled: with NUMBA_DISABLE_JIT set they are not, and Python has no vectors."""
    return os.environ.get(OFF, "0").strip() in ("", "0")


def transformed() -> bool:
    """Whether a compiler or transform is tracing, so that numbers cannot be read."""
    if _is_compiling() or _is_tracing() or _has_transforms():
        return True
    return _dispatch_modes() > 0 and any(
        torch._C._get_dispatch_mode(mode) is not None for mode in TRACERS
    )


def followed() -> bool:
    """Whether numbers cannot be read, or torch takes derivatives forwards, so that a call needs its operations."""
    return transformed() or forward_ad._current_level >= 0


def are_equal(left: int, right: int) -> bool:
    """Whether two lengths are equal for all sizes that a compiled graph serves."""
    # torch.compile knows this call. Lengths that are recorded may differ later.
    if _tracing_state() is not None:
        return False
    from torch.fx.experimental.symbolic_shapes import statically_known_true  # loads sympy

    return statically_known_true(left == right)


def capturing(device: torch.device) -> bool:
    """Whether a CUDA graph is captured: then Python cannot read numbers, and memory has none before the graph runs."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def has_numbers(tensor: Tensor) -> bool:
    """Whether Python may read these numbers: of a plain tensor, on a processor, with nothing traced.

    On a GPU reading a number waits for all the work before it.
    """
    return tensor.is_cpu and _is_plain(tensor) and not transformed()


def device_objection(name: str | torch.device) -> str | None:
    """Why this machine cannot compute on a device; None if it can.

    Example:
        >>> device_objection("cpu"), device_objection("gpu")[:29]
        (None, 'is no device that torch knows')
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        return f"is no device that torch knows; this machine has {', '.join(_devices())}"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as fault:
        why = str(fault).strip().splitlines()[0][:200] if str(fault).strip() else "not available"
        return f"cannot be used here: {why}; this machine has {', '.join(_devices())}"
    return None


def _devices() -> list[str]:
    """The devices of this machine, as torch names them."""
    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if kind is None:
        return ["cpu"]
    count = torch.accelerator.device_count()
    return ["cpu", *([kind.type] if count < 2 else [f"{kind.type}:{n}" for n in range(count)])]


def hooks_saved_tensors() -> bool:
    """Whether hooks are on what autograd saves, as in torch's checkpoints, which compute a call twice and compare."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def in_forward_mode() -> bool:
    """Whether torch.func.jvp, jacfwd or a dual level takes derivatives forwards."""
    return forward_ad._current_level >= 0


def differentiated() -> bool:
    """Whether torch.func or forward mode takes the derivatives, and not torch.autograd alone.

    Gradients of our own code do not support these: some would be 0 without an error.
    """
    if in_forward_mode():
        return True
    if not torch._C._are_functorch_transforms_active():
        return False
    if torch.compiler.is_compiling():  # which cannot read the stack: perhaps it is vmap alone
        return True
    stack = torch._C._functorch.get_interpreter_stack() or ()
    return any(each.key() != torch._C._functorch.TransformType.Vmap for each in stack)


def _is_plain(tensor: Tensor) -> bool:
    """Whether it is no subclass, which may hold no numbers (fake) or only some (a shard)."""
    return type(tensor) in (Tensor, nn.Parameter, nn.Buffer)
