"""Errors that the user can mend: each message says what happened, to which argument or file, and what to do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

# Parts of the messages of the allocators of torch, of CUDA's libraries and of C++, and of the dynamic linker.
_MEMORY = re.compile(
    "out of memory|allocate memory|not enough memory|bad_alloc|alloc_failed|defaultcpuallocator"
    "|map segment",
    re.IGNORECASE,
)


class RegardError(Exception):
    """A mistake or a fault outside the program. Its text says what, where and what to do.

    Several faults of one thing, each an argument, are lines of its text.
    """

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


class ConfigurationError(RegardError):
    """A configuration or an argument that cannot be used (exit code 2)."""


class DataError(RegardError):
    """A corpus or a text that cannot be used; names the file and the line."""


class ModelError(RegardError):
    """A model that cannot be opened or that answers nonsense; names the file or the tensor."""


class CheckpointError(ModelError):
    """A checkpoint that cannot be used: corrupted, or from another configuration or version."""


class CorruptedError(CheckpointError):
    """A file that is not as it was written: cut short, or changed."""


class TrainingError(RegardError):
    """A training that had to stop: not-a-number loss, memory, or space."""


def library(name: str, extra: str = "formats") -> Any:
    """A library of an extra. Raises `ConfigurationError` saying how to get it when it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        raise ConfigurationError(
            f"{name} is not installed: pip install 'regard[{extra}]'"
        ) from None


@contextmanager
def raised_as(kind: type[RegardError], message: str) -> Iterator[None]:
    """Turn an `OSError` of the block into an error of this kind: "what: the system's reason"."""
    try:
        yield
    except OSError as fault:
        raise kind(f"{message}: {fault.strerror or fault}") from None


def ran_out_of_memory(fault: BaseException) -> bool:
    """Whether an exception of Python or of a library means that memory ran out.

    >>> ran_out_of_memory(MemoryError()), ran_out_of_memory(RuntimeError("unsupported memory format"))
    (True, False)
    """
    # A library that does not fit into memory is an ImportError.
    foreign = isinstance(fault, RuntimeError | ImportError)
    return isinstance(fault, MemoryError) or (foreign and bool(_MEMORY.search(str(fault))))


@contextmanager
def memory_named(doing: str, lower: str) -> Iterator[None]:
    """Raise `TrainingError` when memory runs out in the block, naming the work (`doing`) and the keys to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as fault:
        if not ran_out_of_memory(fault):
            raise
        raise TrainingError(f"out of memory {doing}: lower {lower}") from None


def one_line(fault: Exception, longest: int = 200) -> str:
    """The text of an error of another library on one line, at most so many characters."""
    return " ".join(str(fault).split())[:longest]
