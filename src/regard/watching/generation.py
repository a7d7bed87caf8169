"""Cached generation: the one-token calls of an attention as one call, with a query for each token."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.masks import MaskLike, as_mask, causal
from regard.attention.scores.score import pairwise
from regard.attention.shapes import broadcast
from regard.watching.captured import CapturedCall, Description, Selection
from regard.watching.errors import WatchError
from regard.watching.passes import DecoderPasses, lineage, same_rows
from regard.watching.steps import grows

Plane = TypeVar("Plane", MaskLike | None, Tensor | None)
REWRITTEN = (
    "the key cache was changed between the steps in a way that cannot be reconstructed:"
    " pass group=False to watch, for a look at each step"
)


class CachedGeneration:
    """Consecutive one-token calls that share a key cache, recorded as one call.

    The cache may grow by one key a call, possibly reordered by a beam search, or be a sliding
    window: then the new key of each call and the last cache are kept. Or it is one tensor, filled in
    place or constant like the states of a source sentence: then this tensor is kept.

    A beam search reorders the batch entries between the calls. The rows of an entry are those of its
    ancestors, which a cache that grows shows, and `passes` tells those whose keys stay the same.
    """

    def __init__(
        self,
        path: str,
        call: CapturedCall,
        prompt: Tensor | None,
        selection: Selection,
        passes: DecoderPasses,
    ) -> None:
        self._path, self._prompt, self._selection = path, prompt, selection
        self._passes, self._numbers = passes, [passes.step(path)]
        self._links: list[Tensor] = []  # which entries of a step continue which of the step before
        self._steps = [replace(call, value=None)]
        self._latest = self._base = call.key
        self._new = [call.key[..., -1:, :].clone()]
        self._counts = [call.key.shape[-2]]
        self._latest_value = self._base_value = call.value
        self._new_values = [_newest(call.value)]
        self._grows: bool | None = None
        self._base_version = -1 if call.key.is_inference() else call.key._version
        # A call, and a copy of the cache that it read.
        self._filled: tuple[CapturedCall, Tensor] | None = None
        self._sealed: CapturedCall | WatchError | None = None

    @property
    def tokens(self) -> int:
        return len(self._steps)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the look, if the keys of the prompt are unknown and the watch is open."""
        if isinstance(self._sealed, CapturedCall):
            return self._sealed.shape
        keys = self._counts[0] - 1 + self.tokens if self._grows else self._counts[-1]
        return (*self._steps[0].query.shape[:-2], self.tokens, keys)

    def describe(self) -> Description:
        """The numbers that tell its kind.

        Raises:
            WatchError: keys that a step read were overwritten.
        """
        return Description.of(self.captured())

    @property
    def repeats(self) -> bool:
        """Whether all tokens read the same keys."""
        filled = self._filled
        return self._grows is False and (filled is None or torch.equal(filled[1], self._latest))

    @property
    def is_constant(self) -> bool:
        """Whether the keys are those of the first step, in a tensor that was not written to."""
        return self._grows is False and self._filled is None

    def steps_with(self, generation: "CachedGeneration") -> bool:
        """Whether the caches of both grew in the same passes, with as many entries."""
        alike = self.entries == generation.entries and self._numbers == generation._numbers
        return alike and bool(self._grows and generation._grows)

    @staticmethod
    def begins(call: CapturedCall) -> bool:
        """Whether this can be a step: one query, and a score that depends on no other query."""
        alone = call.score is None or pairwise(call.score) is not None
        return alone and call.query.ndim > 2 and call.query.shape[-2] == 1

    def takes(self, call: CapturedCall) -> bool:
        """Add the call and return True, if it is the next step."""
        step, latest = self._steps[0], self._latest
        if call.query.shape != step.query.shape or not _weighs_alike(call, step):
            return False
        grown = grows(latest, self._new[-1], self._counts[-1], call.key)
        link = self._link(call.key) if grown else None
        if grown is None or self._grows not in (None, grown) or (grown and link is None):
            return False
        if link is not None:
            self._new.append(call.key[..., -1:, :].clone())
            self._new_values.append(_newest(call.value))
            self._links.append(link)
            self._numbers.append(self._passes.step(self._path))
            self._passes.add(self)
        else:
            number = self._passes.number
            if not self._passes.connects(self._numbers[-1], number):
                return False
            self._numbers.append(number)
            if self._filled is None and call.key.data_ptr() == self._latest.data_ptr():
                self._fill(call)
        self._grows = grown
        self._latest, self._latest_value = call.key, call.value
        self._counts.append(call.key.shape[-2])
        self._steps[-1] = replace(self._steps[-1], witness=None)
        self._steps.append(replace(call, key=call.key.new_empty(0), value=None))
        return True

    def seal(self) -> None:
        """Keep only the selected part, when no further token can follow."""
        try:
            self._sealed = self.captured()
        except WatchError as fault:
            self._sealed = fault

    def tensors(self) -> list[Tensor]:
        if isinstance(self._sealed, CapturedCall):
            return self._sealed.tensors()
        queries = [each for step in self._steps for each in step.tensors()]
        filled = [] if self._filled is None else [self._filled[1]]
        values = (*self._new_values, self._latest_value, self._base_value)
        kept_values = [each for each in values if each is not None]
        return [*queries, *self._new, *filled, self._latest, self._base, *kept_values]

    def captured(self) -> CapturedCall:
        """The selected part of all steps as one call, with a query for each step.

        Raises:
            WatchError: keys that a step read were overwritten.
        """
        if isinstance(self._sealed, WatchError):
            raise self._sealed
        return self._sealed or self._as_one_call().selected(self._selection)

    @property
    def entries(self) -> int:
        return len(self._steps[0].query)

    @property
    def _all_pairs(self) -> Tensor:
        """(entries, entries), all True: each entry may continue each other one."""
        count = self.entries
        return torch.ones(count, count, dtype=torch.bool, device=self._latest.device)

    def spans(self, start: int, stop: int) -> bool:
        """Whether the cache grew from one pass of the decoder to another."""
        return bool(self._grows) and start in self._numbers and stop in self._numbers

    def ancestors(self, numbers: Sequence[int], alike: Tensor) -> Tensor:
        """The entry of each of these passes that became each entry of the last one, (passes, entries).

        Raises:
            WatchError: the cache was reordered in a way that its keys do not show.
        """
        steps = [self._numbers.index(number) for number in numbers]
        end = steps[-1] + 1
        descends = [alike] * end
        prompt_length = self._counts[-1] - self.tokens
        if end == self.tokens:  # the last cache has the keys of all steps that it did not drop
            for at, new in enumerate(self._new):
                if prompt_length + at >= 0:
                    key = self._latest[..., prompt_length + at : prompt_length + at + 1, :]
                    descends[at] = alike & _same(key, new)
            if prompt_length == self._counts[0] - 1:
                prompt = self._base[..., :prompt_length, :]
                descends[0] = descends[0] & same_rows(self._latest[..., :prompt_length, :], prompt)
        chain = lineage(self._links[: end - 1], descends)
        if chain is None:
            raise WatchError(REWRITTEN)
        return chain[steps]

    def _as_one_call(self) -> CapturedCall:
        steps, keys, low = self._steps, self._latest, [0] * self.tokens
        if len(steps) == 1:
            return replace(steps[0], value=self._latest_value)
        readable: MaskLike | None = None
        order: Tensor | None = None
        if self._grows:
            base = self._prompt_keys()
            keys = torch.cat([base, *self._new], -2)
            if not torch.equal(keys[..., -self._counts[-1] :, :], self._latest):
                order, keys = self._own_order(keys.shape[-2]), self._latest
            low = [base.shape[-2] + 1 + at - count for at, count in enumerate(self._counts)]
            readable = _since(low)
        else:
            self.check_filled(self._numbers)
            alike = same_rows(keys, keys) if len(keys) == self.entries else self._all_pairs
            order = self._passes.ancestors(self._numbers, alike)
        if order is not None:
            steps = [_reordered(*each) for each in zip(steps, order, strict=True)]
        else:
            order = torch.arange(self.entries, device=keys.device).expand(self.tokens, -1)
        mask, bias = self._planes(steps, low, keys.shape[-2])
        if mask is not None:
            readable = mask if readable is None else as_mask(readable) & mask
        witness = steps[-1].witness
        if witness is not None:
            witness = F.pad(witness, (keys.shape[-2] - witness.shape[-1], 0))
        query = torch.cat([step.query for step in steps], -2)
        return replace(
            steps[0],
            query=query,
            key=keys,
            value=self._latest_value if keys is self._latest else self._values_of(keys),
            mask=readable,
            bias=bias,
            witness=witness,
            order=order,
        )

    def _own_order(self, total: int) -> Tensor:
        """The ancestors of the entries of the last cache, which has the keys of all steps."""
        if self._counts[-1] != total:
            raise WatchError(REWRITTEN)
        return self.ancestors(self._numbers, self._all_pairs)

    def _link(self, key: Tensor) -> Tensor | None:
        """Which entries of the step before each entry of a cache that grew may continue; None if there is none."""
        latest = self._latest
        if key.shape[-2] == self._counts[-1]:  # a window that moved
            return torch.eye(len(key), dtype=torch.bool, device=key.device)
        link = _same(key[..., -2:-1, :], self._new[-1])
        if bool((link.sum(1) > 1).any()) and key.data_ptr() != latest.data_ptr():
            link = link & same_rows(key[..., :-1, :], latest)
        return link if bool(link.any(1).all()) else None

    def _fill(self, call: CapturedCall) -> None:
        """Copy the cache at the first call that reads it after it was changed in place."""
        if call.key.is_inference() or call.key._version != self._base_version:
            self._filled = call, call.key.clone()
            self._passes.add(self)

    def check_filled(self, numbers: Sequence[int]) -> None:
        """Raise WatchError if a key that a step of these passes could read was overwritten."""
        if self._filled is None or not set(numbers) & set(self._numbers):
            return
        step, copied = self._filled
        readable = _row(step, copied.shape[-2]).any(-3).squeeze(-2)  # by any head
        same = (copied == self._latest).all(-1).all(-2)
        if not bool((same | ~readable).all()):
            raise WatchError(REWRITTEN)

    def _prompt_keys(self) -> Tensor:
        """The keys before the first token: those of the prompt if they were seen, else its cache."""
        base = self._base[..., :-1, :]
        prompt, length = self._prompt, base.shape[-2]
        if prompt is None or prompt.shape[:-2] != base.shape[:-2] or prompt.shape[-2] < length:
            return base
        tail = prompt[..., prompt.shape[-2] - length :, :]
        return prompt if torch.equal(tail, base) else base

    def _values_of(self, keys: Tensor) -> Tensor | None:
        """The values of the first cache and of each step; None where they are not those of the keys."""
        if self._base_value is None:
            return None
        values = [self._base_value[..., :-1, :], *self._new_values]
        joined_values = torch.cat([each for each in values if each is not None], -2)
        return joined_values if joined_values.shape[-2] == keys.shape[-2] else None

    def _planes(
        self, steps: Sequence[CapturedCall], low: Sequence[int], keys: int
    ) -> tuple[Tensor | None, Tensor | None]:
        """The masks and biases of the steps, stacked along the queries; None if no step has any."""
        masks, biases = [], []
        for step, count, start in zip(steps, self._counts, low, strict=True):
            room = (start, keys - start - count)
            row = None if step.mask is None else _row(replace(step, bias=None), count)
            masks.append(None if row is None else F.pad(row, room, value=False))
            bias = None if step.bias is None else step.bias.expand(*step.bias.shape[:-1], count)
            biases.append(None if bias is None else F.pad(bias, room))
        return _stacked(masks, True, keys), _stacked(biases, 0.0, keys)


