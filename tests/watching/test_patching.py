"""Edits of the outputs of heads, of chosen queries and keys, and from other runs, beside plain hooks."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tests.watching.cases import CLOSE
from tests.watching.models import bert, gpt2, llama
from tests.watching.test_values import TOKENS, ours

import regard
from regard.edits import From, Mean, Scale
from regard.watching import WatchError

pytestmark = pytest.mark.usefixtures("one_interception")

CLEAN, CORRUPTED = TOKENS[:1], torch.tensor([[3, 5, 8, 3, 5, 8, 9]])
CASES = {
    "gpt2": (gpt2, lambda model: model.transformer.h[1].attn.c_proj, 3),
    "llama": (llama, lambda model: model.model.layers[1].self_attn.o_proj, 4),
    "bert": (bert, lambda model: model.encoder.layer[1].attention.output.dense, 4),
    "ours": (ours, lambda model: model.layer.output_projection, 4),
}


def first_tensor(output):
    return output if isinstance(output, torch.Tensor) else output[0]


@torch.no_grad()
def with_states(model, layer, tokens, change):
    """The output of a model whose output projection reads changed states, by a plain hook."""
    handle = layer.register_forward_pre_hook(lambda _, read: (change(read[0]),))
    output = first_tensor(model(tokens))
    handle.remove()
    return output


@torch.no_grad()
def states_of(model, layer, tokens):
    items = []
    with_states(model, layer, tokens, lambda states: items.append(states) or states)
    return items[-1]


def patched(states, second, head, heads, rows=slice(None)):
    states, second = (each.unflatten(-1, (heads, -1)).clone() for each in (states, second))
    states[:, rows, head] = second.expand_as(states)[:, rows, head]
    return states.flatten(-2)


def name_of(attentions):
    return list(attentions)[-1]


@pytest.mark.parametrize("case", CASES)
def test_outputs_of_a_head_come_from_another_run(case):
    make, layer_of, heads = CASES[case]
    model = make()
    layer = layer_of(model)
    corrupted_states = states_of(model, layer, CORRUPTED)
    with torch.no_grad(), regard.watch(model, values=True) as attentions:
        model(CORRUPTED)
    name = name_of(attentions)
    for head, rows in ((1, None), (2, (3, -1))):
        row_numbers = slice(None) if rows is None else list(rows)
        expected = with_states(
            model,
            layer,
            CLEAN,
            partial(patched, second=corrupted_states, head=head, heads=heads, rows=row_numbers),
        )
        with (
            torch.no_grad(),
            regard.change(model, {name: From(attentions, heads=head, queries=rows)}),
        ):
            output = first_tensor(model(CLEAN))
        torch.testing.assert_close(output, expected, **CLOSE)


def test_a_mean_is_of_this_run_or_of_another_over_all_or_over_the_batch():
    model = llama()
    layer = model.model.layers[1].self_attn.o_proj
    states = states_of(model, layer, TOKENS)
    with torch.no_grad(), regard.watch(model, values=True) as attentions:
        model(TOKENS)
    for edit, mean in (
        (Mean(heads=0), states.mean((0, 1), keepdim=True)),
        (Mean(over="batch", heads=0), states.mean(0, keepdim=True)),
        (Mean(attentions, heads=0), states.mean((0, 1), keepdim=True)),
        (Mean(attentions, over="batch", heads=0), states.mean(0, keepdim=True)),
    ):
        tokens = TOKENS if edit.seen is None else CLEAN
        change = partial(patched, second=mean, head=0, heads=4)
        expected = with_states(model, layer, tokens, change)
        with torch.no_grad(), regard.change(model, {"layer.1.self": edit}):
            output = first_tensor(model(tokens))
        torch.testing.assert_close(output, expected, **CLOSE)


def test_weights_come_from_another_run_and_values_stay():
    model = llama()
    with torch.no_grad(), regard.watch(model, values=True) as corrupted_run:
        model(CORRUPTED)
    edit = From(corrupted_run, replaces="weights", heads=[1])
    with (
        torch.no_grad(),
        regard.watch(model, values=True) as attentions,
        regard.change(model, {"layer.0.self": edit}) as edits,
    ):
        model(CLEAN)
    weights = edits.weights("layer.0.self")
    torch.testing.assert_close(weights[:, 1], corrupted_run["layer.0.self"].weights()[:, 1])
    torch.testing.assert_close(weights[:, 0], attentions["layer.0.self"].weights()[:, 0], **CLOSE)


def test_aligned_places_patch_texts_of_other_lengths():
    model = gpt2()
    layer = model.transformer.h[0].attn.c_proj
    longer = torch.cat([CORRUPTED[:, :1], CORRUPTED], 1)
    longer_states = states_of(model, layer, longer)[:, 1:]
    with torch.no_grad(), regard.watch(model, values=True) as attentions:
        model(longer)
    places = [-1, *range(2, 8)]
    expected = with_states(
        model,
        layer,
        CLEAN,
        partial(patched, second=longer_states, head=0, heads=3, rows=slice(1, None)),
    )
    with torch.no_grad(), regard.change(model, {"layer.0.self": From(attentions, places, heads=0)}):
        output = first_tensor(model(CLEAN))
    torch.testing.assert_close(output, expected, **CLOSE)
    with (
        pytest.raises(WatchError, match="7 queries and the other 8: pass texts of the same length"),
        torch.no_grad(),
        regard.change(model, {"layer.0.self": From(attentions)}),
    ):
        model(CLEAN[:, :7])


def test_cells_of_chosen_queries_and_keys_are_edited():
    weights = torch.rand(2, 3, 4, 5)
    edited = Scale(0.0, heads=1, queries=[0, -1], keys=2)(weights)
    expected = weights.clone()
    expected[:, 1, [0, 3], 2] = 0
    assert torch.equal(edited, expected)
    later = Scale(0.0, queries=5)(weights, 4)
    assert torch.equal(later[..., 1, :], torch.zeros(2, 3, 5))
    assert torch.equal(later[..., [0, 2, 3], :], weights[..., [0, 2, 3], :])


def test_torch_attention_that_returns_weights_has_patched_outputs():
    model = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x, y = torch.randn(2, 1, 5, 8)
    with torch.no_grad(), regard.watch(model, values=True) as attentions:
        corrupted_output, _ = model(y, y, y)
    with torch.no_grad(), regard.change(model, {"self": From(attentions)}):
        output, weights = model(x, x, x)
    torch.testing.assert_close(output, corrupted_output, **CLOSE)
    assert weights.shape == (1, 5, 5)


def test_bad_edits_are_refused_in_a_sentence():
    model = gpt2()
    with torch.no_grad(), regard.watch(model) as bare:
        model(CLEAN)
    with (
        pytest.raises(WatchError, match="open the watch with values=True"),
        torch.no_grad(),
        regard.change(model, {"*": From(bare)}),
    ):
        model(CLEAN)
    with torch.no_grad(), regard.watch(model, values=True) as two:
        model(CLEAN.repeat(2, 1))
    with (
        pytest.raises(WatchError, match="pass as many batch entries to both"),
        torch.no_grad(),
        regard.change(model, {"*": From(two)}),
    ):
        model(CLEAN)
    with pytest.raises(ValueError, match='pass "outputs" or "weights"'):
        From(bare, replaces="keys")
    with pytest.raises(ValueError, match="have no keys"):
        From(bare, keys=1)
    module, x = torch.nn.MultiheadAttention(8, 2).eval(), torch.randn(5, 1, 8)
    with (
        pytest.raises(WatchError, match=r"no attention ''; it has layer\.0\.self"),
        torch.no_grad(),
        regard.change(module, {"*": From(bare)}),
    ):
        module(x, x, x)
