"""Edited attention: the model reads with the edited weights, whatever function computes its attention."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import regard
from regard.watching.edits import Cell, Edit, Hard, Scale, Temperature

pytestmark = pytest.mark.usefixtures("one_interception")


class Plain(nn.Module):
    """Attention by one function, with or without grouped keys."""

    def __init__(self, attend) -> None:
        super().__init__()
        self.attend = attend

    def forward(self, query, key, value):
        return self.attend(query, key, value)


def fused(query, key, value):
    return F.scaled_dot_product_attention(query, key, value)


def attention_by_hand(query, key, value):
    return regard.attend(query, key, value)


def tensors(heads=4, queries=5, keys=7):
    generator = torch.Generator().manual_seed(0)
    shapes = (queries, keys, keys)
    return [torch.randn(2, heads, n, 8, generator=generator, dtype=torch.float64) for n in shapes]


@pytest.mark.parametrize("attend", [fused, attention_by_hand])
@pytest.mark.parametrize(
    "edit",
    [Scale(0.0), Scale(0.5, heads=[1, 3]), Temperature(0.5), Hard(heads=2),
     Cell(query=3, key=2, weight=0.7, heads=0), lambda weights: weights.flip(-1)],
    ids=["none", "half", "temperature", "hard", "cell", "function"],
)  # fmt: skip
def test_a_model_reads_with_the_edited_weights(attend, edit):
    query, key, value = tensors()
    weights = regard.look(query, key).weights()
    edited = edit(weights)
    assert not torch.equal(edited, weights)
    model = Plain(attend)
    model_before = model(query, key, value)
    with regard.change(model, {"self": edit}):
        output = model(query, key, value)
    torch.testing.assert_close(output, edited @ value)
    torch.testing.assert_close(model(query, key, value), model_before, rtol=0, atol=0)


def test_several_edits_apply_in_their_order():
    query, key, value = tensors()
    weights = regard.look(query, key).weights()
    model = Plain(fused)
    with regard.change(model, {"self": [Hard(), Scale(2.0)]}):
        output = model(query, key, value)
    torch.testing.assert_close(output, Scale(2.0)(Hard()(weights)) @ value)


def test_temperature_is_that_of_the_softmax():
    query, key, _ = tensors()
    flat = regard.look(query, key, normaliser=regard.normalisers.Softmax(temperature=3.0)).weights()
    edited = Temperature(3.0)(regard.look(query, key).weights())
    torch.testing.assert_close(edited, flat)


@given(
    st.lists(st.floats(0.0, 5.0), min_size=2, max_size=6),
    st.floats(0.0, 1.0),
    st.integers(0, 5),
)
def test_a_cell_is_set_and_its_row_keeps_its_sum(scores, weight, key):
    weights = torch.tensor([[scores]], dtype=torch.float64).softmax(-1)
    edited = Cell(query=0, key=key, weight=weight)(weights)
    if key >= len(scores):
        assert torch.equal(edited, weights)
        return
    assert float(edited[0, 0, key]) == pytest.approx(weight)
    assert float(edited.sum()) == pytest.approx(1.0)
    other_keys = [j for j in range(len(scores)) if j != key]
    ratio = edited[0, 0, other_keys] / weights[0, 0, other_keys]
    assert torch.allclose(ratio, ratio[:1].expand_as(ratio))


def test_a_cell_counts_the_queries_of_cached_steps():
    query, key, value = tensors(queries=3)
    weights = regard.look(query, key).weights()
    model = Plain(fused)
    with regard.change(model, {"self": Cell(query=1, key=4, weight=0.9)}) as edits:
        steps = [model(query[..., i : i + 1, :], key, value) for i in range(3)]
    expected = Cell(query=1, key=4, weight=0.9)(weights)
    torch.testing.assert_close(edits.weights("self"), expected)
    expected = expected @ value
    torch.testing.assert_close(torch.cat(steps, -2), expected)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_torch_layers(need_weights, training):
    torch.manual_seed(0)
    model = nn.MultiheadAttention(8, 2, batch_first=True).train(training)
    x = torch.randn(3, 5, 8)
    with torch.no_grad(), regard.change(model, {"self": Scale(0.0, heads=0)}):
        output, returned_weights = model(
            x, x, x, need_weights=need_weights, average_attn_weights=False
        )
    second_attention = nn.MultiheadAttention(8, 2, batch_first=True)
    second_attention.load_state_dict(model.state_dict())
    with torch.no_grad():
        second_attention.out_proj.weight[:, :4] = 0
        expected, weights = second_attention(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(output, expected)
    if need_weights:
        torch.testing.assert_close(returned_weights[:, 1], weights[:, 1])
        assert not returned_weights[:, 0].any()


def test_a_fast_path_is_changed_too_and_comes_back():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(1, 4, 8)
    with torch.no_grad():
        original_output = layer(x)
        with regard.change(layer, {"*self_attn*": Hard()}):
            assert not torch.allclose(layer(x), original_output)
        torch.testing.assert_close(layer(x), original_output, rtol=0, atol=0)
    assert torch.backends.mha.get_fastpath_enabled()


def test_changes_of_several_threads_shut_the_fast_paths_until_the_last_ends():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(1, 4, 8)
    entered, first_ended = Event(), Event()

    def second_thread():
        with torch.no_grad(), regard.change(layer, {"*": Scale(0.0)}):
            entered.set()
            first_ended.wait(60)
            return layer(x)

    with ThreadPoolExecutor(1) as pool:
        with torch.no_grad(), regard.change(layer, {"*": Scale(0.0)}):
            future = pool.submit(second_thread)
            entered.wait(60)
            expected = layer(x)
        first_ended.set()
        torch.testing.assert_close(future.result(60), expected)
    assert torch.backends.mha.get_fastpath_enabled()


def test_an_error_in_an_edit_restores_everything():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(1, 4, 8)
    attend = F.scaled_dot_product_attention
    with pytest.raises(ZeroDivisionError), regard.change(layer, {"*": lambda weights: 1 / 0}):
        layer(x)
    assert F.scaled_dot_product_attention is attend
    assert torch.backends.mha.get_fastpath_enabled()
    with torch.no_grad(), regard.watch(layer) as attentions:
        layer(x)
    assert len(attentions) == 1


@pytest.mark.parametrize("need_weights", [False, True])
def test_a_watch_sees_an_edited_attention_once_as_it_was(need_weights):
    model = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 5, 8)
    with regard.watch(model) as expected:
        model(x, x, x)
    with (
        regard.watch(model) as attentions,
        regard.change(model, {"self": Hard()}),
        regard.change(model, {"self": Scale(0.5)}) as second,
    ):
        model(x, x, x, need_weights=need_weights)
    assert list(attentions) == ["self"]
    assert len(attentions.steps("self")) == 1
    torch.testing.assert_close(attentions["self"].weights(), expected["self"].weights())
    expected_edited = Scale(0.5)(Hard()(expected["self"].weights()))
    torch.testing.assert_close(second.weights("self"), expected_edited)


def test_weights_of_a_cache_that_grows():
    model = Plain(fused)
    query, key, value = tensors(queries=1)
    with regard.change(model, {"self": Hard()}) as edits:
        for n in (3, 4, 7):
            model(query, key[..., :n, :], value[..., :n, :])
    weights = edits.weights("self")
    assert weights.shape == (2, 4, 3, 7)
    assert not weights[..., 0, 3:].any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 3, dtype=torch.float64))


def test_heads_of_an_iterator_are_edited_at_every_call():
    model = Plain(fused)
    query, key, value = tensors()
    with regard.change(model, {"self": Scale(0.0, heads=iter([0, 2]))}):
        outputs = [model(query, key, value) for _ in range(2)]
    assert not outputs[1][:, 0].any()
    assert torch.equal(*outputs)


@pytest.mark.parametrize("edit", [lambda weights: None, lambda weights: weights.mean(1)])
def test_an_edit_that_returns_no_weights_is_reported(edit):
    model = Plain(fused)
    with (
        pytest.raises(regard.WatchError, match=r"return weights of shape \[2, 4, 5, 7\]"),
        regard.change(model, {"self": edit}),
    ):
        model(*tensors())


def test_a_class_is_no_edit():
    with pytest.raises(TypeError, match=r"edit of 'self' is the class Hard: pass an .* Hard\(…\)"):
        regard.change(Plain(fused), {"self": Hard})
    with pytest.raises(TypeError, match="edit of 'self' is of type float: pass one of"):
        regard.change(Plain(fused), {"self": 0.5})
    with pytest.raises(TypeError, match="edits is of type Scale: pass a mapping of names"):
        regard.change(Plain(fused), Scale(0.0))
    assert all(issubclass(getattr(regard.edits, name), Edit) for name in regard.edits.__all__)
    with pytest.warns(DeprecationWarning, match="is a type and no edit"):
        assert regard.edits.Heads


def test_a_faulty_edit_is_named_as_a_watch_names_the_attention():
    model, (_, key, value) = Plain(fused), tensors()
    with regard.watch(model) as attentions:
        model(key, key, value)
    (name,) = attentions
    change = regard.change(model, {"*": lambda weights: weights[0]})
    with pytest.raises(regard.WatchError, match=f"an edit of {name} returned"), change:
        model(key, key, value)


def test_grouped_heads_of_regards_own_attention():
    torch.manual_seed(0)
    attention = regard.MultiHeadAttention(8, 4, key_heads=2)
    x = torch.randn(2, 6, 8)
    edit = Scale(0.0, heads=[1])
    with torch.no_grad(), regard.change(attention, {"self": edit}) as edits:
        output = attention(x)
    assert edits.weights("self").shape == (2, 4, 6, 6)
    assert not edits.weights("self")[:, 1].any()
    with torch.no_grad():
        attention.output_projection.weight[:, 2:4] = 0
        torch.testing.assert_close(output, attention(x))


@pytest.mark.parametrize("key_heads", [2, 1])
def test_groups_are_heads_where_a_watch_says_so(key_heads):
    torch.manual_seed(0)
    query, key = torch.randn(2, 2, 3, 5, 8), torch.randn(2, key_heads, 1, 7, 8)
    model = Plain(attention_by_hand)
    model_before = model(query, key, key)
    with (
        regard.watch(model) as attentions,
        regard.change(model, {"*": lambda weights: weights}) as edits,
    ):
        output = model(query, key, key)
    torch.testing.assert_close(output, model_before)
    (name,) = attentions
    torch.testing.assert_close(edits.weights(attentions.path(name)), attentions[name].weights())


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_compiled_parts_are_reported():
    torch._dynamo.reset()
    encoder_layers = [nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(2)]
    model = nn.Sequential(encoder_layers[0], torch.compile(encoder_layers[1], backend="aot_eager"))
    x = torch.randn(1, 4, 8)
    model(x)
    with pytest.warns(RuntimeWarning, match="not everything was changed; 1 is compiled"):  # noqa: SIM117
        with regard.change(model, {"*": Hard()}):
            model(x)
    with (
        pytest.raises(regard.WatchError, match=r"1.*compiled"),
        regard.change(model, {"1.*": Hard()}),
    ):
        model(x)


def test_names_that_match_nothing_are_reported():
    query, key, value = tensors()
    model = Plain(fused)
    with (
        pytest.raises(regard.WatchError, match=r"'decoder\.9\.cross'; attentions that ran: self"),
        regard.change(model, {"decoder.9.cross": Hard()}),
    ):
        model(query, key, value)


def test_heads_that_do_not_exist_are_reported():
    query, key, value = tensors()
    model = Plain(fused)
    with (
        pytest.raises(regard.WatchError, match="heads 0 to 3"),
        regard.change(model, {"self": Hard(heads=7)}),
    ):
        model(query, key, value)


def test_declared_attention_cannot_be_changed():
    class ByHand(nn.Module):
        def forward(self, x):
            regard.declare(x, x)
            return torch.softmax(x @ x.mT, -1) @ x

    with (
        pytest.raises(regard.WatchError, match="code of its own"),
        regard.change(model := ByHand(), {"self": Hard()}),
    ):
        model(torch.eye(3))


def test_other_attentions_are_left_alone():
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(2))
    )
    model.eval()
    x = torch.randn(1, 4, 8)
    with torch.no_grad():
        first_output = model[0](x)
        with regard.change(model, {"1.*": Hard()}), regard.watch(model) as attentions:
            output = model(x)
        assert len(attentions) == 2
        with regard.change(model[1], {"*": Hard()}):
            torch.testing.assert_close(output, model[1](first_output))


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_hugging_face_models(implementation):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, attn_implementation=implementation,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.arange(6)[None]
    with torch.no_grad(), regard.change(model, {"layer.1.self": Scale(0.0, heads=[2])}):
        output = model(ids).logits
    with torch.no_grad():
        model.model.layers[1].self_attn.o_proj.weight[:, 16:24] = 0
        torch.testing.assert_close(output, model(ids).logits)


def test_a_translation_with_a_head_switched_off():
    from regard.translation.translator import Translator

    translator = Translator.open("es-en")
    text = "El gato negro duerme en la silla."
    translation_before = translator.translate([text])[0]
    edits = {f"decoder.{i}.cross": Scale(0.0) for i in range(3)}
    with regard.change(translator.model, edits):
        blind = translator.translate([text])[0]
    assert blind.text != translation_before.text
    assert translator.translate([text])[0].text == translation_before.text
