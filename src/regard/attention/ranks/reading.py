"""A reading of keys that are shared out among ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.kernels.choose import pinned
from regard.attention.kernels.reference import scores_of
from regard.attention.kernels.request import Request, ask
from regard.attention.kernels.sdpa import fused_with_sums
from regard.attention.kernels.serve import serve
from regard.attention.looks import Look
from regard.attention.looks.sharing import shared
from regard.attention.masks import MaskLike
from regard.attention.normalisers import NormaliserLike, Softmax, as_normaliser
from regard.attention.parts import Part, quotient
from regard.attention.positions.biases import BiasLike
from regard.attention.products import widen
from regard.attention.ranks.keys import ROOM, Description, Keys, agree, meet
from regard.attention.ranks.merge import Blend, Inputs, flat, flat_size, merge, sum_of
from regard.attention.scores import ScoreLike
from regard.attention.scores.score import with_parameters
from regard.attention.shapes import Shape

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

FEW = 1 << 18  # numbers of the scores that are computed together


def check_softmax(normaliser: NormaliserLike | None) -> None:
    """Refuse normalisers that cannot be summed up from parts of the keys."""
    if normaliser is not None and type(as_normaliser(normaliser)) is not Softmax:
        raise ValueError(
            f"normaliser is {normaliser!r}: over a group, pass Softmax(); others need all scores of a row"
        )


@dataclass(frozen=True)
class Sharded:
    """A request for the keys of this rank, where these stand among all, and what gradients are of, without answers."""

    request: Request
    keys: Keys
    inputs: Inputs

    def rebuilt(self, common: list[Tensor | None], apart: list[Tensor | None]) -> Request:
        """The request, of tensors in the place of its inputs."""
        (query, bias), (key, value), request = common, apart, self.request
        assert query is not None
        assert key is not None
        return ask(
            query,
            key,
            value,
            score=request.score,
            bias=request.bias_function or self.keys.bias_of(bias, request.frame),
            mask=request.mask,
            normaliser=request.normaliser,
            dropout=request.dropout,
        )


def shard(
    group: ProcessGroup,
    query: Tensor,
    key: Tensor,
    value: Tensor | None = None,
    *,
    score: ScoreLike | None,
    bias: BiasLike | None,
    mask: MaskLike | None,
    normaliser: NormaliserLike | None,
    dropout: float = 0.0,
) -> Sharded:
    """Check what all ranks passed, and cut mask and bias to the keys of this rank.

    The ranks exchange their short answers with it, where none has a mask or a bias.
    """
    options: dict[str, Any] = {"score": score, "normaliser": normaliser, "dropout": dropout}
    has_rules = mask is not None or bias is not None
    plain: Request | None = None

    def describe() -> Description:
        nonlocal plain
        check_softmax(normaliser)
        plain = ask(query, key, value, **options)
        frame, answer = plain.frame, None
        if value is not None and not has_rules:
            answer = _answer(plain, value)
        width = 0 if value is None else value.shape[-1]
        return Description((*frame.batch, frame.queries), width, frame.keys, has_rules, answer)

    def ruled() -> tuple[Request, Shape]:
        assert plain is not None
        if not has_rules:
            return plain, plain.frame.batch
        frame = plain.frame
        rules: dict[str, Any] = {
            "bias": keys.bias_of(bias, frame),
            "mask": keys.mask_of(mask, frame),
        }
        request = ask(query, key, value, **rules, **options)
        return request, request.batch()

    keys = meet(group, describe)
    if keys.answers is not None:
        assert plain is not None
        return Sharded(plain, keys, Inputs([], [], []))
    request = agree(group, keys, ruled)
    common = [query, bias if isinstance(bias, Tensor) else None]
    return Sharded(request, keys, Inputs(common, [key, value], _parameters(score, bias)))


def attend_over_ranks(
    group: ProcessGroup, query: Tensor, key: Tensor, value: Tensor, **options: Any
) -> Tensor:
    """The reading of the keys of all ranks, on every rank; arguments are those of `attend`."""
    sharded = shard(group, query, key, value, **options)
    request, answers, width = sharded.request, sharded.keys.answers, value.shape[-1]
    if answers is not None:
        _, total, blend = sum_of(answers, (*request.frame.batch, request.queries, width))
        return torch.from_numpy(quotient(total, blend)).to(value)
    shape = (*request.batch(), request.queries, width)

    def compute(common: list[Tensor | None], apart: list[Tensor | None]) -> Blend:
        ours = sharded.rebuilt(common, apart)
        assert apart[1] is not None
        if (blend := _part(ours, apart[1])) is not None:
            return Blend(blend.reading().to(value.dtype), blend.log_normaliser().to(blend.maximum))
        ours = shared(ours)
        return Blend(serve(ours, apart[1]), Look(ours).log_normaliser())

    return merge(group, compute, shape, sharded.inputs).numbers


def _answer(request: Request, value: Tensor) -> np.ndarray | None:
    """The part of this rank as it is sent with the header; None where it is long, or needs another way."""
    shape = (*request.frame.batch, request.queries, value.shape[-1])
    part = _part(request, value) if flat_size(shape) <= ROOM else None
    return None if part is None else flat(part, shape)


def _part(request: Request, value: Tensor) -> Part | None:
    """The reading of keys that may all be read, without a gradient; None for other requests."""
    if request.is_masked or request.dropout or request.is_traced:
        return None
    has_graph, tensors = torch.is_grad_enabled(), (request.query, request.key, value)
    if has_graph and any(tensor.requires_grad for tensor in tensors):
        return None
    if torch.is_autocast_enabled(value.device.type):
        return None
    if not pinned() and (sides := fused_with_sums(request, value)) is not None:
        reading, log_normaliser = sides
        return Part(log_normaliser, torch.ones_like(log_normaliser), reading)
    if request.size > FEW:
        return None
    scores = scores_of(request)[0]
    if has_graph and scores.requires_grad:  # by parameters
        return None
    normaliser = request.normaliser
    assert isinstance(normaliser, Softmax)
    return Part.of(scores / normaliser.temperature, widen(value).to(scores.dtype))


def _parameters(*functions: object) -> list[Tensor]:
    """The parameters of a score and a bias, each once."""
    parameters: list[Tensor] = []

    def note(parameter: Tensor, axes: int) -> Tensor:
        parameters.append(parameter)
        return parameter

    for function in functions:
        if isinstance(function, nn.Module):
            parameters += function.parameters()
        elif not isinstance(function, Tensor):
            with_parameters(function, note)
    return list({id(parameter): parameter for parameter in parameters}.values())
