"""A mask of all keys, for some of them alone."""

from dataclasses import dataclass

from torch import Tensor

from regard.attention.masks.mask import Mask, Reach, overlap
from regard.attention.masks.positions import Band
from regard.attention.shapes import Frame


@dataclass(frozen=True, eq=False)
class Section(Mask):
    """The keys of a mask from a first one on.

    Args:
        mask: for all keys.
        start: the position of the first key of the section among all.
        keys: how many keys there are in all.
    """

    mask: Mask
    start: int
    keys: int

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        return self.mask.window(rows, columns + self.start, self._of_all(frame))

    def reach(self, rows: range, frame: Frame) -> Reach:
        return Reach(
            *(self._moved(run, frame) for run in self.mask.reach(rows, self._of_all(frame)))
        )

    def runs(self, rows: range, frame: Frame) -> list[range]:
        runs = (self._moved(run, frame) for run in self.mask.runs(rows, self._of_all(frame)))
        return [run for run in runs if run]

    def check(self, frame: Frame) -> None:
        self.mask.check(self._of_all(frame))

    def breaks(self, frame: Frame) -> list[int]:
        return self.mask.breaks(self._of_all(frame))

    def entries(self, frame: Frame) -> list[Mask] | None:
        masks = self.mask.entries(self._of_all(frame))
        return None if masks is None else [Section(mask, self.start, self.keys) for mask in masks]

    def tensors(self) -> list[Tensor] | None:
        return self.mask.tensors()

    def _of_all(self, frame: Frame) -> Frame:
        return frame._replace(keys=self.keys)

    def _moved(self, run: range, frame: Frame) -> range:
        return overlap(range(run.start - self.start, run.stop - self.start), range(frame.keys))


def section(mask: Mask, columns: range, frame: Frame) -> Mask:
    """The mask for these keys alone; the frame is that of all keys."""
    if isinstance(mask, Band):
        return mask.within(range(frame.queries), columns, frame)
    return Section(mask, columns.start, frame.keys)
