"""Formulas against the models that they describe: torch's numel, torch's counter of operations, real caches."""

from math import prod

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch.utils.flop_counter import FlopCounterMode

import regard
from regard.attention import scores
from regard.attention.heads import MultiHeadAttention
from regard.costs import Cost, cost
from regard.costs.architectures import Heads, Stack, attended, stack
from regard.costs.measuring import StackModel, built
from regard.costs.parts import added
from regard.errors import ConfigurationError
from regard.translation.models.recurrent.attention import SourceKeys
from regard.translation.models.recurrent.model import RecurrentModel
from regard.translation.models.transformer.model import Transformer
from regard.translation.settings.recurrent import RecurrentSettings
from regard.translation.settings.transformer import TransformerSettings

BATCH, QUERIES, KEYS = 2, 5, 7


# A matrix by a vector, v^T of an additive score that heads share, which torch's counter lacks.
VECTORS = {
    torch.ops.aten.mv: lambda matrix, vector, out_shape=None, **_: 2 * prod(matrix),
    torch.ops.aten.addmv: lambda sum_of, matrix, vector, out_shape=None, **_: 2 * prod(matrix),
}


def torchs_count(run) -> int:
    """Multiply-adds by torch's own counter, with the kernel that it can see."""
    counter = FlopCounterMode(display=False, custom_mapping=VECTORS)
    with regard.kernel("reference"), counter, torch.no_grad():
        run()
    return counter.get_total_flops() // 2


def cached_numbers(memory) -> int:
    return memory.keys.numel() + memory.values.numel()


TRANSFORMERS = st.fixed_dictionaries(
    {
        "encoder_layers": st.integers(1, 2),
        "decoder_layers": st.integers(1, 2),
        "width": st.sampled_from([8, 16]),
        "heads": st.sampled_from([1, 2, 4]),
        "feed_forward": st.integers(1, 20),
        "gated": st.booleans(),
        "norm": st.sampled_from(["pre", "post"]),
        "normalisation": st.sampled_from(["layer", "rms"]),
        "positions": st.sampled_from(["sinusoidal", "learned", "rotary", "alibi", "relative"]),
        "longest": st.integers(10, 20),
        "tied": st.sampled_from(["none", "embeddings", "target", "three_way"]),
        "attention_bias": st.booleans(),
        "feed_forward_bias": st.booleans(),
        "output_bias": st.booleans(),
        "head_width": st.sampled_from([None, 6]),
    }
)
RECURRENT = st.fixed_dictionaries(
    {
        "cell": st.sampled_from(["gru", "lstm"]),
        "encoder_layers": st.integers(1, 2),
        "decoder_layers": st.integers(1, 2),
        "bidirectional": st.booleans(),
        "embedding_width": st.integers(1, 9),
        "encoder_width": st.sampled_from([4, 8]),
        "decoder_width": st.sampled_from([4, 8]),
        "attention": st.sampled_from(["bahdanau", "luong", "none"]),
        "score": st.sampled_from(["additive", "dot", "scaled_dot", "cosine", "general"]),
        "attention_width": st.integers(1, 9),
        "heads": st.sampled_from([1, 1, 2]),
        "input_feeding": st.booleans(),
        "bridge": st.sampled_from(["linear", "zero", "copy"]),
        "tied": st.sampled_from(["none", "target", "three_way"]),
    }
)


def translates(model, cost: Cost) -> None:
    source, target = torch.zeros(BATCH, KEYS).long() + 4, torch.zeros(BATCH, QUERIES).long() + 4
    lengths = torch.full((BATCH,), KEYS)
    assert cost.parameters == sum(each.numel() for each in model.parameters())
    assert torchs_count(lambda: model.eval()(source, lengths, target)) == cost.multiply_adds


@settings(max_examples=12)
@given(TRANSFORMERS)
def test_a_transformer_has_the_parameters_the_products_and_the_cache_of_its_formula(inputs):
    model = Transformer(TransformerSettings(**inputs), 11, 11)
    costs = cost(model, queries=QUERIES, keys=KEYS, batch=BATCH)
    translates(model, costs)
    with torch.no_grad():
        state = model.begin(torch.ones(BATCH, KEYS).long(), torch.full((BATCH,), KEYS))
        for _ in range(QUERIES):
            _, state = model.advance(torch.ones(BATCH).long(), state)
    memories = [*state.targets, *state.sources]
    assert costs.memory.cache == 4 * sum(map(cached_numbers, memories))


