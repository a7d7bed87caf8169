"""Scores, normalisers and masks by name, and arguments that are none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

import regard
from regard.attention import masks, normalisers, scores
from regard.attention.shapes import ShapeError

QUERY, KEY = torch.randn(2, 2, 4, 8, generator=torch.Generator().manual_seed(0)).unbind()
LONGER = torch.zeros(2, 6, 8)


@pytest.mark.parametrize(
    ("named", "built"),
    [
        ({"score": "dot"}, {"score": scores.Dot()}),
        ({"score": "scaled_dot"}, {"score": scores.ScaledDot()}),
        ({"score": "cosine"}, {"score": scores.Cosine()}),
        ({"normaliser": "softmax"}, {"normaliser": normalisers.Softmax()}),
        ({"normaliser": "hard"}, {"normaliser": normalisers.Hard()}),
        ({"normaliser": "sparsemax"}, {"normaliser": normalisers.Sparsemax()}),
        ({"normaliser": "entmax"}, {"normaliser": normalisers.Entmax()}),
        ({"normaliser": "identity"}, {"normaliser": normalisers.Identity()}),
        ({"mask": "causal"}, {"mask": masks.causal(align="start")}),
    ],
)
def test_a_name_stands_for_what_it_builds(named: dict[str, Any], built: dict[str, Any]) -> None:
    expected = regard.attend(QUERY, KEY, KEY, **built)
    assert torch.equal(regard.attend(QUERY, KEY, KEY, **named), expected)
    reading, look = regard.read(QUERY, KEY, KEY, **named)
    assert torch.allclose(reading, expected, atol=1e-6)
    assert torch.equal(look.weights(), regard.look(QUERY, KEY, **built).weights())
    assert regard.explain(QUERY, KEY, **named) == regard.explain(QUERY, KEY, **built)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"score": "additive"},
            ValueError,
            r"score 'additive' owns parameters: build regard\.scores\.Additive\(d_query=8, d_key=8,"
            r" d_hidden=…\) once and pass it",
        ),
        ({"score": "general"}, ValueError, r"regard\.scores\.General\(d_query=8, d_key=8\) once"),
        ({"score": "Scaled-Dto"}, ValueError, "'Scaled-Dto' is unknown: did you mean 'scaled_dot'"),
        ({"score": "zzz"}, ValueError, "'zzz' is unknown: the names are additive, concat, cosine"),
        ({"score": 3}, TypeError, "score is of type int: pass a score of regard.scores"),
        ({"score": scores.Cosine}, TypeError, r"score is the class Cosine: .* Cosine\(…\)"),
        ({"normaliser": "sparse_max"}, ValueError, "did you mean 'sparsemax'"),
        ({"normaliser": normalisers.Softmax}, TypeError, "normaliser is the class Softmax"),
        ({"mask": "casual"}, ValueError, "mask 'casual' is unknown: did you mean 'causal'"),
        ({"mask": "padding"}, ValueError, r"pass regard\.masks\.padding\(lengths\)"),
        ({"mask": "causal"}, ShapeError, r"4 queries and 6 keys: .*causal\(align=\"start\"\), or"),
        ({"mask": [[True] * 6] * 4}, TypeError, r"mask is of type list: .*torch.as_tensor\(mask\)"),
        ({"mask": numpy.ones((4, 6), bool)}, TypeError, "mask is of type ndarray: pass a tensor"),
        ({"bias": 0.5}, TypeError, r"bias is of type float: pass a tensor"),
        ({"bias": numpy.zeros((4, 6))}, TypeError, r"bias is of type ndarray: pass a tensor"),
    ],
)
def test_what_is_no_part_of_an_attention_is_refused(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    for call in (regard.attend, regard.read):
        with pytest.raises(error, match=message):
            call(QUERY, LONGER, LONGER, **arguments)
    with pytest.raises(error, match=message):
        regard.look(QUERY, LONGER, **arguments)


def test_a_soft_cap_takes_a_name() -> None:
    capped, named = (scores.SoftCap(score, 0.5) for score in (scores.Cosine(), "cosine"))
    assert torch.equal(named(QUERY, KEY), capped(QUERY, KEY))
    with pytest.raises(ValueError, match=r"build regard\.scores\.Additive\(d_query=…, d_key=…, d"):
        scores.SoftCap("additive", 0.5)


def test_a_name_cannot_be_joined_to_a_mask() -> None:
    with pytest.raises(ValueError, match=r"'causal' is joined .* regard\.masks\.causal\(align="):
        masks.padding([1, 2]) & "causal"  # type: ignore[operator]


@pytest.mark.parametrize("of", [lambda tensor: tensor.numpy(), lambda tensor: tensor.tolist()])
def test_arrays_and_lists_are_no_queries(of: Any) -> None:
    tensor = torch.zeros(1, 1, 3, 3)
    with pytest.raises(TypeError, match=r"query is of type .*: pass a tensor, torch.as_tensor"):
        regard.attend(*(of(tensor),) * 3)
    with pytest.raises(TypeError, match=r"value is of type .*: pass a tensor"):
        regard.attend(tensor, tensor, of(tensor))


@pytest.mark.parametrize(
    "make",
    [
        lambda: scores.ScaledDot(True),
        lambda: scores.Cosine(False),
        lambda: scores.SoftCap("dot", True),
        lambda: normalisers.Softmax(True),
        lambda: normalisers.Entmax(True),
    ],
)
def test_true_and_false_are_no_numbers(make: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match=r"(scale|cap|temperature|alpha) is (True|False): pass a"):
        make()


@pytest.mark.parametrize("call", [regard.attend, regard.read])
def test_a_dropout_of_true_is_no_rate(call: Any) -> None:
    tensor = torch.zeros(1, 3, 3)
    with pytest.raises(ValueError, match="dropout is True: pass a rate from 0 to 1"):
        call(tensor, tensor, tensor, dropout=True)


@pytest.mark.parametrize("kind", [scores.ScaledDot, scores.Cosine])
def test_a_scale_is_a_number(kind: Any) -> None:
    scale: Tensor = torch.tensor(2.0, requires_grad=True)
    with pytest.raises(TypeError, match=r"scale is a tensor: pass a number; .* multiply the query"):
        kind(scale)
    advised = regard.attend(QUERY * scale, KEY, KEY, score=scores.ScaledDot(1.0))
    doubled = regard.attend(QUERY, KEY, KEY, score=scores.ScaledDot(2.0))
    assert torch.allclose(advised, doubled, atol=1e-5)
    advised.square().sum().backward()
    assert scale.grad is not None
    assert scale.grad != 0
