"""Values of a watch: what each key moves and what each head adds, beside hooks on the modules."""

from __future__ import annotations

import pytest
import torch
from tests.watching.cases import CLOSE
from tests.watching.models import bert, gpt2, llama, transformers

import regard
from regard.watching import WatchError

transformers()
TOKENS = torch.tensor([[3, 5, 7, 3, 5, 7, 9], [1, 2, 3, 4, 1, 2, 3]])


class Encoder(torch.nn.Module):
    """A torch encoder or an attention of ours, after an embedding."""

    def __init__(self, layer, **options):
        super().__init__()
        torch.manual_seed(1)
        self.embedding, self.layer = torch.nn.Embedding(20, 24), layer
        self.options = options

    def forward(self, tokens):
        return self.layer(self.embedding(tokens), **self.options)


def torch_encoder(fast=True):
    layer = torch.nn.TransformerEncoderLayer(24, 3, 32, batch_first=True)
    encoder = Encoder(torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)).eval()
    return encoder if fast else encoder.train()


def ours(**options):
    return Encoder(
        regard.MultiHeadAttention(24, 4, key_heads=2, bias=True, **options), mask="causal"
    )


def recorded(model, module, tokens=TOKENS):
    """What a module read and returned, by a plain hook."""
    calls = []
    with_input = module.register_forward_hook(
        lambda _, read, output: calls.append((read[0], output))
    )
    with torch.no_grad():
        model(tokens)
    with_input.remove()
    return calls[-1]


CASES = {
    "gpt2": (gpt2, "layer.1.self", lambda model: model.transformer.h[1].attn.c_proj),
    "llama": (llama, "layer.1.self", lambda model: model.model.layers[1].self_attn.o_proj),
    "bert": (bert, "encoder.1.self", lambda model: model.encoder.layer[1].attention.output.dense),
    "ours": (ours, "layer.self", lambda model: model.layer.output_projection),
}


@pytest.mark.parametrize("case", CASES)
def test_heads_and_keys_add_up_to_what_the_output_projection_returns(case):
    make, name, layer_of = CASES[case]
    model = make()
    layer = layer_of(model)
    states, output = recorded(model, layer)
    with torch.no_grad(), regard.watch(model, values=True) as attentions:
        model(TOKENS)
        readings = attentions.readings(name)
        assert readings.objection is None
        heads = readings.heads()
        torch.testing.assert_close(heads.transpose(1, 2).flatten(2), states, **CLOSE)
        outputs = readings.outputs()
        bias = 0 if getattr(layer, "bias", None) is None else layer.bias
        torch.testing.assert_close(outputs.sum(1) + bias, output, **CLOSE)
        by_key = readings.by_key(rows=[2, 5])
        torch.testing.assert_close(by_key.sum(-2), outputs[..., [2, 5], :], **CLOSE)
        moved = attentions.moved(name)
        torch.testing.assert_close(moved.weights(rows=[2, 5]), by_key.norm(dim=-1), **CLOSE)


def test_a_moved_look_answers_as_any_look_does():
    model = llama()
    with torch.no_grad(), regard.watch(model, values=True) as attentions:
        model(TOKENS)
    look, moved = attentions["layer.0.self"], attentions.moved("layer.0.self")
    numbers = moved.weights()
    torch.testing.assert_close(moved.received(), numbers.sum(-2), **CLOSE)
    torch.testing.assert_close(moved.map(1, 1)[..., 0, 0], numbers.mean((-2, -1)), **CLOSE)
    torch.testing.assert_close(moved.top(1)[0][..., 0], numbers.amax(-1), **CLOSE)
    assert torch.equal(moved.argmax(), numbers.argmax(-1))
    torch.testing.assert_close(moved[1, 2].weights(), numbers[1, 2], **CLOSE)
    shares = attentions.moved("layer.0.self", shares=True).weights()
    torch.testing.assert_close(shares, numbers / numbers.sum(-1, keepdim=True), **CLOSE)
    assert moved.shape == look.shape
    assert "norms of weight x value x output projection" in moved.caption.title
    (head, *_) = attentions.table(moved=True)
    assert head.sink == pytest.approx(float(shares[:, 0, :, 0].mean()), abs=1e-5)


def test_a_sink_with_a_value_of_zero_moves_nothing():
    model = gpt2()
    with torch.no_grad():
        model.transformer.h[0].attn.c_attn.weight[:, 48:] = 0.0
        model.transformer.h[0].attn.c_attn.bias[48:] = 0.0
        with regard.watch(model, values=True) as attentions:
            model(TOKENS)
        assert attentions.moved("layer.0.self").weights().abs().max() < 1e-6
        assert next(iter(attentions.table())).sink > 0.1


