"""The head, layer or key that an effect is of, and its edit in each copy of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from regard.watching.change import OnWeights
from regard.watching.edits import Edit
from regard.watching.effect_table import Effect
from regard.watching.errors import WatchError
from regard.watching.seen import Seen

Of = Literal["heads", "layers", "keys"]


class Attention(NamedTuple):
    """An attention of the model."""

    name: str
    path: str
    layer: int
    heads: int
    shape: tuple[int, ...]  # of the look


class Unit(NamedTuple):
    """A head, a layer or a key that is edited; None for all of them."""

    attention: Attention | None = None
    head: int | None = None
    key: int | None = None

    def row(self, effect: float) -> Effect:
        name, layer = (
            ("", None) if self.attention is None else (self.attention.name, self.attention.layer)
        )
        return Effect(name, layer, self.head, self.key, effect)

    def placed(self, edited: Tensor, plane: Tensor) -> Tensor:
        """The plane of weights or outputs with this unit edited."""
        if self.head is None and self.key is None:
            return edited
        index = (..., self.head, slice(None), slice(None)) if self.key is None else (..., self.key)
        plane = plane.clone()
        plane[index] = edited[index]
        return plane


@dataclass(frozen=True, eq=False)
class OfCopies(Edit):
    """An edit of another unit in each copy of a batch."""

    edit: Edit | OnWeights
    units: Mapping[int, Unit]  # by the number of the copy
    copies: int
    entries: int  # of the batch, in each copy
    of_outputs: bool = False

    @property
    def edits_outputs(self) -> bool:
        return self.of_outputs

    def bound(self, names: Sequence[str]) -> OfCopies:
        return replace(self, edit=self.edit.bound(names)) if isinstance(self.edit, Edit) else self

    def of(self, weights: Tensor, start: int) -> Tensor:
        if self.copies > 1 and len(weights) != self.copies * self.entries:
            raise WatchError(
                f"an attention has {len(weights)} batch entries, and the model {self.entries} in each of"
                f" {self.copies} copies: pass batch=1"
            )
        planes = list(weights.chunk(self.copies))
        for number, unit in self.units.items():
            plane = planes[number]
            edited = self.edit(plane, start) if isinstance(self.edit, Edit) else self.edit(plane)
            planes[number] = unit.placed(edited, plane)
        return torch.cat(planes)


def attentions_of(run: Seen) -> list[Attention]:
    """The attentions of a run."""
    attentions: list[Attention] = []
    for layer, name in enumerate(run):
        look = run[name]
        heads = look.shape[-3] if look.caption.headed else 1
        attentions.append(Attention(name, run.path(name), layer, heads, look.shape))
    return attentions


def units_of(attentions: Sequence[Attention], of: Of) -> list[Unit]:
    """Every head, layer or key.

    Raises:
        WatchError: the attentions have other numbers of keys, so that a key has no one meaning.
    """
    if of == "layers":
        return [Unit(each) for each in attentions]
    if of == "heads":
        return [Unit(each, head) for each in attentions for head in range(each.heads)]
    lengths = {each.shape[-1] for each in attentions}
    if len(lengths) > 1:
        raise WatchError(
            f"the attentions have {' and '.join(map(str, sorted(lengths)))} keys: choose those of one"
            ' sequence, such as layers="encoder.*"'
        )
    return [Unit(key=key) for key in range(max(lengths, default=0))]
