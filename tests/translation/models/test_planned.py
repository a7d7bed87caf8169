"""A plan computes what the model's own layers compute, and only where it may."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import regard
from regard.translation.models import compiling
from regard.translation.models.transformer import Transformer, TransformerSettings
from regard.translation.models.transformer.planned import permission
from regard.translation.models.transformer.planned.permission import plan_of
from regard.translation.models.transformer.planned.stepping import PlannedState
from regard.translation.models.transformer.state import TransformerState

SHAPES = {
    "pre": {},
    "post": {"norm": "post", "activation": "gelu"},
    "learned": {"positions": "learned", "activation": "silu", "longest": 80},
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
    drawn = torch.randint(4, 71, (3, 9), generator=torch.Generator().manual_seed(1))
    return drawn.masked_fill(torch.arange(9) >= LENGTHS[:, None], 0)


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_a_plan_steps_as_the_layers_do(changes):
    model = small(**changes)
    state, expected = model.begin(source(), LENGTHS), model.start(model.encode(source(), LENGTHS))
    assert isinstance(state, PlannedState)
    assert isinstance(expected, TransformerState)
    chosen = {1: [0, 0, 1, 2, 2, 2], 4: [5, 0, 1, 1], 35: [2, 3], 40: [0, 1, 1]}
    words = torch.full((3,), 2)
    for step in range(45):
        logits, state = model.step(words, state)
        right, expected = model.step(words, expected)
        torch.testing.assert_close(logits, right, atol=2e-5, rtol=2e-5)
        words = (words * 7 + step + torch.arange(len(words))) % 67 + 4
        if step in chosen:
            rows = torch.tensor(chosen[step])
            words, state, expected = words[rows], state.select(rows), expected.select(rows)


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_a_plan_computes_the_words_of_lists_alone(changes):
    model = small(**changes)
    lists = torch.tensor([[-1, 3, 70, -1], [4, 5, 6, 7], [-1, -1, -1, 50]])
    narrow, whole = model.begin(source(), LENGTHS), model.begin(source(), LENGTHS)
    assert isinstance(narrow, PlannedState)
    narrow.narrow(lists, torch.arange(3))
    words, own = torch.full((3,), 2), torch.arange(3)
    for rows in ([0, 0, 1, 1, 1, 2], [2, 5, 5], [0, 1, 1, 2]):
        some, narrow = model.step(words, narrow)
        every, whole = model.step(words, whole)
        there = lists[own] >= 0
        assert bool((some[~there] == -torch.inf).all())
        right = every.gather(1, lists[own].clamp(min=0))
        torch.testing.assert_close(some[there], right[there], atol=2e-5, rtol=2e-5)
        chosen = torch.tensor(rows)
        narrow, whole = narrow.select(chosen), whole.select(chosen)
        own, words = own[chosen], 4 + chosen


@pytest.mark.parametrize(
    ("lists", "rows"), [([[71]], [0, 0, 0]), ([[-2]], [0, 0, 0]), ([[5]], [0, 0, 1])]
)
def test_lists_beyond_the_vocabulary_are_refused(lists, rows):
    state = small().begin(source(), LENGTHS)
    with pytest.raises(IndexError):
        state.narrow(torch.tensor(lists), torch.tensor(rows))


def test_a_plan_lasts_until_the_weights_change():
    model = small()
    before = plan_of(model, source())
    assert plan_of(model, source()) is before
    words = torch.full((3,), 2)
    logits = model.step(words, model.begin(source(), LENGTHS))[0].clone()
    model.decoder[0].feed_forward.outer.weight.mul_(2.0)
    after = model.step(words, model.begin(source(), LENGTHS))[0]
    assert plan_of(model, source()) is not before
    assert not torch.allclose(logits, after)
    right = model.step(words, model.start(model.encode(source(), LENGTHS)))[0]
    torch.testing.assert_close(after, right, atol=2e-5, rtol=2e-5)


def double(weight: Tensor) -> None:
    weight.data *= 2


def replace_twice(weight: Tensor) -> None:
    """The second time, perhaps, in the memory that the first left."""
    for _ in range(2):
        weight.data = weight.data * 1.5


def turn(weight: Tensor) -> None:
    weight.data = weight.data.t()


def learn(weight: Tensor) -> None:
    weight.grad = torch.ones_like(weight)
    torch.optim.Adam([weight], lr=0.1, fused=True).step()


@pytest.mark.parametrize("write", [double, replace_twice, turn, learn])
def test_what_is_written_uncounted_is_seen(write):
    model, words = small(), torch.full((3,), 2)
    before = model.step(words, model.begin(source(), LENGTHS))[0].clone()
    write(model.decoder[1].cross_attention.query_projection.weight)
    after = model.step(words, model.begin(source(), LENGTHS))[0]
    assert not torch.allclose(before, after)
    right = model.step(words, model.start(model.encode(source(), LENGTHS)))[0]
    torch.testing.assert_close(after, right, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_each_norm_keeps_its_own_epsilon(norm):
    model, words = small(norm=norm), torch.full((3,), 2)
    before = model.step(words, model.begin(source(), LENGTHS))[0].clone()
    model.encoder[0].feed_forward_residual.norm.eps = 3.0
    model.decoder[1].cross_residual.norm.eps = 0.5
    after = model.step(words, model.begin(source(), LENGTHS))[0]
    assert not torch.allclose(before, after)
    right = model.step(words, model.start(model.encode(source(), LENGTHS)))[0]
    torch.testing.assert_close(after, right, atol=2e-5, rtol=2e-5)


def test_plans_are_gone_with_their_models():
    model = small()
    model.begin(source(), LENGTHS)
    count = len(permission._plans)
    del model
    gc.collect()
    assert len(permission._plans) < count


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_a_damaged_weight_is_not_hidden(activation):
    model = small(activation=activation)
    model.encoder[0].feed_forward.inner.weight[3, 5] = torch.nan
    assert plan_of(model, source()) is not None
    logits, _ = model.step(torch.full((3,), 2), model.begin(source(), LENGTHS))
    assert bool(logits.isnan().all())


def test_ids_beyond_the_vocabulary_are_refused():
    model = small()
    with pytest.raises(IndexError, match=r"word ids from .* to 141, this model knows 0 to 70"):
        model.begin(source().masked_fill(source() == source().max(), 141), LENGTHS)
    state = model.begin(source(), LENGTHS)
    with pytest.raises(IndexError, match="word ids from -1 to 2"):
        model.step(torch.tensor([2, -1, 2]), state)
    with pytest.raises(ValueError, match="a length of 10 in a batch of 9 positions"):
        model.begin(source(), LENGTHS + 1)


def test_layers_of_another_kind_are_called_themselves():
    class Adapted(torch.nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 1

    model = small()
    outer = model.encoder[1].feed_forward.outer
    adapted = Adapted(outer.in_features, outer.out_features)
    adapted.load_state_dict(outer.state_dict())
    assert plan_of(model, source()) is not None
    model.encoder[1].feed_forward.outer = adapted
    assert plan_of(model, source()) is None


def test_weights_made_without_counting_writes_serve():
    with torch.inference_mode():
        model = small()
        state, words = model.begin(source(), LENGTHS), torch.full((3,), 2)
        right = model.step(words, model.start(model.encode(source(), LENGTHS)))[0]
        torch.testing.assert_close(model.step(words, state)[0], right, atol=2e-5, rtol=2e-5)


def test_the_layers_themselves_do_it_where_a_plan_may_not():
    model = small()
    assert plan_of(model, source()) is not None
    with torch.enable_grad():
        assert plan_of(model, source()) is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert plan_of(model, source()) is None
    assert plan_of(model.train(), source()) is None
    assert plan_of(model.eval(), source()[:0]) is None
    hook = model.decoder[1].cross_attention.register_forward_hook(lambda *_: None)
    assert plan_of(model, source()) is None
    hook.remove()
    assert plan_of(model, source()) is not None
    assert plan_of(model.double(), source()) is None


def test_loops_that_are_not_wanted_are_not_loaded():
    compiling.want(False)
    try:
        assert plan_of(small(), source()) is None
    finally:
        compiling.want(True)


def test_learned_positions_end_somewhere():
    model = small(positions="learned", longest=10)
    state, words = model.begin(source(), LENGTHS), torch.full((3,), 2)
    for _ in range(10):
        _, state = model.step(words, state)
    with pytest.raises(ValueError, match="11 positions, this model has learned 10"):
        model.step(words, state)


@pytest.mark.parametrize(
    "changes",
    [
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
def test_parts_that_a_plan_has_not_are_left_to_the_layers(changes):
    model = small(**changes)
    assert plan_of(model, source()) is None
    assert isinstance(model.begin(source(), LENGTHS), TransformerState)


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("score", regard.scores.Dot()),
        ("normaliser", regard.normalisers.Softmax(temperature=2.0)),
        ("dropout", 0.5),
        ("rotary", regard.positions.Rotary()),
    ],
)
def test_attention_that_was_given_another_part_keeps_it(part, other):
    model = small()
    setattr(model.decoder[1].cross_attention, part, other)
    assert plan_of(model, source()) is None


@pytest.mark.parametrize(
    ("where", "part", "other"),
    [
        ("decoder.1.feed_forward", "activation", torch.nn.functional.gelu),
        ("encoder.0.self_residual", "before", False),
        ("decoder.0.cross_residual.dropout", "rate", 0.7),
    ],
)
def test_a_layer_that_no_longer_is_what_the_settings_say_is_called_itself(where, part, other):
    model = small()
    assert plan_of(model, source()) is not None
    setattr(model.get_submodule(where), part, other)
    assert plan_of(model, source()) is None


def test_parts_that_are_the_usual_ones_by_name_are_planned():
    model = small()
    model.encoder[0].self_attention.score = regard.scores.ScaledDot()
    model.encoder[0].self_attention.normaliser = regard.normalisers.Softmax()
    assert plan_of(model, source()) is not None
