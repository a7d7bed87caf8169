"""The labels of a look in pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from regard.attention.looks.entries import Entry
from regard.attention.shapes import Shape


@dataclass(frozen=True, eq=False)
class Caption:
    """The labels of a look: `regard.watch` writes them, pictures show them.

    Attributes:
        title: the model and the attention, such as "BertModel: encoder.1.self".
        axes: for each batch axis the numbers of its entries, a range where none was left out, and a single
            number for an axis that an index took away; None for 0, 1, 2, ... along each.
        headed: whether the last of them are heads.
        places: (queries,), the position of each query; None for 0, 1, 2, ...
    """

    title: str = ""
    axes: tuple[Sequence[int] | int, ...] | None = None
    headed: bool = False
    places: Tensor | None = None

    def of(self, place: tuple[int, ...]) -> str:
        """The name of one matrix, by its indices along the batch axes of the look.

        >>> Caption("model: self", axes=(range(2), (4, 9)), headed=True).of((0, 1))
        'entry 0, head 9'
        """
        indices = iter(place)
        axes = [range(1 + index) for index in place] if self.axes is None else self.axes
        numbers = [axis if isinstance(axis, int) else axis[next(indices)] for axis in axes]
        entry = numbers[:-1] if self.headed else numbers
        label = str(entry[0]) if len(entry) == 1 else str(entry)
        label = f"entry {label}" if self.title else label
        heads = [f"head {number}" for number in numbers[len(entry) :]]
        return ", ".join([label] * bool(entry) + heads)

    def selected(self, entries: tuple[Entry, ...], shape: Shape) -> Caption:
        """Of a look of this shape, the caption of these entries.

        >>> Caption().selected((1, slice(2, 4)), (3, 4, 5, 5)).of((0,))
        '[1, 2]'
        """
        axes = tuple(map(range, shape[:-2])) if self.axes is None else self.axes
        indices = iter(entries)
        selected = tuple(
            axis if isinstance(axis, int) else _selected(axis, next(indices)) for axis in axes
        )
        return replace(self, axes=selected)

    def merged(self) -> Caption:
        """The caption after the last two batch axes became one: of groups of n, i n + j is member j of group i.

        Where some members of the groups were left out before, n is not known, and the entries of all
        axes are numbered 0, 1, 2, ...

        >>> Caption(axes=(1, range(2), range(4))).merged().of((6,))
        '[1, 6]'
        """
        if self.axes is None:
            return self
        axes = self.axes
        *_, outer, inner = (n for n, axis in enumerate(axes) if not isinstance(axis, int))
        groups, members = axes[outer], axes[inner]
        if isinstance(groups, int) or not isinstance(members, range):
            return replace(self, axes=None, headed=False)
        heads = [group * len(members) + member for group in groups for member in members]
        return replace(
            self, axes=(*axes[:outer], *axes[outer + 1 : inner], heads, *axes[inner + 1 :])
        )

    def averaged(self) -> Caption:
        """The caption of the mean over the last batch axis that is left."""
        axes = self.axes or ()
        averaged = max(
            (n for n, axis in enumerate(axes) if not isinstance(axis, int)), default=None
        )
        if averaged is None:
            return self
        heads = self.headed and averaged == len(axes) - 1
        title = f"{self.title}, mean of {'heads' if heads else 'entries'}" if self.title else ""
        axes = (*axes[:averaged], *axes[averaged + 1 :])
        return replace(self, title=title, axes=axes, headed=self.headed and not heads)


def _selected(axis: Sequence[int], entry: Entry) -> Sequence[int] | int:
    """Entries of an axis: as a list, where some are left out."""
    if isinstance(entry, int):
        return axis[entry]
    return axis if len(axis[entry]) == len(axis) else list(axis[entry])
