"""Readings that leave out the entries whose weights cannot matter, with a bound on what that changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.parts import Part
from regard.attention.scores import Cosine, Score
from regard.attention.scores.score import is_dots, pairwise
from regard.loops.availability import are_compiled
from regard.memory.codes import HEAD, ROUNDING, SMALLEST, Rows, decode

EPSILON = 2.0**-23
SPARE = 16  # roundings of a score beyond those of its products
SLACK = 1e-4  # more than float32 loses in a sum of exponentials, relative to it
FAR = 700.0  # an exponent of which float64 has the exponential
LEAST = -80.0  # exponents below are taken for this, because processors are slow at tiny numbers
SHORT = 1e-11  # the length of a key whose direction is not bounded
FEW = 64  # entries that are read exactly before the bound is computed again
LOOPED = (
    4  # queries that are multiplied with codes as they are; for more, the codes are widened once
)
SMALL = 1 << 24  # bytes of keys and values that are read faster than their codes are weighed
ROOM = 1 << 24  # bounds that are held at a time
SAMPLE = 16  # of so many blocks one is looked at before all
WORTH = 1 / 12  # entries, of all, that are read one by one faster than all of them together


T = TypeVar("T")


@dataclass(frozen=True)
class BoundedReading:
    """A reading that may be without some entries: `Memory.read` with a tolerance.

    Args:
        reading: The blend of the values that were read, by their weights among themselves.
        bound: The weight that entries left out may have together; never too small.
        error: The largest distance, as a length, of this reading from that of all entries; never too small.
        share: The bytes read, of those that a reading of all entries takes: 1 where all were read, and
            bound and error are 0; then only the rounding of `read` remains.
    """

    reading: Float[Tensor, "*batch queries d_value"]
    bound: Float[Tensor, "*batch queries"]
    error: Float[Tensor, "*batch queries"]
    share: float


class Block(NamedTuple):
    """The codes of some entries that follow one another."""

    start: int
    rows: Rows
    lengths: Float[Tensor, "rows lengths"]  # of differences, keys and values


class Source(Protocol):
    """The entries of a memory, as a bounded reading needs them.

    Attributes:
        width: of the keys.
        entry_bytes: of a key and its value.
        code_bytes: of the codes and lengths of an entry.
    """

    width: int
    entry_bytes: int
    code_bytes: int

    @property
    def count(self) -> int:
        """How many entries there are."""
        ...

    def blocks(self) -> Iterator[Block]:
        """The codes of all entries, in the order of `spread`."""
        ...

    def at(self, places: Int[Tensor, " places"]) -> tuple[Tensor, Tensor]:
        """The keys and the values at these places, in ascending order."""
        ...


def spread(blocks: Sequence[T]) -> list[T]:
    """The blocks in such an order that the first sixteenth of them is a sample of all."""
    return [block for first in range(SAMPLE) for block in blocks[first::SAMPLE]]


class Linear(NamedTuple):
    """Scores c(q . k) / T, or c(q . k / |k|) / T, where c is a soft cap or nothing."""

    query: Float[Tensor, "queries width"]
    by_length: bool
    cap: float
    temperature: float

    @classmethod
    def of(cls, score: Score, query: Tensor, width: int, temperature: float) -> Linear | None:
        """The form of a score for these queries; None where it has another."""
        pair_score = pairwise(score)
        inner, cap = (score, 0.0) if pair_score is None else pair_score.capped()
        if not is_dots(inner):
            return None
        key = query.new_zeros(1, width).expand(len(query), -1)  # `General` changes the fewer
        factor, unchanged_key, scale = inner.factors(query, key)
        by_length = type(inner) is Cosine
        if factor.dim() != 2 or not (by_length or unchanged_key is key):
            return None
        return cls(factor * scale, by_length, cap, temperature)

    def interval(self, block: Block) -> tuple[Tensor, Tensor]:
        """Numbers below and above the score of every query and key.

        |q . k - q . code| <= |q| |k - code|, and float32 loses less than width * epsilon * |q| |code|.
        """
        difference, length, _ = block.lengths.unbind(-1)
        query = self.query.float()
        size = query.norm(dim=-1, keepdim=True) * (1 + ROUNDING) + SMALLEST
        products = _products(block.rows, query)
        rounding = (query.shape[-1] + SPARE) * EPSILON
        radius = difference + rounding * (length + difference)
        if self.by_length:
            is_short = length < SHORT
            products = (products / length).masked_fill(is_short, 0.0)
            radius = (radius / length + 2 * ROUNDING).masked_fill(is_short, 1.0)
        radius = size * radius
        low, high = products - radius, products + radius
        if self.cap:
            low, high = (self.cap * torch.tanh(each / self.cap) for each in (low, high))
            low, high = low - self.cap * SPARE * EPSILON, high + self.cap * SPARE * EPSILON
        if self.temperature != 1:
            low, high = low / self.temperature, high / self.temperature
        return low, high


def _products(rows: Rows, query: Tensor) -> Tensor:
    """query . scale * code, in float32."""
    if len(query) > LOOPED or not are_compiled():
        return query @ decode(rows, query.shape[-1]).mT
    from regard.memory.code_loops import multiply

    products = torch.empty(len(query), len(rows))
    codes, scales = (rows.view(dtype).numpy() for dtype in (torch.int8, torch.float32))
    for vector, row in zip(query.contiguous(), products, strict=True):
        multiply(codes, scales, HEAD, vector.numpy(), row.numpy())
    return products


@torch.no_grad()
def read_bounded(
    query: Float[Tensor, "queries width"],
    score: Score,
    temperature: float,
    source: Source,
    tolerance: float,
    readable: Bool[Tensor, "queries entries"] | None,
    read_all: Callable[[list[int]], tuple[Tensor, Tensor]],
) -> tuple[BoundedReading, Tensor]:
    """A softmax reading of each query that leaves out at most `tolerance` of its weight.

    The codes bound every score from both sides. The lower bounds give a sum that the denominator is not
    below; entries are read exactly from the highest upper bound on, until all others can add little to it.
    The weights that are left out are summed themselves: a difference of large sums would lose them.

    Args:
        query: the queries.
        score: theirs with keys.
        temperature: of the softmax.
        source: the entries.
        tolerance: the weight that may be left out.
        readable: which entries may be read.
        read_all: reads all entries for the queries at these positions, and gives the logarithm of the sum of
            exponentials of each.

    Returns:
        The reading, and the logarithm of each query's sum of exponentials over the entries that were read.
    """
    wide = query.detach().double()
    form = Linear.of(score, wide, source.width, temperature)
    answers: dict[int, Answer] = {}
    is_large = source.count * source.entry_bytes > SMALL
    if form is not None and tolerance > 0 and is_large:
        height = max(1, ROOM // source.count)
        for start in range(0, len(wide), height):
            rows = slice(start, start + height)
            group = form._replace(query=form.query[rows])
            bounds = Bounds.of(
                group, source, None if readable is None else readable[rows], tolerance
            )
            for place in range(0 if bounds is None else len(group.query)):
                assert bounds is not None
                search = Search(score, wide[start + place :][:1], temperature, source, tolerance)
                answer = search.run(bounds, place)
                if answer is not None:
                    answers[start + place] = answer
    return _together(query, source, answers, read_all)


class Answer(NamedTuple):
    """The reading of a query, its bounds, the number of entries that were read, and the logarithm of their sum."""

    reading: Tensor
    bound: float
    error: float
    entries: int
    log_normaliser: float


class Bounds(NamedTuple):
    """The bounds of the scores of some queries and all entries.

    Args:
        upper: each score is at most this.
        lower: the sum of the exponentials of what each score is at least.
        value: the length of the longest value.
    """

    upper: Float[Tensor, "queries entries"]
    lower: Part
    value: float

    @classmethod
    def of(
        cls, form: Linear, source: Source, readable: Tensor | None, tolerance: float
    ) -> Bounds | None:
        """The bounds; None where a sample shows that most entries matter to every query, or values are not finite."""
        upper = torch.full((len(form.query), source.count), -torch.inf)
        lower, longest, bounded = Part.none((len(form.query),), 0), 0.0, 0
        for block in source.blocks():
            columns = slice(block.start, block.start + len(block.rows))
            low, high = form.interval(block)
            if readable is not None:
                low, high = (
                    each.masked_fill(~readable[:, columns], -torch.inf) for each in (low, high)
                )
            upper[:, columns] = high
            low = low.clamp(min=low.amax(-1, keepdim=True) + LEAST)
            lower = lower + Part.of(low, low.new_zeros(len(block.rows), 0))
            length = float(block.lengths[:, -1].amax())
            if not math.isfinite(length):
                return None
            longest = max(longest, length)
            was_sample, bounded = bounded * SAMPLE >= source.count, bounded + len(block.rows)
            if bounded * SAMPLE >= source.count and not was_sample:
                budget = (tolerance * lower.total / (2 * bounded)).log() + lower.maximum
                matter = (upper >= budget.unsqueeze(-1)).sum(-1)
                if bool((matter > 4 * WORTH * bounded).all()):
                    return None
        return cls(upper, lower, longest)


@dataclass(frozen=True)
class Search:
    """The search for the entries that matter to one query."""

    score: Score
    query: Float[Tensor, "1 width"]
    temperature: float
    source: Source
    tolerance: float

    def run(self, bounds: Bounds, place: int) -> Answer | None:
        """The reading; None where reading all entries is faster, or numbers overflow."""
        upper, largest = bounds.upper[place], float(bounds.lower.maximum[place])
        total = float(bounds.lower.total[place]) * (1 - SLACK)
        if largest == -math.inf and float(upper.amax()) == -math.inf:
            reading = self._read(upper.new_zeros(0).long()).reading()[0]
            return Answer(reading, 0.0, 0.0, 0, -math.inf)
        if not (math.isfinite(largest) and math.isfinite(total) and float(upper.amax()) >= largest):
            return None
        budget = self.tolerance * total
        # Together, all entries below this have less than half the budget.
        threshold = largest + math.log(budget / (2 * len(upper)))
        matters = upper >= threshold
        rows = matters.nonzero().flatten()
        if len(rows) > WORTH * len(upper):
            return None
        masses = (upper - largest).clamp_(min=LEAST).exp_().masked_fill_(matters, 0.0)
        remainder = float(masses.sum(dtype=torch.float64)) * (1 + SLACK)
        high, order = upper[rows].sort(descending=True)
        rows, masses = rows[order], (high.double() - largest).exp()
        tails = masses.flip(0).cumsum(0).flip(0) * (1 + SLACK) + remainder
        needed = int((tails > budget).sum())  # tails fall
        tails = torch.cat([tails, tails.new_tensor([remainder])])
        blend, count = self._read(rows[:0]), 0
        while True:
            stop = min(needed, max(FEW, 2 * count))
            blend = blend + self._read(rows[count:stop].sort().values)
            count, rest = stop, float(tails[stop])
            read_mass = float(blend.total) * math.exp(min(FAR, float(blend.maximum) - largest))
            bound = rest / (rest + read_mass)
            if bound <= self.tolerance or count == needed:
                break
        reading = blend.reading()[0]
        error = bound * (bounds.value + float(reading.norm())) * (1 + SLACK)
        return Answer(reading, bound, error, count, float(blend.log_normaliser()))

    def _read(self, places: Tensor) -> Part:
        """The share of these entries, in float64."""
        key, value = (each.double() for each in self.source.at(places))
        return Part.of(self.score(self.query, key) / self.temperature, value)


def _together(
    query: Tensor,
    source: Source,
    answers: dict[int, Answer],
    read_all: Callable[[list[int]], tuple[Tensor, Tensor]],
) -> tuple[BoundedReading, Tensor]:
    """The answers of all queries; those without one read everything."""
    remaining = [place for place in range(len(query)) if place not in answers]
    nothing = Answer(query, 0.0, 0.0, 0, 0.0)
    every = [answers.get(place, nothing) for place in range(len(query))]
    rows = [answer.reading for answer in every]
    logs = torch.tensor([answer.log_normaliser for answer in every], dtype=torch.float64)
    if remaining or not every:
        readings, sums = read_all(remaining)
        logs[remaining] = sums.detach().double().cpu()
        for place, reading in zip(remaining, readings, strict=True):
            rows[place] = reading.detach()
    reading = torch.stack([row.to(query) for row in rows]) if rows else readings
    widest = torch.promote_types(query.dtype, torch.float32)
    limits = [answer[1:3] for answer in every]
    bound, error = torch.tensor(limits, dtype=widest).view(-1, 2).to(query.device).unbind(-1)
    rounding = 2 * torch.finfo(widest).eps
    bound, error = (bound * (1 + rounding)).clamp_(max=1), error * (1 + rounding)
    lengths = torch.linalg.vector_norm(reading.to(widest), dim=-1) * torch.finfo(query.dtype).eps
    lengths[remaining] = 0.0
    exact = sum(answer.entries for answer in answers.values()) * source.entry_bytes
    share = exact / (source.count * source.entry_bytes) + source.code_bytes / source.entry_bytes
    share = 1.0 if remaining else min(1.0, share)
    return BoundedReading(reading, bound, error + lengths, share), logs
