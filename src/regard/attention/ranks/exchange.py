"""What ranks send to one another: each its message to all others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.distributed import ProcessGroup, Work


TAG = 0  # of messages


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


def gather(group: ProcessGroup, numbers: Callable[[], Tensor], count: int) -> Tensor:
    """The numbers of every rank, (ranks, count) in the order of the ranks.

    A rank that fails to compute its numbers tells the others, so that none waits for it.

    Args:
        group: the ranks; its time-out is the longest wait.
        numbers: computes those of this rank, a tensor of at most `count` in float64; zeros follow them.
        count: the same on every rank.

    Raises:
        RankError: another rank failed.
    """
    # A mark of failure, and the numbers, of each rank.
    messages = torch.zeros(group.size(), 1 + count, dtype=torch.float64)
    message = messages[group.rank()]
    receipts = _receipts(group, messages)
    try:
        ours = numbers().detach().flatten()
        message[1 : 1 + len(ours)] = ours
    except Exception:
        message[0] = 1
        with suppress(RankError):
            _exchange(group, message, receipts)
        raise
    _exchange(group, message, receipts)
    for rank, mark in enumerate(messages[:, 0].tolist()):
        if mark:
            raise RankError(rank, "failed: its own error says why")
    return messages[:, 1:]


def _receipts(group: ProcessGroup, messages: Tensor) -> dict[int, Work]:
    """Begin to receive the message of each other rank.

    Before this rank computes its own: Gloo asks for room before it sends, unless a rank has said where its room is.
    """
    receipts = {}
    for peer in range(group.size()):
        if peer != group.rank():
            with _named(peer):
                receipts[peer] = group.recv([messages[peer]], peer, TAG)
    return receipts


def _exchange(group: ProcessGroup, message: Tensor, receipts: dict[int, Work]) -> None:
    """Send the message of this rank, and wait for those of the others.

    From rank to rank, so that it is known which one fails; an all-gather of Gloo takes longer and does not tell.
    """
    deliveries = {}
    for peer in receipts:
        with _named(peer):
            deliveries[peer] = group.send([message], peer, TAG)
    for works in (receipts, deliveries):
        for peer, work in works.items():
            with _named(peer):
                work.wait()


@contextmanager
def _named(rank: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise RankError(rank, f"ended or does not answer: {reason}") from error
