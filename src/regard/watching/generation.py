"""Cached generation: the one-token calls of an attention, as one look whose rows are the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.scores import DotLike
from regard.attention.shapes import broadcast
from regard.watching.captured import CapturedCall
from regard.watching.errors import WatchError
from regard.watching.masks import KeyRanges

REWRITTEN = (
    "the cache of keys was changed between the steps in a way that cannot be followed:"
    " watch with group=False to have every step by itself"
)


class CachedGeneration:
    """One-token calls that follow one another, each with the keys of the one before.

    A cache may grow by a key a call (and be reordered, as by a beam search), move along as a
    window, be one tensor that is filled in place, or be the same keys at every step, as a source's
    are. Of the first two the new key of each call is kept, and the last cache; of the others, the
    one tensor.
    """

    def __init__(self, first: CapturedCall, prompt: CapturedCall | None = None) -> None:
        self._prompt = prompt
        self._steps = [first]
        self._latest = self._base = first.key
        self._new = [first.key[..., -1:, :].clone()]
        self._counts = [first.key.shape[-2]]
        self._grows: bool | None = None
        self._base_version = -1 if first.key.is_inference() else first.key._version
        self._filled: tuple[CapturedCall, Tensor] | None = (
            None  # a cache written to, as it was at a step
        )

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the look, where the keys of the prompt are not to be had."""
        more = self._counts[0] - 1 + len(self) if self._grows else self._counts[-1]
        return (*self._steps[0].query.shape[:-2], len(self), more)

    @property
    def repeats(self) -> bool:
        """Whether several tokens read the same keys, to which none was added."""
        return self._grows is False and self._filled is None

    @staticmethod
    def begins(parts: CapturedCall) -> bool:
        """Whether this can be a token of a generation: one query, scored by its vector alone."""
        score = getattr(parts.score, "score", parts.score)
        plain = score is None or isinstance(score, DotLike)
        return plain and parts.query.ndim > 2 and parts.query.shape[-2] == 1

    def takes(self, parts: CapturedCall) -> bool:
        """Whether this is the next token; if so, it is kept."""
        if not self.begins(parts) or parts.query.shape != self._steps[0].query.shape:
            return False
        grows = self._follows(parts.key)
        if grows is None or self._grows not in (None, grows):
            return False
        self._grows = grows
        if grows:
            self._new.append(parts.key[..., -1:, :].clone())
        elif self._filled is None and parts.key.data_ptr() == self._latest.data_ptr():
            self._fill(parts)
        self._latest = parts.key
        self._counts.append(parts.key.shape[-2])
        self._steps[-1] = replace(self._steps[-1], witness=None)
        self._steps.append(replace(parts, key=parts.key.new_empty(0)))
        return True

    def tensors(self) -> list[Tensor]:
        """Everything that is held."""
        held = [each for step in self._steps for each in step.tensors()]
        filled = [] if self._filled is None else [self._filled[1]]
        return [*held, *self._new, *filled, self._latest, self._base]

    def captured(self) -> CapturedCall:
        """All steps as one: a row each."""
        if len(self) == 1:
            return self._steps[0]
        query = torch.cat([step.query for step in self._steps], -2)
        if not self._grows:
            self._check_filled()
            masks, biases = self._planes([0] * len(self), self._latest.shape[-2])
            return self._joined(query, self._latest, masks, biases)
        base = self._before()
        keys, total = torch.cat([base, *self._new], -2), base.shape[-2] + len(self)
        parents = None
        if not torch.equal(keys[..., total - self._counts[-1] :, :], self._latest):
            keys, parents = self._latest, self._lineage(total)
            own = zip(self._steps, parents, strict=True)
            query = torch.cat([step.query[entries] for step, entries in own], -2)
        high = [base.shape[-2] + step + 1 for step in range(len(self))]
        low = [end - count for end, count in zip(high, self._counts, strict=True)]
        masks, biases = self._planes(low, total, parents)
        joined = self._joined(query, keys, masks, biases)
        spans = KeyRanges(torch.tensor(low), torch.tensor(high))
        mask = spans if joined.mask is None else spans & joined.mask
        return replace(joined, mask=mask)

    def _follows(self, key: Tensor) -> bool | None:
        """Whether these keys are the last ones and one more; False for the same ones, None else."""
        last, count, more = self._latest, self._counts[-1], key.shape[-2]
        if key.shape[:-2] != last.shape[:-2] or key.shape[-1] != last.shape[-1]:
            return None
        if more == count + 1:
            return True if _descends(key[..., -2:-1, :], self._new[-1]) else None
        if more != count:
            return None
        if key.data_ptr() == last.data_ptr() or torch.equal(key, last):
            return False
        moved = more > 1 and torch.equal(key[..., :-1, :], last[..., 1:, :])
        return True if moved else None

    def _fill(self, parts: CapturedCall) -> None:
        """A tensor that is read again may have been written to: what it holds now is kept once."""
        if parts.key.is_inference() or parts.key._version != self._base_version:
            self._filled = parts, parts.key.clone()

    def _check_filled(self) -> None:
        """What could be read at a step must be there still, or the look would be of other keys."""
        if self._filled is None:
            return
        step, before = self._filled
        open_ = _row(step, before.shape[-2]).any(-3)
        same = (before == self._latest).all(-1).all(-2)
        if not bool((same | ~open_.squeeze(-2)).all()):
            raise WatchError(REWRITTEN)

    def _before(self) -> Tensor:
        """The keys before the first token: the prompt's, where those were seen, or its cache."""
        base = self._base[..., :-1, :]
        prompt = None if self._prompt is None else self._prompt.key
        length = base.shape[-2]
        if prompt is None or prompt.shape[:-2] != base.shape[:-2] or prompt.shape[-2] < length:
            return base
        tail = prompt[..., prompt.shape[-2] - length :, :]
        return prompt if torch.equal(tail, base) else base

    def _lineage(self, total: int) -> list[Tensor]:
        """Whose keys the last cache holds, step by step: each of its entries had one ancestor."""
        steps, count = len(self), self._counts[-1]
        if count != total:
            raise WatchError(REWRITTEN)
        parents, last = [], self._latest
        for step, new in enumerate(self._new):
            at = count - steps + step
            same = (last[:, None, ..., at : at + 1, :] == new[None]).flatten(2).all(-1)
            if not bool(same.any(1).all()):
                raise WatchError(REWRITTEN)
            parents.append(same.int().argmax(1))
        return parents

    def _planes(
        self, low: Sequence[int], keys: int, parents: list[Tensor] | None = None
    ) -> tuple[Tensor | None, Tensor | None]:
        """The steps' masks and biases as rows of one; None where no step had any."""
        masks, biases = [], []
        for number, step in enumerate(self._steps):
            count, start = self._counts[number], low[number]
            mask, bias = step.mask, step.bias
            if parents is not None:
                own, size = parents[number], step.query.shape[0]
                mask, bias = (_chosen(plane, own, size) for plane in (mask, bias))
            room = (start, keys - start - count)
            row = None if mask is None else _row(replace(step, mask=mask, bias=None), count)
            masks.append(None if row is None else F.pad(row, room, value=False))
            bias = None if bias is None else bias.expand(*bias.shape[:-1], count)
            biases.append(None if bias is None else F.pad(bias, room))
        return _stacked(masks, True, keys), _stacked(biases, 0.0, keys)

    def _joined(
        self, query: Tensor, key: Tensor, mask: Tensor | None, bias: Tensor | None
    ) -> CapturedCall:
        last = self._steps[-1]
        witness = last.witness
        if witness is not None:
            witness = F.pad(witness, (key.shape[-2] - witness.shape[-1], 0))
        return replace(self._steps[0], query=query, key=key, mask=mask, bias=bias, witness=witness)


