"""Compiled search: a Transformer as the loops read it, its encoder, and the state of its decoder."""

from typing import Self

import numpy as np
import torch
from torch import Tensor

from regard.attention.positions import sinusoidal
from regard.translation.engines.compiled import forward_loops as loops
from regard.translation.engines.compiled import products, row_loops
from regard.translation.engines.compiled.weights import Array, Packing
from regard.translation.models.transformer.model import TABLES, Transformer

_STEPS = 32  # room for so many words at first
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
            before=settings.norm == "pre",
            kind=_ACTIVATIONS[settings.activation],
            scale=np.float32((settings.width // settings.heads) ** -0.5),
            factor=np.float32(factor),
        )
        learned = settings.positions == "learned"
        self._learned = (model.positions.detach() * factor).numpy() if learned else None
        self._table = TABLES.get(settings.positions, sinusoidal)
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

    def workspace(self, rows: int, positions: int) -> loops.Workspace:
        """Buffers for so many rows that read so many positions. torch starts each on a cache line."""

        def numbers(*shape: int) -> Array:
            made: Array = torch.empty(shape).numpy()
            return made

        return loops.Workspace(
            x=numbers(rows * self.width),
            h=numbers(rows * self.width),
            joined=numbers(rows * 3 * self.width),
            reading=numbers(rows * self.width),
            out=numbers(rows * self.width),
            inner=numbers(rows * self.shape.inner),
            tile=numbers(products.ROWS * products.COLUMNS),
            scores=numbers(self.heads, positions),
        )

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Array, Array, Array]:
        """The encoder over the words of all sentences, one sentence after the other.

        Returns:
            Each decoder layer's keys and values of the words, and where the words of each sentence begin and end.
        """
        counts = lengths.numpy().astype(np.int64, copy=False)
        longest = int(counts.max())
        if longest > source.shape[1]:
            raise ValueError(f"a length of {longest} in a batch of {source.shape[1]} positions")
        last = np.cumsum(counts)
        first = last - counts
        words = ids(source[torch.arange(source.shape[1]) < lengths[:, None]], self.reads)
        starts, ends = np.repeat(first, counts), np.repeat(last, counts)
        parts = tuple(self.shape), tuple(self.workspace(len(words), longest))
        embedding = self.reads, self.positions(longest)
        places = np.arange(len(words)) - starts
        loops.encode(words, places, starts, ends, embedding, self.encoder, parts)
        size = 2 * self.width * len(words)
        sources: Array = torch.empty(len(self.decoder[1]), size).numpy()
        loops.project(len(words), self.decoder, parts, sources)
        return sources, first, last


def ids(words: Tensor, table: Array) -> Array:
    """The ids of words, each a row of a table: compiled loops would read whatever lies beyond it."""
    found: Array = words.numpy().astype(np.int64, copy=False)
    if len(found) and not 0 <= found.min() <= found.max() < len(table):
        raise IndexError(
            f"word ids from {found.min()} to {found.max()}, this model knows 0 to {len(table) - 1}"
        )
    return found


class CompiledState:
    """The decoder after some words; `first` and `last` say where each row's source lies.

    Keys and values of every layer are not moved: a beam's rows are reordered at each step, and only `came`
    changes then. For each row and step it has the row in which its entry was written.
    """

    def __init__(self, model: CompiledModel, source: Tensor, lengths: Tensor) -> None:
        self.model, self.steps, rows = model, 0, len(source)
        self.sources, self.first, self.last = model.encode(source, lengths)
        layers = len(self.sources)
        self.entries: Array = np.empty((layers, _STEPS, rows, 2 * model.width), np.float32)
        self.came: Array = np.zeros((rows, _STEPS), np.int64)
        self._logits = torch.empty(0, 0)
        self._workspace = model.workspace(rows, max(_STEPS, source.shape[1]))

    def select(self, rows: Tensor) -> Self:
        """These rows; like a step, it uses the state up."""
        chosen = rows.numpy()
        self.came, self.first, self.last = self.came[chosen], self.first[chosen], self.last[chosen]
        return self

    def step(self, words: Tensor) -> Tensor:
        """The logits of the next word, which are good until the next step."""
        model, rows = self.model, len(words)
        read = ids(words, model.writes)
        self._grow(rows)
        if rows > len(self._logits):
            self._logits = torch.empty(rows, model.shape.vocabulary)
        logits = self._logits[:rows]
        loops.step(
            *(read, np.full(rows, self.steps - 1), self.first, self.last, self.sources),
            (self.entries, self.steps, self.came),
            (model.writes, model.positions(self.steps)),
            model.decoder,
            (tuple(model.shape), tuple(self._workspace)),
            logits.view(-1).numpy(),
        )
        return logits

    def _grow(self, rows: int) -> None:
        """One step more, of so many rows."""
        self.steps += 1
        layers, steps, slots, width = self.entries.shape
        read = self._workspace.scores.shape[1]
        if rows * self.model.width > len(self._workspace.x) or self.steps > read:
            self._workspace = self.model.workspace(rows, max(2 * self.steps, read))
        if self.steps > steps or rows > slots:
            room = 2 * steps if self.steps > steps else steps
            entries = np.empty((layers, room, max(slots, rows), width), np.float32)
            entries[:, :steps, :slots] = self.entries
            came = np.zeros((len(self.came), room), np.int64)
            came[:, :steps] = self.came
            self.entries, self.came = entries, came
