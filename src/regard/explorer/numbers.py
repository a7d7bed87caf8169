"""The arithmetic of one query, with the numbers of the run: each sums, or multiplies, to the next.

    terms of q . k -> score -> weight -> weighted values -> reading of the head -> output of the attention

and, for blocks of the Transformer, the way of the position through norm, residual and feed-forward layer, and the
score split by the components of the residual stream (Elhage et al. 2021, "A mathematical framework for Transformer
circuits"): with its standard deviation fixed, a norm is linear, so the score is a sum over pairs of components.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.blocks import Residual
from regard.attention.heads import MultiHeadAttention
from regard.attention.scores import Additive, Cosine, DotLike, ScaledDot, SoftCap
from regard.attention.scores.prepare import PreparedAdditive
from regard.watching import Seen
from regard.watching.captured import CapturedCall, Selection
from regard.watching.change import Change

BIAS = "norm's bias"
PAIRS = 24  # pairs of components that are listed; the rest is one number

Object = dict[str, Any]


@dataclass
class Trace:
    """The inputs and outputs of the modules of a model, for one batch entry."""

    given: dict[str, Tensor] = field(default_factory=dict)
    returned: dict[str, Tensor] = field(default_factory=dict)


@contextmanager
def traced(model: nn.Module) -> Iterator[Trace]:
    """Keep the first input and the output of every module that runs, by its path."""
    trace = Trace()

    def hook(path: str) -> Callable[..., None]:
        def keep(module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
            if given and isinstance(given[0], Tensor):
                trace.given[path] = given[0].detach()
            if isinstance(output, Tensor):
                trace.returned[path] = output.detach()

        return keep

    with ExitStack() as stack:
        for path, module in model.named_modules():
            handle = module.register_forward_hook(hook(path))
            stack.callback(handle.remove)
        yield trace


@dataclass(frozen=True, eq=False)
class Arithmetic:
    """The numbers of one run, perhaps in a change."""

    model: nn.Module
    seen: Seen
    trace: Trace
    changed: Change | None = None

    @torch.no_grad()
    def of(self, name: str, head: int, query: int, key: int) -> Object:
        """The numbers of a query of one head, its score with one key in detail."""
        steps = self.seen.steps(name)
        stepwise = len(steps) > 1  # a recurrent decoder reads once for each word
        call = self.seen.parts(name, query if stepwise else -1)
        if call.query.ndim > 3:
            call = call.selected(Selection(heads=(head,)))
        row = 0 if stepwise else query
        weights = _matrix(call.look().weights(rows=[row]))[0]
        found: Object = {"name": name, "query": query, "key": key, "weights": weights.tolist()}
        if self.changed is not None and name in self.changed:
            weights = self.changed.weights(name)[0, head, query]
            found["edited"] = weights.tolist()
        found["terms"] = _terms(call, row, key)
        found |= _scores(call, row)
        path = self.seen.path(name)
        modules = dict(self.model.named_modules())
        if isinstance(module := modules.get(path), MultiHeadAttention):
            found["stages"] = self._stages(module, path, head, row, weights)
            found |= self._components(module, path, head, row, key, call.score or ScaledDot())
        return found

    def _stages(
        self, module: MultiHeadAttention, path: str, head: int, row: int, weights: Tensor
    ) -> Object:
        """Weighted values, heads merged, residual, norm and feed-forward layer: a vector each."""
        trace = self.trace
        output = trace.returned[f"{path}.output_projection"][0]
        merged = trace.given[f"{path}.output_projection"][0]
        stages: Object = {}
        values = trace.returned.get(f"{path}.value_projection")
        group = module.heads // module.key_heads
        if values is not None:
            width = values.shape[-1] // module.key_heads
            own = values[0].unflatten(-1, (module.key_heads, width))[:, head // group]
            weighted = weights[:, None] * own
            stages["weighted"] = weighted.norm(dim=-1).tolist()
            stages["reading"] = weighted.sum(0).tolist()
        weight = module.output_projection.weight
        if module.merge == "concat":
            parts = merged[row].reshape(module.heads, -1)
            width = parts.shape[-1]
            split = [weight[:, i * width : (i + 1) * width] @ part for i, part in enumerate(parts)]
            stages["heads"] = [float(each.norm()) for each in split]
            stages["head output"] = split[head].tolist()
        stages["attention output"] = output[row].tolist()
        return stages | self._block(path, row)

    def _block(self, path: str, row: int) -> Object:
        """The position's way through the block, after this attention."""
        parent, _, own = path.rpartition(".")
        kind = own.removesuffix("_attention")
        modules, returned = dict(self.model.named_modules()), self.trace.returned
        stages: Object = {}
        for label, name in (
            ("before", f"{kind}_residual"),
            ("feed-forward", "feed_forward_residual"),
        ):
            at = f"{parent}.{name}"
            if at not in returned:
                continue
            before = getattr(modules[at], "before", True)
            stages[f"{label}: residual in"] = self.trace.given[at][0, row].tolist()
            if before and f"{at}.norm" in returned:
                stages[f"{label}: norm"] = returned[f"{at}.norm"][0, row].tolist()
            if label == "feed-forward" and f"{parent}.feed_forward" in returned:
                output = returned[f"{parent}.feed_forward"][0, row]
                stages["feed-forward: output"] = output.tolist()
            end = "residual out" if before else "normalised sum"
            stages[f"{label}: {end}"] = returned[at][0, row].tolist()
        return stages

    def _components(
        self, module: MultiHeadAttention, path: str, head: int, row: int, key: int, score: Any
    ) -> Object:
        """The score split by pairs of components of the residual stream, or why it cannot be."""
        if not isinstance(score, DotLike):
            return {"unsplit": "the score is not a dot product of projections"}
        streams = Streams(self.model, self.trace)
        try:
            left = streams.into(path, row)
            right = streams.memory(path, key)
        except KeyError as reason:
            return {"unsplit": f"the residual stream could not be followed: {reason.args[0]}"}
        d_head = module.d_head
        group = module.heads // module.key_heads
        queries = _projected(left, module.query_projection, head, d_head)
        queries = _turned(module, queries, module.query_norm, row)
        keys = _projected(right, module.key_projection, head // group, d_head)
        keys = _turned(module, keys, module.key_norm, key)
        names = list(queries), list(keys)
        factors = torch.stack(list(queries.values())), torch.stack(list(keys.values()))
        if isinstance(score, Cosine):  # divides by the lengths of the sums
            first, second = (each / each.sum(0).norm() for each in factors)
            scale = score.scale
        else:
            first, second, scale = score.factors(*factors)
        table = first @ second.mT * scale
        order = table.abs().flatten().argsort(descending=True)[:PAIRS].tolist()
        pairs = [
            {
                "query": names[0][at // len(names[1])],
                "key": names[1][at % len(names[1])],
                "score": float(table.flatten()[at]),
            }
            for at in order
        ]
        return {
            "pairs": pairs,
            "rest": float(table.sum()) - sum(each["score"] for each in pairs),
            "split": float(table.sum()),
        }


class Streams:
    """The residual streams of a run, as sums of components: the embedding, and the output of each sublayer."""

    def __init__(self, model: nn.Module, trace: Trace) -> None:
        self._model, self._trace = model, trace
        self._residuals = {
            path: module for path, module in model.named_modules() if isinstance(module, Residual)
        }

    def into(self, path: str, row: int) -> dict[str, Tensor]:
        """The components of an attention's input at one position.

        Raises:
            KeyError: the block is none of Regard's, or its norm is unknown.
        """
        residual = self._own(path)
        parts = self._stream(residual, row)
        own = self._residuals[residual]
        return _normed(parts, own.norm) if own.before else parts

    def memory(self, path: str, row: int) -> dict[str, Tensor]:
        """The components of the input of its keys."""
        if not self._own(path).endswith("cross_residual"):
            return self.into(path, row)
        if not any(name.startswith("encoder.") for name in self._residuals):
            raise KeyError("there is no encoder")
        return _normed(self._stream("encoder.", row), self._model.get_submodule("encoder_norm"))

    def _own(self, path: str) -> str:
        residual = f"{path.removesuffix('_attention')}_residual"
        if residual not in self._residuals:
            raise KeyError(f"{path} is not in a block of Regard's")
        return residual

    def _stream(self, end: str, row: int) -> dict[str, Tensor]:
        """The components of the stream before the residual `end`; "encoder." is the end of that stack."""
        stack = [name for name in self._residuals if name.split(".")[0] == end.split(".")[0]]
        given = self._trace.given
        parts = {"embedding": given[stack[0]][0, row]}
        for name in takewhile(lambda name: name != end, stack):
            residual = self._residuals[name]
            total = self._trace.returned[name] if residual.before else given[f"{name}.norm"]
            label = name.removesuffix("_residual").replace("feed_forward", "feed-forward")
            parts[label] = total[0, row] - given[name][0, row]
            if not residual.before:
                parts = _normed(parts, residual.norm)
        return parts


def _normed(parts: Mapping[str, Tensor], norm: nn.Module) -> dict[str, Tensor]:
    """Each component through a norm whose standard deviation is that of their sum; the biases of norms are one."""
    if isinstance(norm, nn.Identity):
        return dict(parts)
    total = torch.stack(list(parts.values())).sum(0)
    if isinstance(norm, nn.LayerNorm):
        deviation = (total.var(unbiased=False) + norm.eps).sqrt()
        gain = norm.weight / deviation
        made = {name: (part - part.mean()) * gain for name, part in parts.items()}
        if norm.bias is not None:
            made[BIAS] = made.get(BIAS, 0.0) + norm.bias
        return made
    if isinstance(norm, nn.RMSNorm):
        gain = norm.weight / (total.square().mean() + (norm.eps or 0.0)).sqrt()
        return {name: part * gain for name, part in parts.items()}
    raise KeyError(f"its norm is a {type(norm).__name__}")


def _projected(
    parts: Mapping[str, Tensor], layer: nn.Linear, head: int, width: int
) -> dict[str, Tensor]:
    """Each component through the rows of a projection that belong to a head."""
    rows = slice(head * width, (head + 1) * width)
    made = {name: layer.weight[rows] @ part for name, part in parts.items()}
    return made if layer.bias is None else made | {"projection's bias": layer.bias[rows]}


def _turned(
    module: MultiHeadAttention, parts: Mapping[str, Tensor], norm: nn.Module | None, place: int
) -> dict[str, Tensor]:
    """The components of a query or key of a head after its norm and its rotation, which are linear as well."""
    made = dict(parts) if norm is None else _normed(parts, norm)
    if module.rotary is None:
        return made
    return {name: module.rotary(part[None], place)[0] for name, part in made.items()}


def _terms(call: CapturedCall, row: int, key: int) -> Object:
    """The terms of the score of one pair, their sum, scale and bound."""
    query, keys = _matrix(call.query)[row, None], _matrix(call.key)[key, None]
    score: Any = call.score or ScaledDot()
    cap = score.cap if isinstance(score, SoftCap) else None
    score = score.score if isinstance(score, SoftCap) else score
    scale = 1.0
    if isinstance(score, DotLike):
        kind = "dot"
        left, right, scale = score.factors(query, keys)
        terms = left * right
    elif isinstance(score, PreparedAdditive | Additive):
        kind = "additive"
        if isinstance(score, PreparedAdditive):
            left, right, score = score.score.query_features(query), keys, score.score
        else:
            left, right = score.query_features(query), score.key_features(keys)
        terms = score.weight * torch.tanh(left + right)
    else:
        return {"kind": "other"}
    total = float(terms.sum())
    made: Object = {"kind": kind, "sum": total, "scale": scale, "score": total * scale}
    made |= {"terms": _list(terms), "query": _list(left), "key": _list(right)}
    if cap is not None:
        made |= {"cap": cap, "score": cap * math.tanh(total * scale / cap)}
    return made


def _scores(call: CapturedCall, row: int) -> Object:
    """The score of each key before bias and mask, the bias, and whether the key may be read."""
    scores = _matrix((call.score or ScaledDot())(call.query, call.key))[row]
    readable = call.readable(torch.tensor([row]))
    found: Object = {
        "scores": scores.tolist(),
        "readable": _list(readable.expand(*readable.shape[:-1], len(scores))),
    }
    if call.bias is not None:
        bias = _matrix(call.bias.expand(call.shape))[row]
        found["bias"] = bias.clamp(min=torch.finfo(bias.dtype).min).tolist()
    return found


def _matrix(tensor: Tensor) -> Tensor:
    """The last two axes of one head of one batch entry."""
    return tensor.reshape(tensor.shape[-2:])


def _list(tensor: Tensor) -> list[float]:
    numbers: list[float] = tensor.flatten().tolist()
    return numbers
