"""Named axes give the numbers of the plain library, whatever the order of the axes; errors speak of names."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import regard
from regard.attention.shapes import ShapeError
from regard.named import Named, along, apply, attend, dot, weights

SIZES = {
    "batch": 2, "heads": 3, "queries": 4, "keys": 5, "d_key": 6, "d_value": 7, "d_query": 8, "d_model": 12,
}  # fmt: skip


def drawn(axes: str, seed: int = 0) -> Named:
    generator = torch.Generator().manual_seed(seed)
    sizes = [SIZES[axis] for axis in axes.split()]
    return Named(torch.randn(sizes, dtype=torch.float64, generator=generator), axes)


QUERY, KEY, VALUE = (
    drawn("batch heads queries d_key", 1),
    drawn("batch heads keys d_key", 2),
    drawn("batch heads keys d_value", 3),
)
PAST = Named(torch.arange(4), "queries") >= Named(torch.arange(5), "keys")
BIAS = drawn("heads keys", 4)


def close(left: Named, right: Named) -> None:
    torch.testing.assert_close(left.order(right.axes).tensor, right.tensor)


def equation(query: Named, key: Named, value: Named) -> Named:
    scores = dot(query, key, "d_key") / SIZES["d_key"] ** 0.5 + BIAS
    readable = apply(torch.where, PAST, scores, -torch.inf)
    return dot(along(torch.softmax, readable, "keys"), value, "keys")


@given(
    st.permutations(QUERY.axes),
    st.permutations(KEY.axes),
    st.permutations(VALUE.axes),
    st.booleans(),
)
def test_equation_and_attend_are_the_plain_library_in_any_order_of_axes(q, k, v, of_batch):
    expected = regard.attend(
        QUERY.tensor, KEY.tensor, VALUE.tensor, mask=PAST.tensor, bias=BIAS.tensor.unsqueeze(-2)
    )
    query, key, value = QUERY.order(q), KEY.order(k), VALUE.order(v)
    axes = "batch heads queries d_value"
    if not of_batch:
        expected, axes = expected[0], "heads queries d_value"
        query, key, value = (x.at(batch=0) for x in (query, key, value))
    for reading in (equation(query, key, value), attend(query, key, value, mask=PAST, bias=BIAS)):
        torch.testing.assert_close(reading.order(axes).tensor, expected)


def test_weights_are_those_of_the_look():
    shown_weights = weights(QUERY, KEY, mask=PAST, normaliser="sparsemax")
    plain = regard.look(QUERY.tensor, KEY.tensor, mask=PAST.tensor, normaliser="sparsemax")
    assert shown_weights.axes == ("batch", "heads", "queries", "keys")
    torch.testing.assert_close(shown_weights.tensor, plain.weights())


def test_an_additive_score_takes_two_widths():
    score = regard.scores.Additive(8, 6, 9).double()
    q, k, v = drawn("queries d_query"), drawn("keys d_key"), drawn("keys d_value")
    W_q = Named(score.query_weight, "d_hidden d_query")
    W_k = Named(score.key_weight, "d_hidden d_key")
    hidden = apply(torch.tanh, dot(q, W_q, "d_query") + dot(k, W_k, "d_key"))
    scores = dot(hidden, Named(score.weight, "d_hidden"), "d_hidden")
    close(dot(along(torch.softmax, scores, "keys"), v, "keys"), attend(q, k, v, score=score))


def test_a_block_by_name_is_the_block_with_its_gradients():
    torch.manual_seed(0)
    block = regard.TransformerBlock(12, heads=3, feed_forward=10).double()
    attention, feed = block.self_attention, block.feed_forward

    def heads(name: str, inner: str) -> Named:
        rows = Named(getattr(attention, f"{name}_projection").weight, "rows d_model")
        return rows.split("rows", **{"heads": 3, inner: 4})

    def norm(x: Named, layer: nn.LayerNorm) -> Named:
        centred = x - along(torch.mean, x, "d_model")
        scale = (along(torch.mean, centred**2, "d_model") + layer.eps) ** 0.5
        return centred / scale * Named(layer.weight, "d_model") + Named(layer.bias, "d_model")

    def linear(x: Named, layer: nn.Linear, after: str, before: str) -> Named:
        return dot(x, Named(layer.weight, [after, before]), before) + Named(layer.bias, after)

    x = drawn("batch queries d_model")
    y = norm(x, block.self_residual.norm)
    q = dot(y, heads("query", "d_key"), "d_model")
    k = dot(y, heads("key", "d_key"), "d_model").rename(queries="keys")
    v = dot(y, heads("value", "d_value"), "d_model").rename(queries="keys")
    joined_text = attend(q, k, v, mask="causal").join("heads d_value", "joined")
    z = x + dot(joined_text, Named(attention.output_projection.weight, "d_model joined"), "joined")
    inner = linear(norm(z, block.feed_forward_residual.norm), feed.inner, "d_inner", "d_model")
    output = z + linear(apply(torch.relu, inner), feed.outer, "d_model", "d_inner")

    expected = block(x.tensor, mask="causal")
    torch.testing.assert_close(output.order(x.axes).tensor, expected)
    found, wanted = (
        torch.autograd.grad(y.square().sum(), list(block.parameters()))
        for y in (output.tensor, expected)
    )
    torch.testing.assert_close(found, wanted)


@given(st.floats(0.5, 2))
def test_operators_take_numbers_on_both_sides(number):
    x = Named(torch.tensor([1.0, 2.0, 3.0]), "keys")
    t = x.tensor
    pairs = [
        (x + number, t + number), (number + x, number + t), (x - number, t - number),
        (number - x, number - t), (x * number, t * number), (number * x, number * t),
        (x / number, t / number), (number / x, number / t), (x**number, t**number),
        (number**x, number**t), (x < number, t < number), (x <= number, t <= number),
        (x > number, t > number), (x >= number, t >= number), (number < x, number < t),
        ((x < 2) & (x < number), (t < 2) & (t < number)),
        ((x < 2) | (x < number), (t < 2) | (t < number)),
    ]  # fmt: skip
    for named, plain in pairs:
        torch.testing.assert_close(named.tensor, plain, rtol=0, atol=0)


def test_split_and_join_undo_each_other_and_at_takes_entries():
    x = drawn("batch d_model")
    split = x.split("d_model", heads=3, d_key=4)
    assert split.sizes == {"batch": 2, "heads": 3, "d_key": 4}
    close(split.join("heads d_key", "d_model"), x)
    assert torch.equal(split.at(d_key=-1, heads=1).tensor, x.tensor[:, 7])
    assert torch.equal(split.join("d_key heads", "d").tensor, split.tensor.mT.flatten(1))


MISTAKES = {
    "1 names, 'keys', for a tensor of shape [2, 3]: pass 2": lambda: Named(torch.ones(2, 3), "keys"),
    "axis 'keys' occurs twice in 'keys keys'": lambda: Named(torch.ones(2, 2), "keys keys"),
    "axis 'd-key' is no identifier": lambda: Named(torch.ones(2), "d-key"),
    "no axis 'key' in (keys 5, d_value 7)": lambda: along(torch.mean, drawn("keys d_value"), "key"),
    "no axis 'd_key' in (keys 5, d_value 7)": lambda: dot(
        drawn("queries d_key"), drawn("keys d_value"), "d_key"
    ),
    "axis 'keys' has two lengths in (keys 5, d_key 6) and (keys 2)": lambda: (
        drawn("keys d_key") + Named(torch.ones(2), "keys")
    ),
    "a tensor without names": lambda: drawn("keys") * torch.ones(5),
    "axis 'keys' of (queries 4, keys 5) is none of queries": lambda: drawn("queries keys").order("queries"),
    "axis 'd_model' of (d_model 12) is not 15 long": lambda: drawn("d_model").split(
        "d_model", heads=3, d_key=5
    ),
    "heads=3 is out of range in (heads 3)": lambda: drawn("heads").at(heads=3),
    "no axis 'queries' in (keys 5, d_key 6)": lambda: attend(KEY.at(batch=0, heads=0), KEY, VALUE),
    "no axis 'd_value' in (batch 2, heads 3, keys 5, d_key 6)": lambda: attend(QUERY, KEY, KEY),
    "axis 'd_model' of (keys 5, d_model 12) is none of batch, heads, queries, keys": lambda: attend(
        QUERY, KEY, VALUE, bias=drawn("keys d_model")
    ),
    "axis 'keys' has two lengths": lambda: attend(
        QUERY, KEY, VALUE, mask=Named(torch.ones(6) > 0, "keys")
    ),
    "the function made shape [] of": lambda: apply(torch.sum, drawn("keys")),
    "the function returned several tensors": lambda: along(torch.max, drawn("keys"), "keys"),
}  # fmt: skip


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_is_reported_by_name(message):
    with pytest.raises((ShapeError, IndexError, TypeError)) as found:
        MISTAKES[message]()
    assert message in str(found.value)


def test_the_comparing_function_finds_a_difference():
    with pytest.raises(AssertionError):
        close(QUERY, QUERY + 1)


def test_a_comparison_is_element_by_element_and_no_truth_by_itself():
    x = Named(torch.tensor([[1, 2], [3, 2]]), "a b")
    assert (x == 2).tensor.tolist() == [[False, True], [False, True]]
    assert (x != 2).tensor.tolist() == (~(x == 2)).tensor.tolist() == [[True, False], [True, False]]
    assert (-x).tensor.tolist() == [[-1, -2], [-3, -2]]
    assert len({x, x}) == 1
    with pytest.raises(RuntimeError, match="ambiguous"):
        assert x == 2


def test_an_array_of_numpy_must_be_named():
    x = Named(torch.ones(2), "a")
    for operation in (lambda: np.ones(2) * x, lambda: x + np.ones(2)):
        with pytest.raises(ShapeError, match="without names"):
            operation()