@pytest.mark.parametrize("fast", [True, False])
def test_torch_layers_have_readings_on_every_path(fast):
    model = torch_encoder(fast)
    for layer in model.layer.layers:  # dropout would change the numbers
        layer.dropout.p = layer.dropout1.p = layer.dropout2.p = layer.self_attn.dropout = 0.0
    with torch.no_grad(), regard.watch(model, values=True) as attentions:
        model(TOKENS)
    attention = model.layer.layers[0].self_attn
    x = model.embedding(TOKENS)
    expected, weights = attention(x, x, x, need_weights=True, average_attn_weights=False)
    name = next(iter(attentions))
    readings = attentions.readings(name)
    outputs = readings.outputs()
    torch.testing.assert_close(outputs.sum(1) + attention.out_proj.bias, expected, **CLOSE)
    value = torch.nn.functional.linear(
        x, attention.in_proj_weight[48:], attention.in_proj_bias[48:]
    )
    by_head = value.unflatten(-1, (3, 8)).transpose(1, 2)
    projected = by_head @ attention.out_proj.weight.mT.unflatten(0, (3, 8))
    norms = weights * projected.norm(dim=-1).unsqueeze(-2)
    torch.testing.assert_close(attentions.moved(name).weights(), norms, **CLOSE)


def test_appended_keys_of_torch_have_their_values():
    model = torch.nn.MultiheadAttention(
        8, 2, batch_first=True, add_bias_kv=True, add_zero_attn=True
    )
    x = torch.randn(2, 5, 8)
    with torch.no_grad(), regard.watch(model, values=True) as attentions:
        output, _ = model(x, x, x, need_weights=True)
    readings = attentions.readings("self")
    torch.testing.assert_close(readings.outputs().sum(1) + model.out_proj.bias, output, **CLOSE)


def test_generated_tokens_have_readings():
    model = llama()
    prompt = TOKENS[:1, :4]
    with torch.no_grad(), regard.watch(model, values=True) as attentions:
        tokens = model.generate(prompt, min_new_tokens=4, max_new_tokens=4, do_sample=False)
    layer = model.model.layers[1].self_attn.o_proj
    states, _ = recorded(model, layer, tokens[:, :-1])
    readings = attentions.readings("layer.1.self")
    assert readings.objection is None
    heads = readings.heads().transpose(1, 2).flatten(2)
    torch.testing.assert_close(heads, states[:, 4:], **CLOSE)


def test_chosen_heads_and_rows_have_the_readings_of_those():
    model = llama()
    with torch.no_grad(), regard.watch(model, values=True) as attentions:
        model(TOKENS)
    with (
        torch.no_grad(),
        regard.watch(model, values=True, heads=[3, 0], rows=slice(1, 4)) as selected,
    ):
        model(TOKENS)
    all_readings, selected_readings = (
        each.readings("layer.1.self") for each in (attentions, selected)
    )
    assert selected_readings.objection is None
    torch.testing.assert_close(
        selected_readings.outputs(), all_readings.outputs()[:, [3, 0], 1:4], **CLOSE
    )


def test_an_unknown_output_projection_is_said_and_norms_are_of_values():
    class Gated(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.out = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

        def forward(self, x):
            heads = self.query(x).unflatten(-1, (2, 4)).transpose(1, 2)
            read = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
            return self.out(torch.sigmoid(read.transpose(1, 2).flatten(2)))

    model, x = Gated(), torch.randn(1, 5, 8)
    with torch.no_grad(), regard.watch(model, values=True) as attentions:
        model(x)
        values = model.query(x).unflatten(-1, (2, 4)).transpose(1, 2)
    readings = attentions.readings("self")
    assert "no linear layer reads" in readings.objection
    expected = attentions["self"].weights() * values.norm(dim=-1).unsqueeze(-2)
    torch.testing.assert_close(attentions.moved("self").weights(), expected, **CLOSE)
    assert "output projection" not in attentions.moved("self").caption.title
    with pytest.raises(WatchError, match="its output projection is unknown: no linear layer"):
        readings.outputs()


def test_without_values_none_are_kept_and_it_is_said():
    model = llama()
    with torch.no_grad(), regard.watch(model) as attentions:
        model(TOKENS)
    with torch.no_grad(), regard.watch(model, values=True) as with_values:
        model(TOKENS)
    with pytest.raises(WatchError, match="open the watch with values=True"):
        attentions.moved("layer.0.self")
    values = 2 * TOKENS.numel() * 2 * 8 * 4  # layers, tokens, key heads, width, bytes
    assert with_values.nbytes - attentions.nbytes == values