@settings(max_examples=40)
@given(RECURRENT)
def test_a_recurrent_model_has_the_parameters_the_products_and_the_cache_of_its_formula(inputs):
    try:
        model = RecurrentModel(RecurrentSettings(**inputs), 11, 11)
    except ValidationError:
        assume(False)
    costs = cost(model, queries=QUERIES, keys=KEYS, batch=BATCH)
    translates(model, costs)
    source = model.eval().encode(torch.ones(BATCH, KEYS).long(), torch.full((BATCH,), KEYS))
    if source.keys is None:
        assert costs.memory.cache == 0
    elif isinstance(source.keys, SourceKeys):
        sides = source.keys.keys, source.states
        storages = {side.data_ptr(): side.numel() for side in sides}
        assert costs.memory.cache == 4 * sum(storages.values())
    else:
        assert costs.memory.cache == 4 * cached_numbers(source.keys)


ATTENTIONS = [
    {"d_query": 8, "heads": 2},
    {"d_query": 8, "heads": 4, "merge": "sum", "bias": True},
    {"d_query": 6, "heads": 2, "d_key": 5, "d_value": 4, "d_head": 3, "d_head_value": 7, "d_output": 9},
    {"d_query": 6, "heads": 4, "d_head": 5, "merge": "sum", "d_value": 3},
    {"d_query": 8, "heads": 4, "key_heads": 2, "bias": True},
    {"d_query": 8, "heads": 4, "key_heads": 1, "qk_norm": "rms"},
    {"d_query": 8, "heads": 2, "qk_norm": "layer", "score": "additive"},
    {"d_query": 8, "heads": 4, "key_heads": 2, "score": "general"},
    {"d_query": 8, "heads": 2, "score": scores.General(4, 4)},
    {"d_query": 8, "heads": 2, "score": scores.Additive(4, 4, 6)},
    {"d_query": 8, "heads": 2, "score": "cosine"},
]  # fmt: skip


@pytest.mark.parametrize("keys", [3, KEYS])
@pytest.mark.parametrize("options", ATTENTIONS)
def test_an_attention_has_the_parameters_products_scores_and_cache_of_its_formula(options, keys):
    module = MultiHeadAttention(**options)
    costs = cost(module, queries=QUERIES, keys=keys, batch=BATCH)
    assert costs.parameters == sum(each.numel() for each in module.parameters())
    query = torch.zeros(BATCH, QUERIES, module.d_query)
    key, value = torch.zeros(BATCH, keys, module.d_key), torch.zeros(BATCH, keys, module.d_value)
    assert torchs_count(lambda: module(query, key, value)) == costs.multiply_adds
    assert costs.memory.scores == module.read(query, key, value)[1].weights().nbytes
    assert costs.memory.cache == 4 * cached_numbers(module.remember(key, value))


@given(st.integers(1, 3), st.sampled_from([1, 2, 4]), st.integers(0, 2), st.booleans())
def test_a_stack_has_the_parameters_and_products_of_its_formula(layers, heads, segments, causal):
    sizes = Stack(layers, 8, heads, 13, segments, causal, pooler=not causal)
    model, actual_cost = (
        StackModel(sizes, 11),
        Cost("", added(stack(sizes, (11, 11), KEYS, KEYS)), KEYS, KEYS),
    )
    assert actual_cost.parameters == sum(each.numel() for each in model.parameters())
    tokens = torch.zeros(1, KEYS).long()
    assert torchs_count(lambda: model(tokens)) == actual_cost.multiply_adds


@pytest.mark.parametrize("kind", ["single-head", "multi-head", "summed-heads"])
@pytest.mark.parametrize("value_width", [None, 8, 5])
def test_the_three_attentions_have_the_products_of_their_formulas(kind, value_width):
    sizes = Heads(kind, 8, 1 if kind == "single-head" else 4, value_width)
    model, run = built(sizes, (0, 0), QUERIES, KEYS, 1)
    cost = Cost("", added(attended(sizes, (0, 0), QUERIES, KEYS)), QUERIES, KEYS)
    assert cost.parameters == sum(each.numel() for each in model.parameters())
    assert torchs_count(run) == cost.multiply_adds


@pytest.mark.parametrize(("name", "merge"), [("multi-head", "concat"), ("summed-heads", "sum")])
def test_a_kind_of_heads_costs_what_the_module_costs(name, merge):
    module = MultiHeadAttention(64, 4, merge=merge)
    sizes = {"queries": 10, "keys": 20}
    by_name = cost(name, width=64, heads=4, **sizes)
    assert by_name.parameters == sum(each.numel() for each in module.parameters())
    built_with = cost(module, **sizes)
    for item in ("W_Q", "W_K", "scores", "W_V", "values", "W_O"):
        assert by_name[item].parameters == built_with[item].parameters, item
        assert by_name[item].multiply_adds == built_with[item].multiply_adds, item


