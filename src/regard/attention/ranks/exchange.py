"""What ranks send to one another: each its message to all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
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


def gather(group: ProcessGroup, numbers: Callable[[], np.ndarray], count: int) -> np.ndarray:
    """The numbers of every rank, (ranks, count) in float64, in the order of the ranks.

    A rank that fails to compute its numbers tells the others, so that none waits for it.

    Args:
        group: the ranks; its time-out is the longest wait.
        numbers: computes those of this rank, at most `count` in one row; zeros follow them.
        count: the same on every rank.

    Raises:
        RankError: another rank failed.
    """
    # A mark of failure, and the numbers, of each rank. Operations on few numbers take numpy half the time of torch.
    messages = np.zeros((group.size(), 1 + count))
    rows = torch.from_numpy(messages).unbind()
    ours, message = messages[group.rank()], rows[group.rank()]
    receipts = _receipts(group, rows)
    try:
        answer = numbers()
        ours[1 : 1 + len(answer)] = answer
    except Exception:
        ours[0] = 1
        with suppress(RankError):
            _exchange(group, message, receipts)
        raise
    _exchange(group, message, receipts)
    if (marks := messages[:, 0]).any():
        raise RankError(int(marks.argmax()), "failed: its own error says why")
    return messages[:, 1:]


def _receipts(group: ProcessGroup, rows: Sequence[Tensor]) -> dict[int, Work]:
    """Begin to receive the message of each other rank.

    Before this rank computes its own: Gloo asks for room before it sends, unless a rank has said where its room is.
    """
    receipts: dict[int, Work] = {}
    rank = group.rank()
    for peer, row in enumerate(rows):
        if peer != rank:
            try:
                receipts[peer] = group.recv([row], peer, TAG)
            except RuntimeError as error:
                raise _lost(peer, error) from error
    return receipts


def _exchange(group: ProcessGroup, message: Tensor, receipts: dict[int, Work]) -> None:
    """Send the message of this rank, and wait for those of the others.

    From rank to rank, so that it is known which one fails; an all-gather of Gloo takes longer and does not tell.
    """
    deliveries: dict[int, Work] = {}
    peer = group.rank()
    try:
        for peer in receipts:
            deliveries[peer] = group.send([message], peer, TAG)
        for works in (receipts, deliveries):
            for peer in works:
                works[peer].wait()
    except RuntimeError as error:
        raise _lost(peer, error) from error


def _lost(rank: int, error: RuntimeError) -> RankError:
    reason = str(error).strip().splitlines()[-1]
    return RankError(rank, f"ended or does not answer: {reason}")
