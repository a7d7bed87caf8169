"""The passes of a decoder, and the order in which a beam search puts the batch entries between them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor


class FollowedCache(Protocol):
    """The key cache of an attention, a `CachedGeneration`."""

    @property
    def entries(self) -> int: ...

    def spans(self, start: int, stop: int) -> bool: ...

    def ancestors(self, numbers: Sequence[int], alike: Tensor) -> Tensor: ...

    def check_filled(self, numbers: Sequence[int]) -> None: ...


@dataclass
class DecoderPasses:
    """The passes over one new token each. A pass ends when an attention that was in it steps again.

    All attentions of a pass have the batch entries in one order. A cache that grows shows by its keys how
    a beam search reordered them; a cross attention, whose keys stay the same, does not.
    """

    number: int = 0
    _paths: set[str] = field(default_factory=set)  # the attentions of this pass
    _caches: list[FollowedCache] = field(default_factory=list)

    def step(self, path: str) -> int:
        """The number of the pass in which an attention with a cache of its own takes a step."""
        if path in self._paths:
            self.number += 1
            self._paths.clear()
        self._paths.add(path)
        return self.number

    def add(self, cache: FollowedCache) -> None:
        """Add a generation whose cache grows or is filled."""
        if all(cache is not each for each in self._caches):
            self._caches.append(cache)

    def remove(self, cache: FollowedCache) -> None:
        """Remove a generation that no other attention depends on."""
        self._caches = [each for each in self._caches if each is not cache]

    def connects(self, start: int, stop: int) -> bool:
        """Whether the order of the entries is known from one pass to another."""
        return start == stop or any(each.spans(start, stop) for each in self._caches)

    def ancestors(self, numbers: Sequence[int], alike: Tensor) -> Tensor | None:
        """The entry of each of these passes that became each entry of the last of them, (passes, entries).

        None if no cache grew. The last such attention is asked: its keys depend on all layers before it.

        Args:
            numbers: of the passes.
            alike: (entries, entries), which entries read the same keys and may be of one sequence.

        Raises:
            WatchError: a cache was overwritten between the passes.
        """
        grown: FollowedCache | None = None
        for cache in self._caches:
            cache.check_filled(numbers)
            if cache.entries == len(alike) and cache.spans(numbers[0], numbers[-1]):
                grown = cache
        return None if grown is None else grown.ancestors(numbers, alike)


def lineage(links: Sequence[Tensor], descends: Sequence[Tensor]) -> Tensor | None:
    """For each step the entry that became each entry of the last step, (steps, entries); None if there is none.

    Several entries of a step can have the same newest key. Of these one is chosen whose own ancestors fit.

    Args:
        links: for each step but the first, (entries, entries before), which of them it may continue.
        descends: for each step, (entries of the last step, entries), whether the last one's key of this
            step may be this entry's.

    Example:
        >>> crossed = torch.tensor([[False, True], [True, False]])
        >>> lineage([crossed], [torch.ones(2, 2).bool()] * 2).tolist()
        [[1, 0], [0, 1]]
    """
    reached = [descends[0]]
    for link, fits in zip(links, descends[1:], strict=True):
        reached.append(fits & ((reached[-1].float() @ link.float().mT) > 0))
    entries = torch.arange(len(descends[-1]), device=descends[-1].device)
    if not bool(reached[-1][entries, entries].all()):
        return None
    rows, chain = entries, [entries]
    for link, fits in zip(reversed(links), reversed(reached[:-1]), strict=True):
        parents = link[entries] & fits
        itself = parents[rows, entries]
        entries = entries.where(itself, parents.int().argmax(-1))
        chain.append(entries)
    return torch.stack(chain[::-1])


def same_rows(x: Tensor, right: Tensor) -> Tensor:
    """(entries of left, entries of right), whether all numbers of two batch entries are equal."""
    rows = torch.cat([x.flatten(1), right.flatten(1)])
    if not rows.shape[1]:
        return torch.ones(len(x), len(right), dtype=torch.bool, device=x.device)
    numbers: Tensor = torch.unique(rows, dim=0, return_inverse=True)[1]
    return numbers[: len(x), None] == numbers[None, len(x) :]
