"""The processes of one training: sums over them, and broadcasts from the first one."""

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Self

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from regard.errors import ConfigurationError, TrainingError

# The others wait while the first process validates or saves. A process that ended is noticed by its closed
# connection, and torchrun ends the others.
_PATIENCE = timedelta(days=365)
_JOINING = timedelta(minutes=10)


@contextmanager
def _connected() -> Iterator[None]:
    """Report a failed exchange as `TrainingError`."""
    try:
        yield
    except (RuntimeError, ValueError) as fault:
        error = TrainingError(f"the processes cannot exchange data: {fault}")
        raise ended_elsewhere(fault) or error from None


class Processes:
    """The processes that share the batches of a training; without a store, this process alone.

    In a single process sums and broadcasts return the values of this process.
    """

    def __init__(
        self, device: str = "cpu", store: Store | None = None, rank: int = 0, size: int = 1
    ) -> None:
        self.device = torch.device(device)
        self.rank, self.size, self._store = rank, size, store
        if store is not None:
            backend = "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo"
            with _connected():
                dist.init_process_group(
                    backend,
                    store=PrefixStore("regard", store),
                    rank=rank,
                    world_size=size,
                    timeout=_PATIENCE,
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        # After a failure the others may not call this, too, and this would wait: the end of the process cleans up.
        if self._store is not None and fault[0] is None:
            dist.destroy_process_group()

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, tensors: Iterable[Tensor]) -> None:
        """Replace every tensor by its sum over the processes, in memory that all share. All get the same bits."""
        if self._store is None:
            return
        added = list(tensors)
        flat = parameters_to_vector(added)
        with _connected():
            dist.all_reduce(flat)
        vector_to_parameters(flat, added)

    @_connected()
    def total(self, value: float) -> float:
        number = torch.tensor(value, dtype=torch.float64)
        if self._store is not None:
            dist.all_reduce(number)
        return float(number)

    def any(self, value: bool) -> bool:
        return self.total(float(value)) > 0

    @_connected()
    def numbers(self, values: Sequence[float]) -> list[float]:
        """The numbers of the first process. All processes must pass equally many."""
        tensor = torch.tensor(values, dtype=torch.float64)
        if self._store is not None:
            dist.broadcast(tensor, src=0)
        return [float(value) for value in tensor]

    @_connected()
    def content(self, content: bytes) -> bytes:
        if self._store is None:
            return content
        (length,) = self.numbers([len(content)])
        buffer = torch.zeros(int(length), dtype=torch.uint8)
        if self.is_first:
            buffer.numpy()[:] = np.frombuffer(content, dtype=np.uint8)
        dist.broadcast(buffer, src=0)
        return buffer.numpy().tobytes()

    def wait(self) -> None:
        self.total(0.0)

    def first_to_fail(self) -> bool:
        """Whether no other process has failed before: only the first failure is reported."""
        try:
            return self._store is None or int(self._store.add("failures", 1)) == 1
        except RuntimeError:  # the process with the store has ended
            return True

    def seed(self, seed: int, step: int) -> int | None:
        """The random seed of a step; None in a single process, whose random state is part of checkpoints.

        Several processes derive it from the configuration's seed, the step and the rank. So each draws its own numbers,
        and a resumed training draws those of an uninterrupted one.
        """
        if self._store is None:
            return None
        numbers = np.random.SeedSequence([seed, step, self.rank]).generate_state(1, np.uint64)
        return int(numbers[0])


def join(device: str = "cpu") -> Processes:
    """Join the processes that torchrun started, or return a single process if torchrun did not start this one.

    On `cuda` each process takes the GPU of its local rank and communicates by NCCL, on other devices by Gloo.

    Raises:
        ConfigurationError: several processes cannot use the device.
        TrainingError: the processes did not connect.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Processes(device)
    if "TORCHELASTIC_RUN_ID" in os.environ:  # started by torchrun
        end_with_parent(os.environ.get("RANK") == "0")
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
    with _connected():
        store, rank, size = next(iter(dist.rendezvous("env://", timeout=_JOINING)))
    return Processes(device, store, rank, size)


def ended_elsewhere(fault: BaseException) -> TrainingError | None:
    """The error to report if an exception means that another process has closed its connection, else None."""
    text = str(fault)
    lost = isinstance(fault, RuntimeError) and ("gloo" in text or "onnection" in text)
    if not lost and not isinstance(fault, dist.DistError):
        return None
    return TrainingError(
        "another process of this training has ended: continue from the newest checkpoint with --resume"
    )


def end_with_parent(is_first: bool) -> None:
    """End this process once its parent has ended: torchrun that is killed by SIGKILL ends no process.

    The `is_first` of several processes prints a message.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        if is_first:
            message = (
                "error: torchrun has ended: continue from the newest checkpoint with --resume\n"
            )
            with suppress(OSError):  # standard error may be closed, too
                os.write(2, message.encode())
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
