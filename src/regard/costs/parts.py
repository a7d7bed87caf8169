"""The parts of a cost, and the formulas of an attention: lists of parts, which are added by name."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from regard.errors import ConfigurationError

ORDER = (
    *("embeddings", "recurrence", "W_Q", "W_K", "learned keys", "scores"),
    *("W_V", "learned values", "values", "W_O", "feed-forward", "norms and biases", "output layer"),
)
ADDED = "norms and biases"
SCORES = "additive", "concat", "cosine", "dot", "general", "scaled_dot"


@dataclass(frozen=True)
class Part:
    """A part of a model, in numbers, not bytes.

    Args:
        name: "W_Q", "scores", "feed-forward", ...
        parameters: trained numbers.
        multiply_adds: of one forward pass. A product of (n, m) and (m, p) has n m p of them. Softmax,
            norms, activation functions and sums are not counted; a mask leaves nothing out.
        activations: numbers that its products put out, without the scores.
        scores: numbers of all queries x keys matrices, which a kernel may compute in blocks instead.
        cache: numbers of earlier tokens that a decoder keeps from step to step.
    """

    name: str
    parameters: int = 0
    multiply_adds: int = 0
    activations: int = 0
    scores: int = 0
    cache: int = 0


_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
FIELDS = ("parameters", "multiply_adds", "activations", "scores", "cache")
Parts = list[Part]


def times(count: int, costs: Iterable[Part]) -> Parts:
    """So many layers of these parts."""
    return [
        replace(part, **{name: count * getattr(part, name) for name in FIELDS}) for part in costs
    ]


def batched(count: int, costs: Iterable[Part]) -> Parts:
    """The parts with a batch of so many sequences, which share the parameters."""
    return [
        replace(many, parameters=part.parameters) for part in costs for many in times(count, [part])
    ]


def added(costs: Iterable[Part]) -> tuple[Part, ...]:
    """One part of each name, in the order of a model."""
    sums: dict[str, Part] = {}
    for cost in costs:
        old = sums.get(cost.name, Part(cost.name))
        numbers = {name: getattr(old, name) + getattr(cost, name) for name in FIELDS}
        sums[cost.name] = replace(cost, **numbers)
    ordered = [sums.pop(name) for name in ORDER if name in sums]
    return (*ordered, *sums.values())


def matrix(
    name: str, d_in: int, d_out: int, rows: int, *, heads: int = 1, sets: int = 1, cache: int = 0
) -> Part:
    """A matrix that multiplies `rows` vectors of each head; `sets` of it are different."""
    used = heads * rows * d_out
    return Part(name, sets * d_in * d_out, used * d_in, used, 0, cache)


def linear(
    name: str, d_in: int, d_out: int, rows: int, *, bias: bool = False, cache: int = 0
) -> Parts:
    """A matrix and its bias."""
    return [matrix(name, d_in, d_out, rows, cache=cache), Part(ADDED, d_out * bias)]


def scores_and_values(
    queries: int, keys: int, heads: int, d_key: int, d_value: int, *, cache: int = 0
) -> Parts:
    """softmax(Q K^T) V: the scores and the blended values of all heads."""
    pairs = heads * queries * keys
    return [
        Part("scores", 0, pairs * d_key, 0, pairs),
        Part("values", 0, pairs * d_value, heads * queries * d_value, 0, cache),
    ]


def learned(count: int, d_keys: int, d_values: int) -> Parts:
    """Keys and values that are parameters, which every query can also read: no matrix makes them, no cache keeps them.

    Source: Sukhbaatar et al. 2019, arXiv 1907.01470, section 3.
    """
    sizes = {"learned keys": d_keys, "learned values": d_values}
    return [Part(name, count * width) for name, width in sizes.items() if count]


def scored(
    score: str,
    queries: int,
    keys: int,
    d_query: int,
    d_key: int,
    d_hidden: int,
    *,
    heads: int = 1,
    sets: int = 1,
    prepared: bool = False,
) -> tuple[Parts, int]:
    """The matrices of a score, and the width of the product that is left for each pair.

    Additive: v^T tanh(W_q q + W_k k), of which v^T is left. General: q^T W k, of which a dot product is
    left once the keys, or the queries where they are fewer, have been multiplied by W. A decoder
    prepares the keys once, and keeps them.

    Raises:
        ConfigurationError: No score of this name has a formula.
    """
    shared = {"heads": heads, "sets": sets}
    if score in ("additive", "concat"):
        cache = keys * d_hidden * prepared
        W_Q = matrix("W_Q", d_query, d_hidden, queries, **shared)
        W_K = matrix("W_K", d_key, d_hidden, keys, **shared, cache=cache)
        return [W_Q, W_K, Part("scores", sets * d_hidden)], d_hidden
    if score in ("dot", "scaled_dot", "cosine"):
        return [Part("W_K", cache=keys * d_key * (prepared and score == "cosine"))], d_key
    if score != "general":
        raise ConfigurationError(f"score {score!r} has no formula: known are {', '.join(SCORES)}")
    if prepared or keys < queries:
        cache = keys * d_query * prepared
        return [matrix("W_K", d_key, d_query, keys, **shared, cache=cache)], d_query
    return [matrix("W_Q", d_query, d_key, queries, **shared)], d_key


def attention(
    queries: int,
    keys: int,
    d_query: int,
    heads: int,
    *,
    d_key: int | None = None,
    d_value: int | None = None,
    d_head: int | None = None,
    d_head_value: int | None = None,
    d_output: int | None = None,
    merge: str = "concat",
    bias: bool = False,
    key_heads: int | None = None,
    qk_norm: str | None = None,
    score: str = "scaled_dot",
    d_hidden: int | None = None,
    score_sets: int | None = None,
    calls: int = 1,
    new_keys: int | None = None,
    cached: bool = False,
    learned_keys: int = 0,
) -> Parts:
    """A `MultiHeadAttention` with the same arguments.

    W_Q has d_q h d_k parameters, and as many multiply-adds for each query; W_K and W_V alike for each
    key. The scores have N M h d_k multiply-adds, the values N M h d_v. W_O has d_merged d_output
    parameters; d_merged is h d_v for heads side by side, d_v for summed ones.

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.2.2 and table 1.

    Args:
        queries: N, over all calls.
        keys: M.
        score_sets: sets of parameters of the score; one for each head by default.
        calls: the calls that the queries are spread over, which compute the score's matrices each time.
        new_keys: keys that are projected now; all of them by default.
        cached: whether a decoder keeps the projected keys and values.
        learned_keys: learned keys of each head, and as many values, beside the M keys.
        Others: those of `MultiHeadAttention`.
    """
    d_key = d_key or d_query
    d_value = d_value or d_key
    d_head = d_head or d_query // heads
    d_head_value = d_head_value or (d_head if merge == "concat" else d_value)
    key_heads = key_heads or heads
    d_k, d_v = key_heads * d_head, key_heads * d_head_value
    merged = d_head_value * (heads if merge == "concat" else 1)
    sets = heads if score_sets is None else score_sets
    new = keys if new_keys is None else new_keys
    all_keys = keys + learned_keys
    matrices, width = scored(
        score,
        queries // calls,
        all_keys,
        d_head,
        d_head,
        d_hidden or d_head,
        heads=heads,
        sets=sets,
    )
    normed = 2 * d_head * {None: 0, "rms": 1, "layer": 2}[qk_norm]
    return [
        *linear("W_Q", d_query, heads * d_head, queries, bias=bias),
        *linear("W_K", d_key, d_k, new, bias=bias, cache=keys * d_k * cached),
        *linear("W_V", d_value, d_v, new, bias=bias, cache=keys * d_v * cached),
        *batched(calls, matrices),
        *learned(learned_keys, d_k, d_v),
        *scores_and_values(queries, all_keys, heads, width, d_head_value),
        *linear("W_O", merged, d_output or d_query, queries, bias=bias),
        Part(ADDED, normed),
    ]


class Memory(NamedTuple):
    """Bytes of a forward pass."""

    weights: int
    activations: int
    scores: int
    cache: int


@dataclass(frozen=True)
class Cost:
    """The cost of one forward pass of a model.

    Args:
        model: its name.
        parts: one of each name.
        queries: tokens that read: of the target, or of the text; None for a module that was called.
        keys: tokens that are read: of the source, or of the text.
        batch: sequences.
        number_bytes: bytes of a number: 4 for float32, 2 for half precisions.
        width: d_model, where there is one.
        uncounted: operations and weights that the numbers leave out, a line each.
    """

    model: str
    parts: tuple[Part, ...]
    queries: int | None = None
    keys: int | None = None
    batch: int = 1
    number_bytes: int = 4
    width: int | None = None
    uncounted: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Part:
        """The part of this name; a KeyError if the model has none."""
        by_name = {part.name: part for part in self.parts}
        if name not in by_name:
            raise KeyError(f"no part {name!r} in {self.model}; there are {', '.join(by_name)}")
        return by_name[name]

    @property
    def total(self) -> Part:
        """The sum of the parts."""
        return Part("all", *(sum(getattr(part, name) for part in self.parts) for name in FIELDS))

    @property
    def parameters(self) -> int:
        return self.total.parameters

    @property
    def multiply_adds(self) -> int:
        return self.total.multiply_adds

    @property
    def memory(self) -> Memory:
        """Bytes of the weights, of the activations without the scores, of the scores, and of the cache."""
        all = self.total
        numbers = (all.parameters, all.activations, all.scores, all.cache)
        return Memory(*(self.number_bytes * number for number in numbers))

    def attention_weights(self) -> tuple[str, int] | None:
        """W_Q, W_K, W_V and W_O as a formula, and its value; None unless all are squares of one width."""
        names = ("W_Q", "W_K", "W_V", "W_O")
        sizes = [part.parameters for part in self.parts if part.name in names]
        if self.width is None or len(sizes) != 4 or len(set(sizes)) > 1:
            return None
        count, remainder = divmod(sizes[0], self.width**2)
        thousands = self.width // 1024
        wide = thousands > 1 and self.width % 1024 == 0
        width = f"({thousands} x 1,024)" if wide else f"{self.width:,}"
        return None if remainder else (f"4 x {count} x {width}^2", sum(sizes))

    def as_object(self) -> dict[str, Any]:
        """The cost for JSON."""
        fields = asdict(self)
        by_name = {part.pop("name"): part for part in fields.pop("parts")}
        sums = {"parameters": self.parameters, "multiply_adds": self.multiply_adds}
        return {**fields, **sums, "bytes": self.memory._asdict(), "parts": by_name}


def short(number: int, unit: str = "") -> str:
    """A number with three digits, and its unit with a prefix for thousands.

    >>> short(57_982_058_496), short(512), short(4_194_304, "B"), short(0, "B")
    ('58.0 G', '512', '4.19 MB', '0 B')
    """
    power, size = 0, float(number)
    while size >= 999.5 and power < len(_PREFIXES) - 1:
        power += 1
        size = number / 1000**power
    places = 0 if power == 0 or size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{size:,.{places}f} {_PREFIXES[power]}{unit}".rstrip()