def _descends(previous: Tensor, new: Tensor) -> bool:
    """Whether each entry's last key but one is the newest of some entry of the step before."""
    same = previous[:, None] == new[None]
    return bool(same.flatten(2).all(-1).any(1).all())


def _row(step: CapturedCall, keys: int) -> Tensor:
    """Which keys the one query of a step reads, (..., heads or 1, 1, keys)."""
    blank = step.query.new_empty(*step.query.shape[:-2], keys, 0)
    first = torch.zeros(1, dtype=torch.long, device=step.query.device)
    row = replace(step, key=blank).readable(first)
    return row[(None,) * (4 - row.ndim)]


def _chosen(plane: Any, entries: Tensor, size: int) -> Any:
    """A mask's or bias's rows of these batch entries, where it has one for each."""
    if isinstance(plane, Tensor) and plane.ndim > 3 and plane.shape[0] == size:
        return plane[entries]
    return plane


def _stacked(rows: Sequence[Tensor | None], neutral: float, keys: int) -> Tensor | None:
    there = [row for row in rows if row is not None]
    if not there:
        return None
    front = broadcast(*(tuple(row.shape[:-2]) for row in there))
    none = torch.full((1, keys), neutral, dtype=there[0].dtype, device=there[0].device)
    return torch.cat([(none if row is None else row).expand(*front, 1, keys) for row in rows], -2)
