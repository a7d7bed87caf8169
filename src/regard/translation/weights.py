"""Reading and writing safetensors files, with checks before any tensor is used."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from regard import files, tensor_files
from regard.errors import CheckpointError, CorruptedError, ModelError, raised_as
from regard.tensor_files import PickledError, TensorFileError, UnreadTypeError
from regard.translation import checksums

_SMALL = 2**27  # bytes
# The matrix NAME of whole numbers is stored beside the scales of its rows, NAME.scale.
_SCALES = ".scale"

Shapes = Mapping[str, tuple[int, ...]]


def dump(tensors: Mapping[str, Tensor]) -> bytes:
    flat = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    return safetensors.torch.save(flat)


def rounded(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices as whole numbers of 8 bits with a scale for each row, all else in half precision: a quarter of the size.

    A row w is stored as round(w / s) and s = max |w| / 127, so that each number moves by at most s / 2. `load` gives
    the products in float32.
    """
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dim() == 2 and tensor.is_floating_point():
            scales = tensor.float().abs().amax(1) / 127
            steps = tensor.float() / scales.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
            stored |= {name: steps.round().to(torch.int8), name + _SCALES: scales}
        else:
            stored[name] = halved(name, tensor)
    return stored


def halved(name: str, tensor: Tensor) -> Tensor:
    """A tensor in half precision. Raises `ModelError` where that cannot hold its numbers."""
    half = tensor.half()
    if not bool(torch.isfinite(half).all()):
        raise ModelError(f"tensor {name} holds numbers beyond half precision: export float32")
    return half


def save(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors to `path`, which holds the whole file or what it held before."""
    files.write(path, dump(tensors))


def load(
    path: Path, checksum: str | None = None, check: Callable[[Shapes], object] = lambda shapes: None
) -> dict[str, Tensor]:
    """The tensors of a file.

    Args:
        checksum: its sha256, where that is known.
        check: called with the shapes in the header, without the scales of rows, before any tensor is read; it
            raises for shapes that do not fit.

    Raises:
        CheckpointError: it is not a whole safetensors file, or has another checksum; names the file.
    """
    with raised_as(CheckpointError, f"{path}: cannot be read"), files.opened(path) as file:
        with _named(path):
            entries = tensor_files.header(file).entries
        shapes = {name: entry.shape for name, entry in entries.items()}
        scaled = {name: name + _SCALES for name in shapes if name + _SCALES in shapes}
        for name, scales in scaled.items():
            if shapes[scales] != shapes[name][:1]:
                raise _corrupted(path, f"{scales} has not one number for each row of {name}")
        try:
            check({n: shape for n, shape in shapes.items() if n not in scaled.values()})
        except CheckpointError:
            # A small file is read whole, to report a damaged one rather than one of another model.
            if os.fstat(file.fileno()).st_size <= _SMALL:
                file.seek(0)
                checksums.compare(file.read(), checksum, path)
            raise
        file.seek(0)
        content = file.read()
    checksums.compare(content, checksum, path)
    with _named(path):
        tensor_files.check_types(entries)
        tensors = tensor_files.load(content)
    for name, scales in scaled.items():
        tensors[name] = tensors[name].float() * tensors.pop(scales)[:, None]
    return tensors


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Raise a `CheckpointError` that names a file which is not a whole safetensors file."""
    try:
        yield
    except (PickledError, UnreadTypeError) as fault:
        raise CheckpointError(f"{path}: {fault}") from None
    except TensorFileError as fault:
        raise _corrupted(path, str(fault)) from None


def load_into(module: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Give a model its weights, any floating type.

    Raises:
        CheckpointError: one does not fit the model or is not finite; names the first, and nothing is changed.
    """
    weights_of_model = unique(module)
    check_shapes(module, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, path)
    for name in sorted(weights_of_model):
        check_finite(name, tensors[name], weights_of_model[name].dtype, path)
    with torch.no_grad():
        for name, weight in weights_of_model.items():
            weight.copy_(tensors[name])


def check_finite(name: str, tensor: Tensor, dtype: torch.dtype, path: Path) -> None:
    """Raise `CheckpointError` for a tensor of another kind of type than wanted, or that is not finite in it."""
    if tensor.is_floating_point() != dtype.is_floating_point:
        raise CheckpointError(f"{path}: tensor {name} is {tensor.dtype}, expected {dtype}")
    # In the wanted precision: a large float64 is infinite in float32.
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor.to(dtype)).all()):
        raise CheckpointError(f"{path}: tensor {name} holds numbers that are not finite")


def check_shapes(module: nn.Module, shapes: Shapes, path: Path) -> None:
    """Raise `CheckpointError` naming the first tensor that the model lacks, needs, or has in another shape."""
    compare_shapes({name: tuple(own.shape) for name, own in unique(module).items()}, shapes, path)


def compare_shapes(expected: Shapes, shapes: Shapes, path: Path) -> None:
    """Raise `CheckpointError` naming the first tensor that is missing, not expected, or of another shape."""
    for name in sorted(expected.keys() | shapes.keys()):
        if name not in shapes:
            raise CheckpointError(f"{path}: tensor {name} is missing")
        if name not in expected:
            raise CheckpointError(f"{path}: tensor {name} has no place in this model")
        if shapes[name] != expected[name]:
            raise CheckpointError(
                f"{path}: tensor {name} has shape {shapes[name]}, "
                f"the configuration asks for {expected[name]}"
            )


def unique(module: nn.Module) -> dict[str, Tensor]:
    """The state of a model with each shared tensor once, under its first name."""
    state = module.state_dict(keep_vars=True)
    names = {id(tensor): name for name, tensor in reversed(state.items())}
    return {name: tensor.detach() for name, tensor in state.items() if names[id(tensor)] == name}


def _corrupted(path: Path, why: str) -> CorruptedError:
    return CorruptedError(f"{path}: corrupted or truncated: {why}")