def test_the_attentions_differ_by_their_formulas():
    sizes = {"queries": 10, "keys": 20, "width": 64}
    single, double, summed = (
        cost(name, heads=heads, **sizes)
        for name, heads in (("single-head", 1), ("multi-head", 4), ("summed-heads", 4))
    )
    assert single.parameters == 0
    assert double.parameters == 4 * 64**2
    assert summed.parameters == (3 + 4) * 64**2  # values of the full width, short queries and keys
    assert single["scores"].multiply_adds == double["scores"].multiply_adds == 10 * 20 * 64
    assert summed["scores"].multiply_adds == 10 * 20 * 64
    assert summed["values"].multiply_adds == 4 * double["values"].multiply_adds == 4 * 10 * 20 * 64
    assert 4 * single.memory.scores == double.memory.scores == summed.memory.scores


def test_values_may_be_of_another_width_than_queries_and_keys():
    costs = cost("single-head", width=64, value_width=512, queries=10, keys=20)
    assert costs["scores"].multiply_adds == 10 * 20 * 64
    assert costs["values"].multiply_adds == 10 * 20 * 512
    assert costs["values"].cache == 20 * (64 + 512)
    with pytest.raises(
        ConfigurationError, match="value_width and learned_keys are sizes of single-head"
    ):
        cost("gpt-3", value_width=4)
    with pytest.raises(ConfigurationError, match="value_width is 0: pass a whole number"):
        cost("single-head", value_width=0)
    with pytest.raises(ConfigurationError, match="5 heads do not divide the width 64"):
        cost("summed-heads", width=64, heads=5)


def test_one_learned_key_and_value_cost_what_torchs_own_cost():
    layer = torch.nn.MultiheadAttention(8, 2, bias=False, add_bias_kv=True, batch_first=True).eval()
    costs = cost("multi-head", width=8, heads=2, queries=QUERIES, keys=KEYS, learned_keys=1)
    assert costs.parameters == sum(each.numel() for each in layer.parameters())
    assert costs["learned keys"].parameters == layer.bias_k.numel()
    query, key = torch.zeros(1, QUERIES, 8), torch.zeros(1, KEYS, 8)
    assert torchs_count(lambda: layer(query, key, key)) == costs.multiply_adds
    assert cost(layer, query, key, key)["learned values"].parameters == layer.bias_v.numel()


@pytest.mark.parametrize("kind", ["single-head", "multi-head", "summed-heads"])
def test_learned_keys_are_read_like_keys_and_neither_projected_nor_cached(kind):
    sizes = {"width": 8, "heads": 1 if kind == "single-head" else 2, "value_width": 6}
    without = cost(kind, queries=QUERIES, keys=KEYS, **sizes)
    costs = cost(kind, queries=QUERIES, keys=KEYS, learned_keys=3, **sizes)
    longer = cost(kind, queries=QUERIES, keys=KEYS + 3, **sizes)
    for name in ("scores", "values"):
        assert costs[name].multiply_adds == longer[name].multiply_adds
    assert costs.memory.scores == longer.memory.scores
    assert costs.memory.cache == without.memory.cache
    d_values = without["values"].activations // QUERIES
    assert costs.parameters == without.parameters + 3 * (8 + d_values)
    if kind != "single-head":
        assert costs["W_K"] == without["W_K"]


def test_learned_keys_belong_to_an_attention_by_name():
    with pytest.raises(ConfigurationError, match="learned_keys is 0: pass a whole number"):
        cost("multi-head", learned_keys=0)
    with pytest.raises(ConfigurationError, match="learned_keys are sizes of single-head"):
        cost("gpt-3", learned_keys=4)


def test_numbers_grow_with_their_lengths_and_batches():
    base = cost("vaswani-base", queries=10, keys=20)
    double = cost("vaswani-base", queries=20, keys=40)
    assert double["scores"].multiply_adds == 4 * base["scores"].multiply_adds
    assert double["feed-forward"].multiply_adds == 2 * base["feed-forward"].multiply_adds
    batch = cost("vaswani-base", queries=10, keys=20, batch=3, number_bytes=2)
    assert batch.parameters == base.parameters
    assert batch.multiply_adds == 3 * base.multiply_adds
    assert [2 * size for size in batch.memory[1:]] == [3 * size for size in base.memory[1:]]
    assert 2 * batch.memory.weights == base.memory.weights


def test_numbers_of_any_size_are_exact():
    longest = 10**12
    costs = cost("gpt-3", queries=longest, batch=longest)
    assert costs["scores"].multiply_adds == 96 * 12_288 * longest**3
    assert costs.memory.scores == 4 * 96 * 96 * longest**3
    assert costs.uncounted == ("vectors of positions after 2,048: the model has not learned them",)