def _weighs_alike(left_call: CapturedCall, right_call: CapturedCall) -> bool:
    """Whether two calls have the same score and normaliser."""
    caps = (getattr(each.score, "cap", None) for each in (left_call, right_call))
    scores = (getattr(each.score, "score", each.score) for each in (left_call, right_call))
    return _equal(*caps) and _equal(*scores) and _equal(left_call.normaliser, right_call.normaliser)


def _equal(x: object, y: object) -> bool:
    """Whether two parts are one object, or of one class with equal numbers, those of tensors among them."""
    if x is y or type(x) is not type(y):
        return x is y
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        return x.device == y.device and torch.equal(x, y)
    if isinstance(x, tuple | list) and isinstance(y, tuple | list):
        return len(x) == len(y) and all(map(_equal, x, y))
    parameters = getattr(x, "__dataclass_params__", None)
    if parameters is not None and parameters.eq:
        compared = [each.name for each in fields(cast(Any, x)) if each.compare]
        return all(_equal(getattr(x, name), getattr(y, name)) for name in compared)
    return (x == y) is True


def _since(low: Sequence[int]) -> MaskLike:
    """Each query reads the keys from `low` to its own."""
    rule = causal(align="end")
    if not any(low):
        return rule
    lowest = torch.tensor(low)
    return rule & (lambda rows, columns: columns >= lowest.to(rows.device)[rows])


