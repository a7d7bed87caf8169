"""The calls of one attention, as they are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.watching import names
from regard.watching.chains import Chain
from regard.watching.errors import WatchError
from regard.watching.layers import Later
from regard.watching.parts import Parts, Sample
from regard.watching.rules import looks_back

CHANGED = (
    "what it was computed from was changed in place after the call:"
    " watch with copy=True, which keeps queries and keys of its own"
)


class Call:
    """One call: parts, or what they can be computed from, and whether that is still the same."""

    def __init__(self, told: Parts | Later, sample: Sample) -> None:
        if isinstance(told, Later) and sample.changes:
            told = told.parts()
        if isinstance(told, Parts):
            told = told.sampled(sample)
        elif not sample.gradients:
            told = told.detached()
        self._told, self._gradients = told, sample.gradients
        self._versions = [
            (each, each._version) for each in told.tensors() if not each.is_inference()
        ]

    def tensors(self) -> list[Tensor]:
        return self._told.tensors()

    @property
    def given(self) -> Parts | None:
        """The parts as they are in memory now, where they were given and not to be computed."""
        return self._told if isinstance(self._told, Parts) else None

    @property
    def shape(self) -> tuple[int, ...]:
        if isinstance(self._told, Parts):
            return self._told.shape
        return self._told.shape or self._told.parts().shape

    def parts(self) -> Parts:
        """The parts.

        Raises:
            WatchError: something was written over them since.
        """
        if any(tensor._version != version for tensor, version in self._versions):
            raise WatchError(CHANGED)
        if isinstance(self._told, Parts):
            return self._told
        with torch.set_grad_enabled(self._gradients and torch.is_grad_enabled()):
            return self._told.parts()


class Generated:
    """One-token calls that became one."""

    def __init__(self, chain: Chain, sample: Sample) -> None:
        self.chain, self._sample = chain, sample
        self._sealed: Parts | WatchError | None = None

    def tensors(self) -> list[Tensor]:
        return self._sealed.tensors() if isinstance(self._sealed, Parts) else self.chain.tensors()

    @property
    def shape(self) -> tuple[int, ...]:
        return self._sealed.shape if isinstance(self._sealed, Parts) else self.chain.shape

    def seal(self) -> None:
        """Keep what was asked for and nothing else, when no token can follow."""
        try:
            self._sealed = self.chain.parts().sampled(self._sample)
        except WatchError as fault:
            self._sealed = fault

    def parts(self) -> Parts:
        if self._sealed is None:
            return self.chain.parts().sampled(self._sample)
        if isinstance(self._sealed, WatchError):
            raise self._sealed
        return self._sealed


@dataclass(eq=False)
class Place:
    """An attention of a model: where it is, what it reads, and its calls."""

    path: str
    crossing: bool = False  # whether the names of its classes say that it is a cross attention
    reads_two: bool | None = None  # whether its projections read two tensors, where it has any
    unbatched: bool = False  # whether its sequences have no axis of batch entries
    calls: list[Call | Generated] = field(default_factory=list)
    _found: tuple[int, str] | None = None
    _across: tuple[int, bool] = (0, False)

    @property
    def kind(self) -> str:
        """ "self", "cross" or "causal"."""
        if self._crosses:
            return "cross"
        if self._found is None or self._found[0] != len(self.calls):
            self._found = len(self.calls), self._direction()
        return self._found[1]

    def _direction(self) -> str:
        for call in self.calls:
            try:
                parts = call.parts()
            except WatchError:
                continue
            if isinstance(call, Generated) and len(call.chain) > 1:
                return "causal"
            if looks_back(parts.mask, parts.query.shape[-2], parts.key.shape[-2]):
                return "causal"
            if parts.bias is not None and _bias_looks_back(parts):
                return "causal"
        return "self"

    @property
    def _crosses(self) -> bool:
        if self.crossing or names.CROSSING.search(self.path):
            return True
        if self.reads_two is False or not self.calls:
            return False
        if self._across[0] != len(self.calls):
            self._across = len(self.calls), _reads_another(self.calls[-1], self.reads_two)
        return self._across[1]

    @property
    def name(self) -> str:
        return names.short(self.path, "cross" if self._crosses else "self")

    def has_heads(self, shape: tuple[int, ...]) -> bool:
        """Whether the last batch axis of a look holds heads; a single one holds batch entries."""
        return len(shape) > 3 or (len(shape) == 3 and self.unbatched)

    def keep(self, told: Parts | Later, sample: Sample, group: bool) -> Call | Generated:
        """One call more, or one token more of the last one."""
        if isinstance(told, Later) and told.crossing:
            self.reads_two = True
        if not group or isinstance(told, Later) or not Chain.begins(told):
            self.calls.append(Call(told, sample))
            return self.calls[-1]
        free = told.sampled(Sample(gradients=sample.gradients))
        last = self.calls[-1] if self.calls else None
        if isinstance(last, Generated) and last.chain.takes(free):
            return last
        if isinstance(last, Generated):
            last.seal()
        prompt = last.given if isinstance(last, Call) and not sample.changes else None
        self.calls.append(Generated(Chain(free, prompt), sample))
        return self.calls[-1]


def _reads_another(call: Call | Generated, reads_two: bool | None) -> bool:
    """Whether the keys are of another sequence than the queries, by the mask and the lengths.

    A mask that hides later keys, and keys that gain one with each token, are of the same sequence.
    Two tensors that projections read are two sequences otherwise; where no projection was seen,
    sequences of two lengths are.
    """
    if isinstance(call, Generated) and len(call.chain) > 1:
        return call.chain.repeats
    try:
        parts = call.parts()
    except WatchError:
        return bool(reads_two)
    queries, keys = parts.query.shape[-2], parts.key.shape[-2]
    if looks_back(parts.mask, queries, keys) or _bias_looks_back(parts):
        return False
    return bool(reads_two) or (parts.rows is None and queries not in (1, keys))


def _bias_looks_back(parts: Parts) -> bool:
    if parts.bias is None or parts.bias.ndim < 2 or parts.bias.shape[-2] == 1:
        return False
    readable = parts.bias > 0.25 * torch.finfo(parts.bias.dtype).min
    return looks_back(readable, parts.query.shape[-2], parts.key.shape[-2])


class Held:
    """How much memory the calls hold together: what several share once, what was replaced no more."""

    def __init__(self) -> None:
        self.bytes = 0
        self._of: dict[int, dict[tuple[int, int], int]] = {}
        self._holders: Counter[tuple[int, int]] = Counter()

    def count(self, call: Call | Generated) -> None:
        """Count a call, or count it anew; calls that are counted are kept."""
        now = _storages(call.tensors())
        before = self._of.get(id(call), {})
        self._of[id(call)] = now
        for storage in now.keys() - before.keys():
            self._holders[storage] += 1
            self.bytes += now[storage] if self._holders[storage] == 1 else 0
        for storage in before.keys() - now.keys():
            self._holders[storage] -= 1
            self.bytes -= before[storage] if self._holders[storage] == 0 else 0


def _storages(tensors: Iterable[Tensor]) -> dict[tuple[int, int], int]:
    """The bytes of each memory that these hold, by where it is and how large."""
    memories = (tensor.untyped_storage() for tensor in tensors if not tensor.is_nested)
    return {(memory.data_ptr(), memory.nbytes()): memory.nbytes() for memory in memories}
