"""Compiled search: a Transformer as the loops read it, its encoder, and the state of its decoder."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from regard.loops.threads import run_shares
from regard.translation.engines.compiled import forward_loops as loops
from regard.translation.engines.compiled import products, row_loops
from regard.translation.engines.compiled.weights import Array, Packing
from regard.translation.models.transformer.model import Transformer
from regard.translation.models.transformer.positions import SCHEMES

_STEPS = 32  # room for so many words at first
_LEAST = 2 * products.ROWS  # rows for which a second thread pays
_ACTIVATIONS = {"relu": row_loops.RELU, "gelu": row_loops.GELU, "silu": row_loops.SILU}


class CompiledModel:
    """The same function as the model's own layers, in the loops of `forward_loops`."""

    def __init__(self, model: Transformer) -> None:
        settings = model.settings
        self.width, self.heads = settings.width, settings.heads
        self.encoder = Packing().side(model.encoder, model.encoder_norm, None)
        self.decoder = Packing().side(model.decoder, model.decoder_norm, model.output)
        # Of rows that lie otherwise numba would compile all of it once more.
        self.reads = model.source_embedding.weight.detach().contiguous().numpy()
        self.writes = model.target_embedding.weight.detach().contiguous().numpy()
        factor = settings.width**0.5 if settings.scale_embedding else 1.0
        self.shape = loops.Shape(
            width=settings.width,
            inner=settings.feed_forward,
            heads=settings.heads,
            vocabulary=model.output.out_features,
            pre_norm=settings.norm == "pre",
            activation=_ACTIVATIONS[settings.activation],
            scale=np.float32((settings.width // settings.heads) ** -0.5),
            factor=np.float32(factor),
        )
        scheme = SCHEMES[settings.positions]
        self._learned = (model.positions.detach() * factor).numpy() if scheme.learned else None
        self._table = scheme.table
        self._numbered = self._table(64, self.width).float().numpy()

    def positions(self, count: int) -> Array:
        """The vectors of at least so many positions."""
        if self._learned is not None:
            if count > len(self._learned):
                raise ValueError(
                    f"a sentence of {count} positions, this model has learned {len(self._learned)}"
                )
            return self._learned
        numbered = self._numbered
        if count > len(numbered):
            # Another thread may put a shorter one in its place meanwhile.
            numbered = self._numbered = self._table(2 * count, self.width).float().numpy()
        return numbered

    def room(self, rows: int) -> list[Array]:
        """The buffers of a pass, with a row for each of its rows. torch starts each on a cache line."""
        width = self.width
        sizes = (width, width, 3 * width, width, width, self.shape.inner)
        return [torch.empty(rows, size).numpy() for size in sizes]

    def arguments(
        self, room: list[Array], share: slice, positions: int
    ) -> tuple[tuple[Any, ...], tuple[Array, ...]]:
        """The shape of the model, and buffers for some rows of a pass that read so many positions."""
        tile = np.empty(products.ROWS * products.COLUMNS, np.float32)
        scores = np.empty((self.heads, positions), np.float32)
        # In the order of a `loops.Workspace`.
        return tuple(self.shape), (*(rows[share].reshape(-1) for rows in room), tile, scores)

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Array, Array, Array]:
        """The encoder over the words of all sentences, one sentence after the other.

        Returns:
            Each decoder layer's keys and values of the words, and where the words of each sentence begin and end.
        """
        counts = lengths.numpy().astype(np.int64, copy=False)
        longest = int(counts.max())
        if longest > source.shape[1]:
            raise ValueError(f"a length of {longest} in a batch of {source.shape[1]} positions")
        ends = np.cumsum(counts)
        starts = ends - counts
        words = ids(source[torch.arange(source.shape[1]) < lengths[:, None]], self.reads)
        row_starts, row_ends = np.repeat(starts, counts), np.repeat(ends, counts)
        embedding, places = (
            (self.reads, self.positions(longest)),
            np.arange(len(words)) - row_starts,
        )
        size = 2 * self.width * len(words)
        sources: Array = torch.empty(len(self.decoder[1]), size).numpy()
        room = self.room(len(words))

        def encode(begin: int, end: int) -> None:
            """The sentences from `begin` up to `end`, whose words see none of the others."""
            share = slice(starts[begin], ends[end - 1])
            loops.encode(
                *(
                    words[share],
                    places[share],
                    row_starts[share] - share.start,
                    row_ends[share] - share.start,
                ),
                *(embedding, self.encoder, self.decoder, self.arguments(room, share, longest)),
                *(share.start, sources),
            )

        _in_shares(len(counts), encode)
        return sources, starts, ends


def _in_shares(rows: int, compute: Callable[[int, int], None]) -> None:
    """Compute all rows, on several threads where that pays."""
    if rows < 2 * _LEAST:
        compute(0, rows)
    else:
        run_shares(rows, compute, least=_LEAST)


def ids(words: Tensor, table: Array) -> Array:
    """The ids of words, each a row of a table: compiled loops would read whatever lies beyond it."""
    numbers: Array = words.numpy().astype(np.int64, copy=False)
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(table):
        raise IndexError(
            f"word ids from {numbers.min()} to {numbers.max()}, this model knows 0 to {len(table) - 1}"
        )
    return numbers


class CompiledState:
    """The decoder after some words; `starts` and `ends` say where each row's source lies.

    Keys and values of every layer are not moved: a beam's rows are reordered at each step, and only `ancestors`
    changes then. For each row and step it has the row in which its entry was written.
    """

    def __init__(self, model: CompiledModel, source: Tensor, lengths: Tensor) -> None:
        self.model, self.steps, rows = model, 0, len(source)
        self.sources, self.starts, self.ends = model.encode(source, lengths)
        layers = len(self.sources)
        self.entries: Array = np.empty((layers, _STEPS, rows, 2 * model.width), np.float32)
        self.ancestors: Array = np.zeros((rows, _STEPS), np.int64)
        self._logits = torch.empty(0, 0)
        self._room, self._longest = model.room(rows), source.shape[1]

    def select(self, rows: Tensor) -> Self:
        """These rows; like a step, it uses the state up."""
        places = rows.numpy()
        self.ancestors, self.starts, self.ends = (
            self.ancestors[places],
            self.starts[places],
            self.ends[places],
        )
        return self

    def step(self, words: Tensor) -> Tensor:
        """The logits of the next word, which are good until the next step."""
        model, rows = self.model, len(words)
        read = ids(words, model.writes)
        self._grow(rows)
        if rows > len(self._logits):
            self._logits = torch.empty(rows, model.shape.vocabulary)
        logits = self._logits[:rows]
        flat, places = logits.view(-1).numpy(), np.full(rows, self.steps - 1)
        embedding, columns = (model.writes, model.positions(self.steps)), logits.shape[1]
        positions = max(self.steps, self._longest)

        def compute(begin: int, end: int) -> None:
            share = slice(begin, end)
            loops.step(
                *(read[share], places[share], self.starts[share], self.ends[share], self.sources),
                (self.entries, self.steps, self.ancestors[share]),
                *(embedding, model.decoder, model.arguments(self._room, share, positions)),
                *(begin, flat[begin * columns : end * columns]),
            )

        _in_shares(rows, compute)
        return logits

    def hidden(self, rows: int) -> Tensor:
        """The output layer's input of the last step, which is good until the next one."""
        return torch.from_numpy(self._room[loops.Workspace._fields.index("inputs")][:rows])

    def _grow(self, rows: int) -> None:
        """One step more, of so many rows."""
        self.steps += 1
        layers, steps, slots, width = self.entries.shape
        if rows > len(self._room[0]):
            self._room = self.model.room(rows)
        if self.steps > steps or rows > slots:
            room = 2 * steps if self.steps > steps else steps
            entries = np.empty((layers, room, max(slots, rows), width), np.float32)
            entries[:, :steps, :slots] = self.entries
            ancestors = np.zeros((len(self.ancestors), room), np.int64)
            ancestors[:, :steps] = self.ancestors
            self.entries, self.ancestors = entries, ancestors
