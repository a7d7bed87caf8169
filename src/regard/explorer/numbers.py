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
from regard.attention.scores import DotLike, ScaledDot
from regard.attention.scores.score import PairScore
from regard.explorer.direct import DirectError
from regard.explorer.split_scores import ScoreSplits
from regard.watching import Seen
from regard.watching.captured import CapturedCall, Selection
from regard.watching.change import Change

BIAS = "norm's bias"
PAIRS = 24  # pairs of components that are listed; the rest is one number

Object = dict[str, Any]


@dataclass
class Trace:
    """The inputs and outputs of the modules of a model, for one batch entry."""

    inputs: dict[str, Tensor] = field(default_factory=dict)
    returned: dict[str, Tensor] = field(default_factory=dict)


@contextmanager
def traced(model: nn.Module) -> Iterator[Trace]:
    """Keep the first input and the output of every module that runs, by its path."""
    trace = Trace()

    def hook(path: str) -> Callable[..., None]:
        def keep(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if inputs and isinstance(inputs[0], Tensor):
                trace.inputs[path] = inputs[0].detach()
            if isinstance(output, Tensor):
                trace.returned[path] = output.detach()

        return keep

    with ExitStack() as stack:
        for path, module in model.named_modules():
            stack.callback(module.register_forward_hook(hook(path)).remove)
        yield trace


@dataclass(frozen=True, eq=False)
class Arithmetic:
    """The numbers of one run, perhaps in a change."""

    model: nn.Module
    looks: Seen
    trace: Trace | None = None  # without one, only what the kept values tell
    change: Change | None = None
    splits: Callable[[], ScoreSplits | str] | None = None  # of the scores of a language model

    @torch.no_grad()
    def of(self, name: str, head: int, query: int, key: int) -> Object:
        """The numbers of a query of one head, its score with one key in detail."""
        steps = self.looks.steps(name)
        stepwise = len(steps) > 1  # a recurrent decoder reads once for each word
        call = self.looks.parts(name, query if stepwise else -1)
        if call.query.ndim > 3:
            call = call.selected(Selection(heads=(head,)))
        row = 0 if stepwise else query
        weights = _matrix(call.look().weights(rows=[row]))[0]
        numbers: Object = {"name": name, "query": query, "key": key, "weights": weights.tolist()}
        if self.change is not None and name in self.change:
            weights = self.change.weights(name)[0, head, query]
            numbers["edited"] = weights.tolist()
        numbers["terms"] = _terms(call, row, key)
        numbers |= _scores(call, row)
        path = self.looks.path(name)
        modules = dict(self.model.named_modules())
        if self.trace is None:
            numbers |= self._readings(name, head, row, weights)
            numbers |= self._summands(name, head, query, key, call.score or ScaledDot())
        elif isinstance(module := modules.get(path), MultiHeadAttention):
            numbers["stages"] = self._stages(module, path, head, row, weights)
            numbers |= self._components(module, path, head, row, key, call.score or ScaledDot())
        return numbers

    def _readings(self, name: str, head: int, row: int, weights: Tensor) -> Object:
        """Weighted values, the reading of the head and its output, of an attention that kept its values."""
        readings = self.looks.readings(name)
        values = readings.call.values().flatten(0, -3)[head]
        weighted = weights[:, None].to(values) * values
        stages: Object = {
            "weighted": weighted.norm(dim=-1).tolist(),
            "reading": weighted.sum(0).tolist(),
        }
        outputs = self.head_outputs(name, row)
        if outputs is None:
            return {"stages": stages, "unprojected": readings.objection}
        lengths = outputs.norm(dim=-1).tolist()
        return {"stages": {**stages, "heads": lengths, "head output": outputs[head].tolist()}}

    @torch.no_grad()
    def head_outputs(self, name: str, row: int) -> Tensor | None:
        """What each head adds to the output of its attention at a query, (heads, width); None where the output
        projection is unknown."""
        readings = self.looks.readings(name)
        if readings.projection is None:
            return None
        if self.change is not None and name in self.change:
            weights = self.change.weights(name)[..., row : row + 1, :]
        else:
            weights = readings.call.look().weights(rows=[row])
        values = readings.call.values()
        outputs = weights.to(values) @ values @ readings.projection.weight
        return outputs.flatten(0, -3)[:, 0]

    def _stages(
        self, module: MultiHeadAttention, path: str, head: int, row: int, weights: Tensor
    ) -> Object:
        """Weighted values, heads merged, residual, norm and feed-forward layer: a vector each."""
        trace = self.trace
        assert trace is not None
        output = trace.returned[f"{path}.output_projection"][0]
        merged = trace.inputs[f"{path}.output_projection"][0]
        stages: Object = {}
        values = trace.returned.get(f"{path}.value_projection")
        group = module.heads // module.key_heads
        if values is not None:
            width = values.shape[-1] // module.key_heads
            head_values = values[0].unflatten(-1, (module.key_heads, width))[:, head // group]
            weighted = weights[:, None] * head_values
            stages["weighted"] = weighted.norm(dim=-1).tolist()
            stages["reading"] = weighted.sum(0).tolist()
        weight = module.output_projection.weight
        if module.merge == "concat":
            readings = merged[row].reshape(module.heads, -1)
            width = readings.shape[-1]
            split = [
                weight[:, i * width : (i + 1) * width] @ part for i, part in enumerate(readings)
            ]
            stages["heads"] = [float(each.norm()) for each in split]
            stages["head output"] = split[head].tolist()
        stages["attention output"] = output[row].tolist()
        return stages | self._block(path, row)

    def _block(self, path: str, row: int) -> Object:
        """The position's way through the block, after this attention."""
        parent, _, label_of_attention = path.rpartition(".")
        kind = label_of_attention.removesuffix("_attention")
        assert self.trace is not None
        modules, returned = dict(self.model.named_modules()), self.trace.returned
        stages: Object = {}
        for label, name in (
            ("before", f"{kind}_residual"),
            ("feed-forward", "feed_forward_residual"),
        ):
            at = f"{parent}.{name}"
            if at not in returned:
                continue
            is_pre_norm = getattr(modules[at], "before", True)
            stages[f"{label}: residual in"] = self.trace.inputs[at][0, row].tolist()
            if is_pre_norm and f"{at}.norm" in returned:
                stages[f"{label}: norm"] = returned[f"{at}.norm"][0, row].tolist()
            if label == "feed-forward" and f"{parent}.feed_forward" in returned:
                output = returned[f"{parent}.feed_forward"][0, row]
                stages["feed-forward: output"] = output.tolist()
            end = "residual out" if is_pre_norm else "normalised sum"
            stages[f"{label}: {end}"] = returned[at][0, row].tolist()
        return stages

    def _components(
        self, module: MultiHeadAttention, path: str, head: int, row: int, key: int, score: Any
    ) -> Object:
        """The score split by pairs of components of the residual stream, or why it cannot be."""
        if not isinstance(score, DotLike):
            return {"unsplit": "the score is not a dot product of projections"}
        assert self.trace is not None
        streams = Streams(self.model, self.trace)
        try:
            query_stream = streams.into(path, row)
            key_stream = streams.memory(path, key)
        except KeyError as reason:
            return {"unsplit": f"the residual stream could not be followed: {reason.args[0]}"}
        d_head = module.d_head
        group = module.heads // module.key_heads
        queries = _projected(query_stream, module.query_projection, head, d_head)
        queries = _turned(module, queries, module.query_norm, row)
        keys = _projected(key_stream, module.key_projection, head // group, d_head)
        keys = _turned(module, keys, module.key_norm, key)
        return _pairs(score, list(queries), list(keys), *map(_stacked, (queries, keys)))

    def _summands(self, name: str, head: int, query: int, key: int, score: Any) -> Object:
        """The score of a language model, split by pairs of summands of its residual stream, or why it cannot be."""
        if self.splits is None:
            return {}
        if not isinstance(score, DotLike):
            return {"unsplit": "the score is not a dot product of projections"}
        splits = self.splits()
        if isinstance(splits, str):
            return {"unsplit": splits}
        try:
            names, queries, keys = splits.of(name, head, query, key)
        except DirectError as reason:
            return {"unsplit": str(reason)}
        return _pairs(score, names, names, queries, keys)


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
        residual = self._residual_of(path)
        components = self._stream(residual, row)
        residual_module = self._residuals[residual]
        return _normed(components, residual_module.norm) if residual_module.before else components

    def memory(self, path: str, row: int) -> dict[str, Tensor]:
        """The components of the input of its keys."""
        if not self._residual_of(path).endswith("cross_residual"):
            return self.into(path, row)
        if not any(name.startswith("encoder.") for name in self._residuals):
            raise KeyError("there is no encoder")
        return _normed(self._stream("encoder.", row), self._model.get_submodule("encoder_norm"))

    def _residual_of(self, path: str) -> str:
        residual = f"{path.removesuffix('_attention')}_residual"
        if residual not in self._residuals:
            raise KeyError(f"{path} is not in a block of Regard's")
        return residual

    def _stream(self, end: str, row: int) -> dict[str, Tensor]:
        """The components of the stream before the residual `end`; "encoder." is the end of that stack."""
        stack = [name for name in self._residuals if name.split(".")[0] == end.split(".")[0]]
        inputs = self._trace.inputs
        components = {"embedding": inputs[stack[0]][0, row]}
        for name in takewhile(lambda name: name != end, stack):
            residual = self._residuals[name]
            total = self._trace.returned[name] if residual.before else inputs[f"{name}.norm"]
            label = name.removesuffix("_residual").replace("feed_forward", "feed-forward")
            components[label] = total[0, row] - inputs[name][0, row]
            if not residual.before:
                components = _normed(components, residual.norm)
        return components


def _normed(components: Mapping[str, Tensor], norm: nn.Module) -> dict[str, Tensor]:
    """Each component through a norm whose standard deviation is that of their sum; the biases of norms are one."""
    if isinstance(norm, nn.Identity):
        return dict(components)
    total = torch.stack(list(components.values())).sum(0)
    if isinstance(norm, nn.LayerNorm):
        deviation = (total.var(unbiased=False) + norm.eps).sqrt()
        gain = norm.weight / deviation
        scaled = {name: (part - part.mean()) * gain for name, part in components.items()}
        if norm.bias is not None:
            scaled[BIAS] = scaled.get(BIAS, 0.0) + norm.bias
        return scaled
    if isinstance(norm, nn.RMSNorm):
        gain = norm.weight / (total.square().mean() + (norm.eps or 0.0)).sqrt()
        return {name: part * gain for name, part in components.items()}
    raise KeyError(f"its norm is a {type(norm).__name__}")


def _projected(
    components: Mapping[str, Tensor], layer: nn.Linear, head: int, width: int
) -> dict[str, Tensor]:
    """Each component through the rows of a projection that belong to a head."""
    rows = slice(head * width, (head + 1) * width)
    projected = {name: layer.weight[rows] @ part for name, part in components.items()}
    return projected if layer.bias is None else projected | {"projection's bias": layer.bias[rows]}


def _turned(
    module: MultiHeadAttention, components: Mapping[str, Tensor], norm: nn.Module | None, place: int
) -> dict[str, Tensor]:
    """The components of a query or key of a head after its norm and its rotation, which are linear as well."""
    normed = dict(components) if norm is None else _normed(components, norm)
    if module.rotary is None:
        return normed
    return {name: module.rotary(part[None], place)[0] for name, part in normed.items()}


def _stacked(components: Mapping[str, Tensor]) -> Tensor:
    return torch.stack(list(components.values()))


def _pairs(
    score: Any, query_names: list[str], key_names: list[str], queries: Tensor, keys: Tensor
) -> Object:
    """The largest of the products of components of a query and of a key, and the sum of the others."""
    split = score.split(queries, keys)
    if split is None:
        return {"unsplit": "the score is not linear in the queries and keys"}
    query_factors, key_factors, scale = split
    table = query_factors @ key_factors.mT * scale
    order = table.abs().flatten().argsort(descending=True)[:PAIRS].tolist()
    pairs = [
        {
            "query": query_names[at // len(key_names)],
            "key": key_names[at % len(key_names)],
            "score": float(table.flatten()[at]),
        }
        for at in order
    ]
    total = float(table.sum())
    return {"pairs": pairs, "rest": total - sum(x["score"] for x in pairs), "split": total}


def _terms(call: CapturedCall, row: int, key: int) -> Object:
    """The terms of the score of one pair, their sum, scale and bound."""
    query, keys = _matrix(call.query)[row, None], _matrix(call.key)[key, None]
    score: Any = call.score or ScaledDot()
    terms = score.terms(query, keys) if isinstance(score, PairScore) else None
    if terms is None:
        return {"kind": "other"}
    total, scale = float(terms.terms.sum()), terms.scale
    numbers: Object = {"kind": terms.kind, "sum": total, "scale": scale, "score": total * scale}
    numbers |= {name: _list(getattr(terms, name)) for name in ("terms", "query", "key")}
    if terms.cap is not None:
        numbers |= {"cap": terms.cap, "score": terms.cap * math.tanh(total * scale / terms.cap)}
    return numbers


def _scores(call: CapturedCall, row: int) -> Object:
    """The score of each key before bias and mask, the bias, and whether the key may be read."""
    queries = call.query[..., row : row + 1, :]
    scores = _matrix((call.score or ScaledDot())(queries, call.key))[0]
    readable = call.readable(torch.tensor([row]))
    numbers: Object = {
        "scores": scores.tolist(),
        "readable": _list(readable.expand(*readable.shape[:-1], len(scores))),
    }
    if call.bias is not None:
        bias = _matrix(call.bias.expand(call.shape))[row]
        numbers["bias"] = bias.clamp(min=torch.finfo(bias.dtype).min).tolist()
    return numbers


def _matrix(tensor: Tensor) -> Tensor:
    """The last two axes of one head of one batch entry."""
    return tensor.reshape(tensor.shape[-2:])


def _list(tensor: Tensor) -> list[float]:
    numbers: list[float] = tensor.flatten().tolist()
    return numbers
