"""The attentions that `layers` of a watch excludes: two of them are followed, for the order of a beam search."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor

from regard.watching.captured import Captured, CapturedCall, Selection
from regard.watching.generation import CachedGeneration
from regard.watching.passes import DecoderPasses
from regard.watching.records import AttentionRecord


class Followed:
    """Excluded attentions whose key caches may show in which order a decoder's entries are.

    Of those that step together two are needed: the first one tells that a pass continues the one before, and the
    last one is asked for the order. The others, and attentions whose keys stay the same, are dropped after their
    second step and are not captured again.
    """

    def __init__(self, passes: DecoderPasses) -> None:
        self._passes = passes
        self._records: dict[str, AttentionRecord] = {}
        self._stepping: set[str] = set()  # dropped, but each of their steps is in a pass
        self._constant: set[str] = set()  # dropped
        self._steps = (
            False  # whether the last followed call was a step, so that those dropped after it step
        )

    def tensors(self) -> list[Tensor]:
        """All tensors that are kept."""
        return [
            tensor
            for record in self._records.values()
            for call in record.calls
            for tensor in call.tensors()
        ]

    def add(self, path: str, capture: Callable[[], Captured]) -> None:
        """Follow a call of an excluded attention. Its errors are of no interest."""
        if path in self._stepping:
            if self._steps:
                self._passes.step(path)
        elif path not in self._constant:
            self._steps = False
            with suppress(Exception), torch.no_grad():
                call = capture()
                if isinstance(call, CapturedCall) and CachedGeneration.begins(call):
                    self._steps = True
                    self._step(path, call)

    def clear(self) -> None:
        self._records.clear()

    def _step(self, path: str, call: CapturedCall) -> None:
        nothing = call.query.new_empty(*call.query.shape[:-1], 0)  # the keys alone show an order
        record = self._records.setdefault(path, AttentionRecord(path))
        record.keep(replace(call, query=nothing, witness=None), Selection(), self._passes)
        del record.calls[:-1]
        generation = record.calls[0]
        if not isinstance(generation, CachedGeneration) or generation.tokens < 2:
            return
        if generation.is_constant:
            self._constant.add(path)
            del self._records[path]
            return
        alike = {
            path_between: cache
            for path_between, each in self._records.items()
            if isinstance(cache := each.calls[0], CachedGeneration) and generation.steps_with(cache)
        }
        for path_between in list(alike)[1:-1]:
            self._passes.remove(alike[path_between])
            self._stepping.add(path_between)
            del self._records[path_between]
