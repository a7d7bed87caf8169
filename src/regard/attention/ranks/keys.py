"""Which of all keys a rank holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from torch import Tensor

from regard.attention.masks import MaskLike, as_mask, causal
from regard.attention.masks.mask import Mask, check_boolean, check_name
from regard.attention.masks.sections import section
from regard.attention.positions.biases import BiasLike, function_of
from regard.attention.ranks.exchange import RankError, gather
from regard.attention.shapes import Frame, Shape, ShapeError, check_plane

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

AXES = 16  # that a message has room for
HEADER = 4 + AXES
ROOM = 1024  # numbers of an answer that is sent with the header

T = TypeVar("T")


class Description(NamedTuple):
    """What a rank passed."""

    queries: Shape  # (*batch, queries)
    width: int  # of the values; -1 where a rank holds none and does not know it
    keys: int
    has_rules: bool  # whether it has a mask or a bias
    answer: np.ndarray | None = None  # up to `ROOM` numbers, which need no message of their own


class Keys(NamedTuple):
    """The keys of this rank among those of all ranks, which follow one another in the order of the ranks."""

    start: int
    stop: int
    total: int
    width: int  # of the values
    has_rules: bool = False  # whether any rank has a mask or a bias
    answers: np.ndarray | None = None  # (ranks, numbers), where each rank sent them with its header

    @property
    def columns(self) -> range:
        return range(self.start, self.stop)

    def mask_of(self, mask: MaskLike | None, frame: Frame) -> Mask | Tensor | None:
        """The mask of all keys, for those of this rank."""
        if mask is None:
            return None
        if isinstance(mask, str):
            check_name(mask, frame.queries, self.total)
            mask = causal(align="start")
        if isinstance(mask, Tensor):
            check_boolean(mask)
            return self._of_plane("mask", mask, frame)
        return section(as_mask(mask), self.columns, frame._replace(keys=self.total))

    def bias_of(self, bias: BiasLike | None, frame: Frame) -> BiasLike | None:
        """The bias of all keys, for those of this rank."""
        if bias is None or isinstance(bias, Tensor):
            return None if bias is None else self._of_plane("bias", bias, frame)
        function, start = function_of(bias), self.start

        def moved(rows: Tensor, columns: Tensor) -> Tensor:
            assert function is not None
            return function(rows, columns + start)

        return moved

    def _of_plane(self, name: str, plane: Tensor, frame: Frame) -> Tensor:
        check_plane(name, plane.shape, frame.queries, self.total)
        return plane if plane.shape[-1] == 1 else plane[..., self.start : self.stop]


def meet(group: ProcessGroup, describe: Callable[[], Description]) -> Keys:
    """Where the keys of this rank stand.

    Args:
        group: the ranks.
        describe: what this rank passed, and its answer where that needs nothing of other ranks.

    Raises:
        RankError: a rank has other queries or another width, or failed.
        ShapeError: the queries have too many axes.
    """

    def numbers() -> np.ndarray:
        queries, width, keys, has_rules, answer = describe()
        count = -1 if answer is None else len(answer)
        header = np.array([count, keys, has_rules, width, *_padded(queries)], np.float64)
        return header if answer is None else np.concatenate([header, answer])

    messages, rank = gather(group, numbers, HEADER + ROOM), group.rank()
    descriptions = messages[:, 3:HEADER]
    ours = descriptions[rank]
    if not (descriptions == ours).all():
        _check(descriptions, rank)
    counts, lengths, rules, widths = messages[:, :4].astype(int).T.tolist()
    start = sum(lengths[:rank])
    answers = None
    if min(counts) >= 0:
        answers = messages[:, HEADER : HEADER + counts[0]]
    return Keys(start, start + lengths[rank], sum(lengths), max(widths), any(rules), answers)


def _check(descriptions: np.ndarray, rank: int) -> None:
    """Refuse ranks that passed other queries than this one, or values of another width."""
    ours = descriptions[rank]
    for peer, theirs in enumerate(descriptions):
        has_width = ours[0] >= 0 and theirs[0] >= 0
        if (theirs[1:] != ours[1:]).any() or (has_width and theirs[0] != ours[0]):
            raise RankError(
                peer,
                f"has {_described(theirs)}, this one has {_described(ours)}: pass the same"
                " queries, and values of one width, on all ranks",
            )


def agree(group: ProcessGroup, keys: Keys, compute: Callable[[], tuple[T, Shape]]) -> T:
    """What this rank computes from a mask and a bias for all keys.

    Args:
        group: the ranks; they exchange a message if any of them has a mask or a bias.
        keys: those of this rank.
        compute: the result, and the batch axes of the weights.

    Raises:
        RankError: a rank has other batch axes, or failed.
    """
    if not keys.has_rules:
        return compute()[0]
    results: list[T] = []

    def numbers() -> np.ndarray:
        result, batch = compute()
        results.append(result)
        return np.array(_padded(batch), np.float64)

    shapes = gather(group, numbers, AXES)
    for rank, shape in enumerate(shapes):
        if not np.array_equal(shape, shapes[group.rank()]):
            raise RankError(
                rank, "has other batch axes: pass the same mask and bias, of all keys, on all ranks"
            )
    return results[0]


def _padded(shape: Shape) -> list[int]:
    if len(shape) > AXES:
        raise ShapeError(f"queries have {len(shape)} axes: pass at most {AXES}")
    return [*shape, *[-1] * (AXES - len(shape))]


def _described(description: np.ndarray) -> str:
    width, *padded = description.astype(int).tolist()
    return f"queries of shape {[size for size in padded if size >= 0]} and values {width} wide"
