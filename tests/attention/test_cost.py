"""Costs on paper, against modules and torch's own counter."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.attention import scores
from regard.attention.cost import attention_cost
from regard.attention.heads import MultiHeadAttention

CONFIGURATIONS = [
    {"d_query": 8, "heads": 2},
    {"d_query": 8, "heads": 4, "merge": "sum", "bias": True},
    {
        "d_query": 6,
        "heads": 2,
        "d_key": 5,
        "d_value": 4,
        "d_head": 3,
        "d_head_value": 7,
        "d_output": 9,
    },
    {"d_query": 6, "heads": 4, "d_head": 5, "merge": "sum", "d_value": 3},
    {"d_query": 8, "heads": 4, "key_heads": 2, "bias": True},
    {"d_query": 8, "heads": 4, "key_heads": 1, "qk_norm": "rms"},
    {"d_query": 8, "heads": 2, "qk_norm": "layer", "score": "additive"},
    {"d_query": 8, "heads": 2, "score": "general"},
    {"d_query": 8, "heads": 2, "score": "cosine"},
]


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_parameters_and_operations_are_those_of_the_module(configuration):
    attention = MultiHeadAttention(**configuration)
    cost = attention_cost(**configuration, queries=5, keys=7, batch=3)
    assert cost.parameters == sum(p.numel() for p in attention.parameters())
    assert cost.parameter_bytes == sum(p.nbytes for p in attention.parameters())
    query = torch.zeros(3, 5, attention.d_query)
    key, value = torch.zeros(3, 7, attention.d_key), torch.zeros(3, 7, attention.d_value)
    with FlopCounterMode(display=False) as counter:
        _, look = attention.read(query, key, value)
        weights = look.weights()
    # The look may score once more than the reading did; what the projections cost is exact.
    assert counter.get_total_flops() >= cost.total_operations
    assert cost.weights_bytes == weights.nbytes
    memory = attention.remember(key, value)
    assert cost.memory_bytes == memory.keys.nbytes + memory.values.nbytes
    with FlopCounterMode(display=False) as counter:
        attention.output_projection(torch.zeros(3, 5, attention.output_projection.in_features))
        attention.query_projection(query)
        attention.remember(key, value)
    projections = [n for name, n in cost.operations.items() if name.endswith("projection")]
    assert counter.get_total_flops() == sum(projections)


@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("name", ["general", "additive"])
def test_the_parameters_of_the_score_count(name, per_head):
    heads = 2 if per_head else None
    score = (
        scores.General(4, 4, heads) if name == "general" else scores.Additive(4, 4, 6, heads=heads)
    )
    attention = MultiHeadAttention(8, 2, score=score)
    cost = attention_cost(8, 2, queries=3, score=name, d_hidden=6, score_per_head=per_head)
    assert cost.parameters == sum(p.numel() for p in attention.parameters())


@pytest.mark.parametrize("keys", [2, 9])
def test_operations_of_dot_and_general_scores_are_torchs_count(keys):
    query, key = torch.zeros(1, 2, 5, 4), torch.zeros(1, 2, keys, 4)
    for name, score in {"dot": scores.Dot(), "general": scores.General(4, 4, heads=2)}.items():
        with FlopCounterMode(display=False) as counter:
            score(query, key)
        cost = attention_cost(8, 2, queries=5, keys=keys, score=name)
        assert cost.operations["score"] == counter.get_total_flops()


def test_half_precision_halves_the_bytes_and_nothing_else():
    full, half = (attention_cost(64, 4, queries=10, number_bytes=size) for size in (4, 2))
    assert full.memory_bytes == 2 * half.memory_bytes
    assert (full.parameters, full.operations) == (half.parameters, half.operations)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, "3 heads do not divide"),
        ({"heads": 0}, "heads is 0"),
        ({"heads": -2}, "heads is -2"),
        ({"heads": 2, "queries": -1}, "negative"),
        ({"heads": 2, "score": "cosmic"}, "score 'cosmic' is unknown: did you mean 'cosine'"),
    ],
)
def test_impossible_configurations_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        attention_cost(8, **{"queries": 3, **options})
