"""Compiled search computes what the model's own layers compute, and is chosen only where it can."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import regard
from regard.translation.engines import choose
from regard.translation.engines.compiled.model import CompiledState
from regard.translation.engines.engine import CompiledEngine
from regard.translation.models.ensemble import Ensemble
from regard.translation.models.transformer.layers import TransformerState
from regard.translation.models.transformer.model import Transformer
from regard.translation.settings.transformer import TransformerSettings

SHAPES = {
    "pre": {},
    "post": {"norm": "post", "activation": "gelu"},
    "learned": {"positions": "learned", "activation": "silu", "longest": 80},
    "unordered": {"positions": "none"},
    "untied": {"tied": "none", "heads": 1, "scale_embedding": False},
    "biased": {"attention_bias": True, "output_bias": True, "norm": "post"},
    "uneven": {"encoder_layers": 1, "decoder_layers": 3, "feed_forward": 37},
    "no layers": {"encoder_layers": 0, "decoder_layers": 1},
}
LENGTHS = torch.tensor([5, 1, 9])


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def small(**changes: object) -> Transformer:
    torch.manual_seed(3)
    shape = {"width": 24, "heads": 2, "feed_forward": 40, "encoder_layers": 2, "decoder_layers": 2}
    model = Transformer(TransformerSettings().model_copy(update={**shape, **changes}), 71, 71)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return model.eval()


def source() -> Tensor:
    tokens = torch.randint(4, 71, (3, 9), generator=torch.Generator().manual_seed(1))
    return tokens.masked_fill(torch.arange(9) >= LENGTHS[:, None], 0)


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_it_steps_as_the_layers_do(changes):
    model = small(**changes)
    engine = choose(model)
    state, expected = engine.begin(source(), LENGTHS), model.begin(source(), LENGTHS)
    assert isinstance(state, CompiledState)
    assert isinstance(expected, TransformerState)
    parents_at = {1: [0, 0, 1, 2, 2, 2], 4: [5, 0, 1, 1], 35: [2, 3], 40: [0, 1, 1]}
    words = torch.full((3,), 2)
    for step in range(45):
        logits, state = engine.step(words, state)
        right, expected = model.step(words, expected)
        torch.testing.assert_close(logits, right, atol=2e-5, rtol=2e-5)
        words = (words * 7 + step + torch.arange(len(words))) % 67 + 4
        if step in parents_at:
            rows = torch.tensor(parents_at[step])
            words, state, expected = words[rows], state.select(rows), expected.select(rows)


def test_weights_are_those_of_the_choice():
    model, words = small(), torch.full((3,), 2)
    engine = choose(model)
    copy_before = engine.step(words, engine.begin(source(), LENGTHS))[0].clone()
    model.decoder[1].cross_attention.query_projection.weight.mul_(2.0)
    assert torch.equal(engine.step(words, engine.begin(source(), LENGTHS))[0], copy_before)
    anew = choose(model)
    step_after = anew.step(words, anew.begin(source(), LENGTHS))[0]
    assert not torch.allclose(copy_before, step_after)
    right = model.step(words, model.begin(source(), LENGTHS))[0]
    torch.testing.assert_close(step_after, right, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_each_norm_keeps_its_own_epsilon(norm):
    model, words = small(norm=norm), torch.full((3,), 2)
    engine = choose(model)
    copy_before = engine.step(words, engine.begin(source(), LENGTHS))[0].clone()
    model.encoder[0].feed_forward_residual.norm.eps = 3.0
    model.decoder[1].cross_residual.norm.eps = 0.5
    engine = choose(model)
    step_after = engine.step(words, engine.begin(source(), LENGTHS))[0]
    assert not torch.allclose(copy_before, step_after)
    right = model.step(words, model.begin(source(), LENGTHS))[0]
    torch.testing.assert_close(step_after, right, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_a_damaged_weight_is_not_hidden(activation):
    model = small(activation=activation)
    model.encoder[0].feed_forward.inner.weight[3, 5] = torch.nan
    engine = choose(model)
    assert isinstance(engine, CompiledEngine)
    logits, _ = engine.step(torch.full((3,), 2), engine.begin(source(), LENGTHS))
    assert bool(logits.isnan().all())


def test_ids_beyond_the_vocabulary_are_refused():
    engine = choose(small())
    with pytest.raises(IndexError, match=r"word ids from .* to 141, this model knows 0 to 70"):
        engine.begin(source().masked_fill(source() == source().max(), 141), LENGTHS)
    state = engine.begin(source(), LENGTHS)
    with pytest.raises(IndexError, match="word ids from -1 to 2"):
        engine.step(torch.tensor([2, -1, 2]), state)
    with pytest.raises(ValueError, match="a length of 10 in a batch of 9 positions"):
        engine.begin(source(), LENGTHS + 1)


def test_layers_of_another_kind_are_called_themselves():
    class Adapted(torch.nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 1

    model = small()
    outer = model.encoder[1].feed_forward.outer
    adapted = Adapted(outer.in_features, outer.out_features)
    adapted.load_state_dict(outer.state_dict())
    assert choose(model).name == "compiled"
    model.encoder[1].feed_forward.outer = adapted
    assert choose(model).name == "layers"


def test_weights_made_without_counting_writes_serve():
    with torch.inference_mode():
        model = small()
        engine = choose(model)
        state, words = engine.begin(source(), LENGTHS), torch.full((3,), 2)
        right = model.step(words, model.begin(source(), LENGTHS))[0]
        torch.testing.assert_close(engine.step(words, state)[0], right, atol=2e-5, rtol=2e-5)


def test_the_layers_are_chosen_where_compiled_search_is_not_possible():
    model = small()
    assert choose(model).name == "compiled"
    assert choose(model).reason == ""
    hook = model.decoder[1].cross_attention.register_forward_hook(lambda *_: None)
    assert choose(model).name == "layers"
    assert "hooks" in choose(model).reason
    hook.remove()
    assert choose(model).name == "compiled"
    assert "torch.float64" in choose(model.double()).reason


def test_loops_that_are_to_be_avoided_are_not_loaded():
    engine = choose(small(), avoid_loops="few sentences")
    assert engine.name == "layers"
    assert engine.reason == "few sentences"
    assert not engine.loops


@pytest.mark.parametrize("together", [False, True], ids=["one model", "several"])
def test_few_sentences_are_translated_by_the_layers(together):
    model = Ensemble([small(), small()]) if together else small()
    engine, layers = choose(model, loops_after=5), choose(model, avoid_loops="to compare")
    for loops in (False, True):  # three sentences, then six
        state = engine.begin(source(), LENGTHS)
        assert engine.loops == loops
        states = state.states if together else [state]
        assert {isinstance(each, TransformerState) for each in states} == {not loops}
        words = torch.full((3,), 2)
        right = layers.step(words, layers.begin(source(), LENGTHS))[0]
        torch.testing.assert_close(engine.step(words, state)[0], right, atol=2e-5, rtol=2e-5)


def test_learned_positions_end_somewhere():
    model = small(positions="learned", longest=10)
    engine = choose(model)
    state, words = engine.begin(source(), LENGTHS), torch.full((3,), 2)
    for _ in range(10):
        _, state = engine.step(words, state)
    with pytest.raises(ValueError, match="11 positions, this model has learned 10"):
        engine.step(words, state)


@pytest.mark.parametrize(
    "changes",
    [
        {"score": "dot"},
        {"normaliser": "entmax"},
        {"positions": "rotary"},
        {"positions": "alibi"},
        {"positions": "relative"},
        {"normalisation": "rms"},
        {"gated": True},
        {"activation": "gelu_tanh"},
        {"feed_forward_bias": False},
        {"head_width": 16},
    ],
    ids=str,
)
def test_parts_that_it_does_not_compute_are_left_to_the_layers(changes):
    model = small(**changes)
    assert choose(model).name == "layers"
    assert isinstance(model.begin(source(), LENGTHS), TransformerState)


@pytest.mark.parametrize(
    ("name", "replacement"),
    [
        ("score", regard.scores.Dot()),
        ("normaliser", regard.normalisers.Softmax(temperature=2.0)),
        ("dropout", 0.5),
        ("rotary", regard.positions.Rotary()),
    ],
)
def test_attention_that_was_given_another_part_keeps_it(name, replacement):
    model = small()
    setattr(model.decoder[1].cross_attention, name, replacement)
    assert choose(model).name == "layers"


@pytest.mark.parametrize(
    ("where", "name", "replacement"),
    [
        ("decoder.1.feed_forward", "activation", torch.nn.functional.gelu),
        ("encoder.0.self_residual", "before", False),
        ("decoder.0.cross_residual.dropout", "rate", 0.7),
    ],
)
def test_a_layer_that_no_longer_is_what_the_settings_say_is_called_itself(where, name, replacement):
    model = small()
    assert choose(model).name == "compiled"
    setattr(model.get_submodule(where), name, replacement)
    assert choose(model).name == "layers"


def test_parts_that_are_the_usual_ones_by_name_are_compiled():
    model = small()
    model.encoder[0].self_attention.score = regard.scores.ScaledDot()
    model.encoder[0].self_attention.normaliser = regard.normalisers.Softmax()
    assert choose(model).name == "compiled"
