"""What ranks send to one another: each its message to all others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.distributed import ProcessGroup


class RankError(RuntimeError):
    """Another rank ended, failed, does not answer in time, or passed something else.

    Attributes:
        rank: which one, as the group counts.
    """

    def __init__(self, rank: int, problem: str) -> None:
        super().__init__(rank, problem)
        self.rank = rank

    def __str__(self) -> str:
        return "rank {} {}".format(*self.args)


def gather(group: ProcessGroup, numbers: Callable[[], Tensor], count: int) -> list[Tensor]:
    """The numbers of every rank, in the order of the ranks.

    A rank that fails to compute its numbers tells the others, so that none waits for it.

    Args:
        group: the ranks; its time-out is the longest wait.
        numbers: computes those of this rank, a tensor of `count` in float64.
        count: the same on every rank.

    Raises:
        RankError: another rank failed.
    """
    message = torch.zeros(1 + count, dtype=torch.float64)  # a mark of failure, and the numbers
    try:
        message[1:] = numbers().detach().flatten()
    except Exception:
        message[0] = 1
        with suppress(RankError):
            _exchange(group, message)
        raise
    messages = _exchange(group, message)
    for rank, received in enumerate(messages):
        if received[0]:
            raise RankError(rank, "failed: its own error says why")
    return [received[1:] for received in messages]


def _exchange(group: ProcessGroup, message: Tensor) -> list[Tensor]:
    """The message of every rank. Sent from rank to rank, so that it is known which one fails."""
    rank = group.rank()
    messages = [torch.empty_like(message) for _ in range(group.size())]
    messages[rank] = message
    receipts, deliveries = {}, {}
    for peer in range(group.size()):
        if peer != rank:
            with _named(peer):
                receipts[peer] = dist.irecv(messages[peer], group=group, group_src=peer)
                deliveries[peer] = dist.isend(message, group=group, group_dst=peer)
    for works in (receipts, deliveries):
        for peer, work in works.items():
            with _named(peer):
                assert work is not None
                work.wait()
    return messages


@contextmanager
def _named(rank: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise RankError(rank, f"ended or does not answer: {reason}") from error