def _row(step: CapturedCall, keys: int) -> Tensor:
    """The keys that the query of a step may read, (..., heads or 1, 1, keys)."""
    blank = step.query.new_empty(*step.query.shape[:-2], keys, 0)
    query_number = torch.zeros(1, dtype=torch.long, device=step.query.device)
    row = replace(step, key=blank).readable(query_number)
    return row[(None,) * (step.query.ndim - row.ndim)]


def _newest(value: Tensor | None) -> Tensor | None:
    return None if value is None else value[..., -1:, :].clone()


def _same(keys: Tensor, other_keys: Tensor) -> Tensor:
    """(entries, other entries), whether one key of each, (entries, ..., 1, width), is the same."""
    return (keys[:, None] == other_keys[None]).flatten(2).all(-1)


def _reordered(step: CapturedCall, entries: Tensor) -> CapturedCall:
    """A step with other batch entries."""

    def of_entries(plane: Plane) -> Plane:
        if isinstance(plane, Tensor) and plane.ndim == step.query.ndim and len(plane) > 1:
            return plane[entries]
        return plane

    query = step.query[entries]
    return replace(step, query=query, mask=of_entries(step.mask), bias=of_entries(step.bias))


def _stacked(rows: Sequence[Tensor | None], neutral: float, keys: int) -> Tensor | None:
    planes = [row for row in rows if row is not None]
    if not planes:
        return None
    front = broadcast(*(tuple(row.shape[:-2]) for row in planes))
    none = torch.full((1, keys), neutral, dtype=planes[0].dtype, device=planes[0].device)
    return torch.cat([(none if row is None else row).expand(*front, 1, keys) for row in rows], -2)
