"""The processes of one training: what they add up, agree on and hear from the first of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Self

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store

from regard.errors import ConfigurationError, TrainingError
from regard.translation.training.parent import end_now, end_with_parent

# Others wait for the first process to validate or save, however long it takes; a process that
# ended is noticed by its closed connection, and torchrun ends what is left.
_PATIENCE = timedelta(days=365)
_JOINING = timedelta(minutes=10)
# Gradients travel in pieces of so many numbers, so that no copy of all of them is made.
_BUCKET = 1 << 23


class Processes:
    """A training in one process: nothing to add up, nobody to wait for."""

    rank = 0
    size = 1

    def __init__(self, device: str = "cpu") -> None:
        self.device = torch.device(device)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        pass

    @property
    def first(self) -> bool:
        """Whether this process writes, prints and validates."""
        return self.rank == 0

    def sum(self, tensors: Iterable[Tensor]) -> None:
        """Put into every tensor its sum over the processes, the same bits in each of them."""

    def total(self, value: float) -> float:
        """The sum of a number over the processes."""
        return value

    def any(self, value: bool) -> bool:
        """Whether it is so in any process."""
        return value

    def numbers(self, values: Sequence[float]) -> list[float]:
        """What the first process gave; as many numbers everywhere."""
        return list(values)

    def content(self, content: bytes) -> bytes:
        """What the first process gave."""
        return content

    def wait(self) -> None:
        """Until all are here."""

    def first_to_fail(self) -> bool:
        """Whether no other process has failed before: one failure is told once, where it happened."""
        return True

    def seed(self, seed: int, step: int) -> int | None:
        """What the random numbers of a step start from; None where they simply go on.

        With several processes it is worked out from the configuration's seed, the step and the rank, so
        that each has draws of its own, and a resumed training those of an uninterrupted one.
        """
        return None


class Joined(Processes):
    """One of several processes that share the batches of a training."""

    def __init__(self, store: Store, rank: int, size: int, device: str = "cpu") -> None:
        super().__init__(device)
        self.rank, self.size, self._store = rank, size, store
        backend = "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo"
        with _peers():
            dist.init_process_group(
                backend,
                store=PrefixStore("regard", store),
                rank=rank,
                world_size=size,
                timeout=_PATIENCE,
            )

    def __exit__(self, *fault: object) -> None:
        # After a failure the others may never come to it: the end of the process closes everything.
        if fault[0] is None:
            dist.destroy_process_group()

    def sum(self, tensors: Iterable[Tensor]) -> None:
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            with _peers():
                dist.all_reduce(flat)
            for tensor, part in zip(bucket, flat.split([t.numel() for t in bucket]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def total(self, value: float) -> float:
        number = torch.tensor(value, dtype=torch.float64)
        with _peers():
            dist.all_reduce(number)
        return float(number)

    def any(self, value: bool) -> bool:
        return self.total(float(value)) > 0

    def numbers(self, values: Sequence[float]) -> list[float]:
        given = torch.tensor(values, dtype=torch.float64)
        with _peers():
            dist.broadcast(given, src=0)
        return [float(value) for value in given]

    def content(self, content: bytes) -> bytes:
        (length,) = self.numbers([len(content)])
        given = torch.zeros(int(length), dtype=torch.uint8)
        if self.first:
            given.numpy()[:] = np.frombuffer(content, dtype=np.uint8)
        with _peers():
            dist.broadcast(given, src=0)
        return given.numpy().tobytes()

    def wait(self) -> None:
        self.total(0.0)

    def first_to_fail(self) -> bool:
        try:
            return int(self._store.add("failures", 1)) == 1
        except RuntimeError:  # its keeper has ended
            return True

    def seed(self, seed: int, step: int) -> int | None:
        drawn = np.random.SeedSequence([seed, step, self.rank]).generate_state(1, np.uint64)
        return int(drawn[0])


def join(device: str = "cpu") -> Processes:
    """The processes that torchrun started beside this one; a training alone where it did not.

    On `cuda` each takes the device of its local rank and gradients travel by NCCL, elsewhere by Gloo.

    Raises:
        ConfigurationError: the device is none that several processes can share out.
        TrainingError: the others did not come.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Processes(device)
    if "TORCHELASTIC_RUN_ID" in os.environ:  # started by torchrun
        end_with_parent(partial(end_now, os.environ.get("RANK") == "0"))
    kind = torch.device(device)
    if kind.type not in ("cpu", "cuda") or kind.index is not None:
        raise ConfigurationError(
            f"--device {device}: several processes train on cpu, or on cuda with one device each"
        )
    if kind.type == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        if torch.device(device).index >= torch.cuda.device_count():
            raise ConfigurationError(
                f"{device}: this machine has {torch.cuda.device_count()} such devices: start as many processes"
            )
        torch.cuda.set_device(device)
    with _peers():
        store, rank, size = next(iter(dist.rendezvous("env://", timeout=_JOINING)))
        return Joined(store, rank, size, device)


def parted(fault: BaseException) -> bool:
    """Whether a fault is that of a connection which another process no longer holds."""
    text = str(fault)
    return isinstance(fault, dist.DistError) or (
        isinstance(fault, RuntimeError) and ("gloo" in text or "onnection" in text)
    )


def alone() -> TrainingError:
    """What is said of another process that ended without a word."""
    return TrainingError(
        "another process of this training has ended: go on from the newest checkpoint with --resume"
    )


@contextmanager
def _peers() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError) as fault:
        if parted(fault):
            raise alone() from None
        raise TrainingError(f"the processes cannot talk to each other: {fault}") from None


def _buckets(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for tensor in tensors:
        bucket.append(tensor)
        if sum(each.numel() for each in bucket) >= _BUCKET:
            yield bucket
            bucket = []
    if bucket:
        yield bucket
