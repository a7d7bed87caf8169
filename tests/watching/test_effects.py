"""Effects of heads, layers and keys, beside a loop of plain hooks on the modules."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tests.watching.cases import CLOSE
from tests.watching.models import gpt2, llama
from tests.watching.test_patching import CLEAN, CORRUPTED, patched, states_of, with_states
from tests.watching.test_values import TOKENS, ours, torch_encoder
from torch.utils._python_dispatch import TorchDispatchMode

import regard
from regard import metrics
from regard.edits import From, Mean, Scale
from regard.watching import WatchError

pytestmark = pytest.mark.usefixtures("one_interception")


def gpt2_layers(model):
    return [block.attn.c_proj for block in model.transformer.h]


def llama_layers(model):
    return [block.self_attn.o_proj for block in model.model.layers]


def ours_layers(model):
    return [model.layer.output_projection]


def mean(output):
    """Any function of an output: its last row, weighed."""
    output = output if isinstance(output, torch.Tensor) else output[0]
    return (output[:, -1] * torch.linspace(-1, 1, output.shape[-1])).sum(-1)


CASES = {
    "gpt2": (gpt2, gpt2_layers, 3, metrics.LogProbability(4)),
    "llama": (llama, llama_layers, 4, metrics.Difference(4, [1, 2])),
    "ours": (ours, ours_layers, 4, mean),
}


def by_hooks(model, layers, heads, metric, change):
    """The effect of each head by one pass each."""
    base = with_states(model, layers[0], TOKENS, lambda states: states)
    effects = [
        [
            (
                metric(with_states(model, layer, TOKENS, partial(change, head=head, heads=heads)))
                - metric(base)
            ).mean()
            for head in range(heads)
        ]
        for layer in layers
    ]
    return torch.tensor(effects, dtype=torch.float64)


def without(states, head, heads):
    states = states.unflatten(-1, (heads, -1)).clone()
    states[..., head, :] = 0
    return states.flatten(-2)


@pytest.mark.parametrize("case", CASES)
def test_heads_switched_off_have_the_effect_that_hooks_find(case):
    make, layers_of, heads, metric = CASES[case]
    model = make()
    expected = by_hooks(model, layers_of(model), heads, metric, without)
    table = regard.effects(model, TOKENS, metric)
    torch.testing.assert_close(table.array(), expected, **CLOSE)
    assert table.reused == (case != "ours")
    single = regard.effects(model, lambda model: model(TOKENS), metric, batch=1)
    torch.testing.assert_close(single.array(), expected, **CLOSE)
    assert [row.label for row in table][:2] == ["0.0", "0.1"]


def test_torch_encoders_have_the_same_effects_on_every_path():
    model = torch_encoder()
    table = regard.effects(model, TOKENS, mean)
    with torch.no_grad():
        base = mean(model(TOKENS)).mean()
        for row in table:
            weight = model.layer.layers[row.layer].self_attn.out_proj.weight
            kept_copy = weight.clone()
            weight[:, 8 * row.head : 8 * row.head + 8] = 0
            expected = float(mean(model(TOKENS)).mean() - base)
            weight.copy_(kept_copy)
            assert row.effect == pytest.approx(expected, abs=1e-5)
    assert len(table) == 6


def test_a_mapping_of_arguments_runs_as_the_model_takes_it():
    model = llama()
    inputs = {"input_ids": TOKENS, "attention_mask": torch.ones_like(TOKENS), "use_cache": False}
    table = regard.effects(model, inputs, metrics.LogProbability(4))
    expected = regard.effects(model, TOKENS, metrics.LogProbability(4), batch=1)
    torch.testing.assert_close(table.array(), expected.array(), **CLOSE)


def test_a_layer_is_all_of_its_heads():
    model = llama()
    metric = metrics.LogProbability(4)
    table = regard.effects(model, TOKENS, metric, of="layers")
    base = metric(with_states(model, llama_layers(model)[0], TOKENS, lambda states: states))
    for row, layer in zip(table, llama_layers(model), strict=True):
        edited = metric(with_states(model, layer, TOKENS, torch.zeros_like))
        assert row.effect == pytest.approx(float((edited - base).mean()), abs=1e-5)
    assert table.array().shape == (2,)


def test_a_key_is_what_all_heads_read_there():
    model = llama()
    metric = metrics.LogProbability(4)
    table = regard.effects(model, TOKENS, metric, of="keys")
    with torch.no_grad():
        base = metric(model(TOKENS))
    for row in table:

        def forget(_, __, values, key=row.key):
            return values.index_fill(1, torch.tensor([key]), 0.0)

        handles = [
            block.self_attn.v_proj.register_forward_hook(forget) for block in model.model.layers
        ]
        with torch.no_grad():
            edited = metric(model(TOKENS))
        for handle in handles:
            handle.remove()
        assert row.effect == pytest.approx(float((edited - base).mean()), abs=1e-5)
    assert len(table) == TOKENS.shape[1]


def test_patches_and_means_of_heads_have_the_effect_that_hooks_find():
    model = gpt2()
    layers = gpt2_layers(model)
    metric = metrics.Difference(4, 5)
    with torch.no_grad(), regard.watch(model, values=True) as corrupted_run:
        model(CORRUPTED)
    base = metric(with_states(model, layers[0], CLEAN, lambda states: states))
    for edit, source in (
        (From(corrupted_run), lambda states: states),
        (Mean(corrupted_run), lambda states: states.mean((0, 1), keepdim=True)),
    ):
        table = regard.effects(model, CLEAN, metric, edit=edit)
        for row in table:
            layer = layers[row.layer]
            state = source(states_of(model, layer, CORRUPTED))
            change = partial(patched, second=state, head=row.head, heads=3)
            expected = metric(with_states(model, layer, CLEAN, change)) - base
            assert row.effect == pytest.approx(float(expected.mean()), abs=1e-5)


@pytest.mark.parametrize(
    ("make", "layers_of", "heads"), [(gpt2, gpt2_layers, 3), (llama, llama_layers, 4)]
)
def test_the_gradient_is_the_gradient_at_the_output_of_the_heads(make, layers_of, heads):
    model = make()
    metric = metrics.LogProbability(4)
    states = {}

    def keep(layer, read):
        states[layer] = read[0].requires_grad_()
        states[layer].retain_grad()

    handles = [layer.register_forward_pre_hook(keep) for layer in layers_of(model)]
    metric(model(TOKENS)).mean().backward()
    for handle in handles:
        handle.remove()
    products = torch.stack(
        [-states[each].grad * states[each] for each in layers_of(model)]
    ).detach()
    expected = products.unflatten(-1, (heads, -1)).sum((1, 2, 4)).double()
    table = regard.effects(model, TOKENS, metric, method="gradient")
    torch.testing.assert_close(table.array(), expected, **CLOSE)
    by_output = regard.effects(
        model, TOKENS, metric, method="gradient", edit=regard.edits.Scale(0.0)
    )
    torch.testing.assert_close(by_output.array(), expected, **CLOSE)
    layers = regard.effects(model, TOKENS, metric, "layers", method="gradient")
    torch.testing.assert_close(layers.array(), expected.sum(1), **CLOSE)
    keys = regard.effects(model, TOKENS, metric, "keys", method="gradient")
    torch.testing.assert_close(keys.array().sum(), expected.sum(), **CLOSE)


def test_a_small_edit_has_the_effect_that_the_gradient_estimates():
    model = llama()
    table = regard.effects(
        model, TOKENS, metrics.LogProbability(4), edit=Scale(0.999), agreement=True, progress=False
    )
    assert table.agreement > 0.95
    assert "rank correlation" in str(table)
    assert all(row.run == pytest.approx(row.effect, abs=2e-5) for row in table)
    with torch.no_grad(), regard.watch(model, values=True) as edited_run:
        model(TOKENS)
    unchanged = regard.effects(
        model, TOKENS, metrics.LogProbability(4), edit=From(edited_run), method="gradient"
    )
    assert unchanged.array().abs().max() < 1e-6


def test_an_interrupted_scan_returns_what_it_has(capsys):
    calls = []

    def metric(output):
        calls.append(1)
        if len(calls) > 6:
            raise KeyboardInterrupt
        return output.logits[:, -1, 4]

    table = regard.effects(gpt2(), TOKENS, metric, batch=1)
    assert 0 < len(table) < table.total == 6
    assert f"{len(table)} of 6" in str(table)
    assert "are done" in capsys.readouterr().err


def test_the_table_sorts_and_shows_itself(tmp_path):
    table = regard.effects(gpt2(), TOKENS, metrics.Loss(TOKENS), progress=False)
    effects = [abs(row.effect) for row in table.sorted()]
    assert effects == sorted(effects, reverse=True)
    assert len(table.sorted(2)) == 2
    assert "<table>" in table._repr_html_()
    assert str(table).splitlines()[1].split() == ["name", "head", "effect"]
    pytest.importorskip("matplotlib")
    table.plot().savefig(tmp_path / "effects.png")


def test_progress_is_a_function_of_what_is_done():
    messages = []
    regard.effects(
        gpt2(), TOKENS, mean, progress=lambda finished, total: messages.append((finished, total))
    )
    assert messages[-1] == (6, 6)


def test_metrics_are_those_of_their_definitions():
    logits = torch.randn(2, 5, 11)
    log = logits.log_softmax(-1)
    assert torch.equal(metrics.LogProbability([3, 4], 2)(logits), log[[0, 1], 2, [3, 4]])
    assert torch.equal(metrics.Difference(3, 4)(logits), logits[:, -1, 3] - logits[:, -1, 4])
    tokens = torch.randint(11, (2, 5))
    expected = -torch.stack(
        [log[:, at - 1].gather(1, tokens[:, [at]])[:, 0] for at in (2, 3, 4)]
    ).mean(0)
    torch.testing.assert_close(metrics.Loss(tokens, slice(2, None))(logits), expected)
    second_tensor = torch.randn(2, 5, 11)
    divergence = metrics.Divergence(None).beside(logits)(second_tensor)
    expected = torch.nn.functional.kl_div(
        second_tensor.log_softmax(-1), log, log_target=True, reduction="none"
    )
    torch.testing.assert_close(divergence, expected.sum(-1).mean(-1))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"metric": lambda output: output.logits},
            WatchError,
            "the metric returned a tensor of shape",
        ),
        (
            {"metric": lambda output: "a"},
            WatchError,
            "the metric returned a str: return one number",
        ),
        ({"metric": metrics.LogProbability(20)}, WatchError, "tokens 0 to 19"),
        ({"metric": metrics.LogProbability(1, 7)}, WatchError, "positions 0 to 6"),
        ({"metric": metrics.Divergence(7)}, WatchError, "positions 0 to 6"),
        ({"metric": 3}, TypeError, "metric"),
        ({"edit": Scale(0.0, heads=5)}, WatchError, "this attention has heads 0 to 2"),
        ({"edit": Scale}, TypeError, "edit"),
        ({"of": "neurons"}, ValueError, 'pass "heads", "layers" or "keys"'),
        ({"method": "magic"}, ValueError, 'pass "run" or "gradient"'),
        ({"of": "keys", "edit": Mean()}, ValueError, "have no keys"),
        ({"layers": "decoder.*"}, WatchError, "attentions that do not match"),
        (
            {"method": "gradient", "metric": lambda output: 1.0},
            WatchError,
            "the metric has no gradient",
        ),
        ({"method": "gradient", "metric": metrics.Divergence()}, WatchError, "gradient of 0"),
    ],
)
@pytest.mark.filterwarnings("ignore:the watch has seen no attention")
def test_bad_input_is_refused_in_a_sentence(options, error, message):
    arguments = {"metric": mean, **options}
    with pytest.raises(error, match=message):
        regard.effects(gpt2(), TOKENS, **arguments)


def test_a_model_in_training_mode_warns():
    with pytest.warns(RuntimeWarning, match=r"call model\.eval\(\)"):
        regard.effects(gpt2().train(), TOKENS, mean)


def test_copies_that_are_not_batch_entries_of_the_attention_run_alone():
    # The batch has as many entries as positions, and positions come first.
    module, x = torch.nn.MultiheadAttention(8, 2).eval(), torch.randn(4, 4, 8)
    tables = [
        regard.effects(module, (x, x, x), lambda output: output[0][:, 0].norm(), batch=batch)
        for batch in (None, 1)
    ]
    torch.testing.assert_close(tables[0].array(), tables[1].array(), **CLOSE)


class Uncopied(tuple):
    """A tuple that cannot be made again from its members."""

    def __new__(cls, state, name):
        return super().__new__(cls, (state, name))


class Layer(torch.nn.Module):
    def __init__(self, copied):
        super().__init__()
        self.attention, self.copied = torch.nn.MultiheadAttention(8, 2, batch_first=True), copied

    def forward(self, states):
        x = states if isinstance(states, torch.Tensor) else states[0]
        y = x + self.attention(x, x, x)[0]
        return y if self.copied else Uncopied(y, "state")


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(map(Layer, (True, False, True)))

    def forward(self, states):
        for layer in self.layers:
            states = layer(states)
        return states


def test_layers_whose_outputs_cannot_be_copied_run_again():
    model, x = Layers().eval(), torch.randn(2, 5, 8)
    table = regard.effects(model, (x,), mean)
    plain = [
        regard.effects(model, lambda model: model(x), mean, layers=row.name, edit=Scale(0.0))[
            row.head
        ]
        for row in table
    ]
    assert not any("forward" in vars(layer) for layer in model.layers)
    for row, alone in zip(table, plain, strict=True):
        assert abs(row.effect - alone.effect) < 1e-5 < abs(row.effect)


def test_the_loss_of_a_padded_text_is_that_of_its_tokens():
    torch.manual_seed(0)
    logits, tokens = torch.randn(2, 6, 20), torch.randint(20, (2, 6))
    padded = tokens.clone()
    padded[1, 4:] = -100
    losses = metrics.Loss(padded)(logits)
    torch.testing.assert_close(losses[0], metrics.Loss(tokens)(logits)[0])
    torch.testing.assert_close(losses[1], metrics.Loss(tokens[:, :4])(logits[:, :4])[1])


class Normed(torch.nn.Module):
    """An attention whose output is divided by the norm of the whole batch."""

    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        y = self.attention(x, x, x, need_weights=False)[0]
        return y / y.norm()


def test_small_metrics_are_compared_by_the_outputs_of_the_passes():
    torch.manual_seed(0)
    model, x = Normed().eval(), torch.randn(1, 5, 8)
    for size in (1.0, 1e-5):
        tables = [
            regard.effects(model, x, lambda output: size * output[..., 0].sum(), batch=batch)  # noqa: B023
            for batch in (None, 1)
        ]
        torch.testing.assert_close(tables[0].array(), tables[1].array(), rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("method", ["run", "gradient"])
def test_effects_are_the_same_in_inference_mode(method):
    model = gpt2()
    expected = regard.effects(model, TOKENS, metrics.LogProbability(1), method=method)
    with torch.inference_mode():
        tokens, token = TOKENS.clone(), torch.tensor([1, 1])
        table = regard.effects(model, tokens, metrics.LogProbability(token), method=method)
    torch.testing.assert_close(table.array(), expected.array(), **CLOSE)
    with torch.inference_mode():
        made = gpt2()
        with pytest.raises(WatchError, match=r"made under torch\.inference_mode"):
            regard.effects(made, tokens, mean, method="gradient")


@pytest.mark.parametrize("method", ["run", "gradient"])
@pytest.mark.filterwarnings("ignore:the watch has seen no attention")
def test_a_model_without_attention_is_refused_with_the_reason(method):
    class ByHand(torch.nn.Module):
        def forward(self, x):
            return torch.softmax(x @ x.mT, -1) @ x

    for model, reason in ((ByHand(), "regard.declare"), (torch.nn.Linear(8, 8), "no attention")):
        with pytest.raises(WatchError, match=f"has seen no attention.*{reason}"):
            regard.effects(model, torch.randn(1, 5, 8), mean, method=method)


def test_a_metric_of_the_last_token_needs_the_logits_of_that_token_alone():
    model, shapes = llama(), []
    expected = regard.effects(model, lambda model: model(TOKENS), metrics.Difference(4, [1, 2]))
    model.lm_head.register_forward_hook(lambda _, __, logits: shapes.append(logits.shape[1]))
    table = regard.effects(model, TOKENS, metrics.Difference(4, [1, 2]))
    assert set(shapes) == {1}
    torch.testing.assert_close(table.array(), expected.array(), **CLOSE)
    inputs = {"input_ids": TOKENS, "logits_to_keep": 2}
    regard.effects(model, inputs, metrics.LogProbability(4))
    regard.effects(model, TOKENS, metrics.LogProbability(4, position=2))
    assert set(shapes) == {1, 2, TOKENS.shape[1]}


def test_layers_below_a_single_one_are_computed_once():
    model, calls = llama(num_hidden_layers=3), []
    model.model.layers[0].mlp.register_forward_hook(lambda *_: calls.append(0))
    table = regard.effects(model, TOKENS, metrics.Difference(4, 1), layers=[1], batch=1)
    assert table.reused
    assert len(calls) == 2  # the pass that is watched, and the pass that is kept
    every = regard.effects(model, TOKENS, metrics.Difference(4, 1))
    torch.testing.assert_close(table.array()[0], every.array()[1], **CLOSE)


class LargestTensor(TorchDispatchMode):
    """The largest number of entries of a tensor that is computed."""

    entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.entries = max(self.entries, result.numel())
        return result


@pytest.mark.parametrize("edit", [Scale(0.0), Mean()])
def test_heads_are_switched_off_without_a_matrix_of_weights(edit):
    length, heads = 300, 4
    tokens = torch.randint(10, (1, length))
    with LargestTensor() as largest:
        regard.effects(llama(), tokens, metrics.Difference(4, 1), edit=edit)
    assert largest.entries < heads * length**2
