"""The Transformer: torch's own layers with the same weights, and the protocol's promises."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from regard.attention.blocks import ACTIVATIONS
from regard.attention.positions import sinusoidal
from regard.translation.models.transformer.layers import (
    DecoderLayer,
    EncoderLayer,
    TransformerEncoded,
)
from regard.translation.models.transformer.model import Transformer
from regard.translation.settings.transformer import TransformerSettings

SOURCE = torch.tensor([[4, 5, 6, 3], [7, 3, 0, 0], [8, 9, 3, 0]])
LENGTHS = torch.tensor([4, 2, 3])
TARGET = torch.tensor([[2, 5, 6], [2, 7, 8], [2, 9, 4]])
WIDTH, HEADS, INNER = 16, 4, 24

norms = pytest.mark.parametrize("norm", ["pre", "post"])


def shape(**changes: Any) -> TransformerSettings:
    options = {
        "encoder_layers": 2,
        "decoder_layers": 2,
        "width": WIDTH,
        "heads": HEADS,
        "feed_forward": INNER,
    }
    return TransformerSettings(**{**options, "dropout": 0.0, "longest": 9, **changes})


def shaken(module: nn.Module) -> nn.Module:
    """In float64, with biases and gains that are not 0 and 1."""
    with torch.no_grad():
        for name, parameter in module.double().eval().named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.uniform_(-1, 1)
    return module


def small(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    model = shaken(Transformer(shape(**changes), 12, 12))
    assert isinstance(model, Transformer)
    return model


MODELS = {
    "pre": {},
    "post": {"norm": "post", "activation": "gelu"},
    "learned": {"positions": "learned", "activation": "silu"},
    "untied": {"tied": "none", "heads": 1},
    "target": {"tied": "target", "norm": "post", "positions": "learned"},
    "biased": {"norm": "post", "attention_bias": True, "output_bias": True},
    "rotary": {"positions": "rotary", "normalisation": "rms"},
    "alibi": {"positions": "alibi", "norm": "post", "heads": 2},
    "relative": {"positions": "relative", "relative_buckets": 8, "relative_furthest": 6},
    "unordered": {"positions": "none", "score": "additive", "normaliser": "sparsemax"},
    "general": {"score": "general", "normaliser": "entmax", "heads": 2},
    "t5": {
        "positions": "relative",
        "normalisation": "rms",
        "activation": "gelu_tanh",
        "gated": True,
        "feed_forward_bias": False,
        "head_width": 6,
        "tied": "embeddings",
        "scale_embedding": False,
    },
}
models = pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)


def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    projections = (ours.query_projection, ours.key_projection, ours.value_projection)
    theirs.in_proj_weight.copy_(torch.cat([projection.weight for projection in projections]))
    theirs.out_proj.weight.copy_(ours.output_projection.weight)
    theirs.in_proj_bias.zero_()
    theirs.out_proj.bias.zero_()


@torch.no_grad()
def copy_layer(ours: nn.Module, theirs: nn.Module) -> None:
    copy_attention(ours.self_attention, theirs.self_attn)
    pairs = [(ours.self_residual.norm, theirs.norm1)]
    if isinstance(ours, DecoderLayer):
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        pairs += [
            (ours.cross_residual.norm, theirs.norm2),
            (ours.feed_forward_residual.norm, theirs.norm3),
        ]
    else:
        pairs += [(ours.feed_forward_residual.norm, theirs.norm2)]
    pairs += [(ours.feed_forward.inner, theirs.linear1), (ours.feed_forward.outer, theirs.linear2)]
    for module, expected in pairs:
        expected.load_state_dict(module.state_dict())


def torch_layer(kind: type[nn.Module], norm: str, activation: str) -> nn.Module:
    return kind(
        WIDTH,
        HEADS,
        INNER,
        dropout=0.0,
        activation=ACTIVATIONS[activation],
        batch_first=True,
        norm_first=norm == "pre",
        dtype=torch.float64,
    ).eval()


@norms
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_an_encoder_layer_is_torchs(norm, activation):
    torch.manual_seed(1)
    ours = shaken(EncoderLayer(shape(norm=norm, activation=activation), "encoder.0"))
    theirs = torch_layer(nn.TransformerEncoderLayer, norm, activation)
    copy_layer(ours, theirs)
    x = torch.randn(3, 5, WIDTH, dtype=torch.float64)
    readable = torch.arange(5) < torch.tensor([5, 3, 1])[:, None]
    expected = theirs(x, src_key_padding_mask=~readable)
    assert (ours(x, readable[:, None]) - expected)[readable].abs().max() < 1e-12
    assert torch.allclose(ours(x, None), theirs(x), atol=1e-12)


@norms
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_a_decoder_layer_is_torchs(norm, activation):
    torch.manual_seed(2)
    ours = shaken(DecoderLayer(shape(norm=norm, activation=activation), "decoder.0"))
    theirs = torch_layer(nn.TransformerDecoderLayer, norm, activation)
    copy_layer(ours, theirs)
    x, states = torch.randn(3, 4, WIDTH).double(), torch.randn(3, 5, WIDTH).double()
    readable = torch.arange(5) < torch.tensor([5, 3, 1])[:, None]
    later = nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64)
    expected = theirs(x, states, tgt_mask=later, memory_key_padding_mask=~readable)
    actual = ours(x, TransformerEncoded(states, readable[:, None]))
    assert torch.allclose(actual, expected, atol=1e-12)


@models
def test_steps_are_teacher_forcing(changes):
    model = small(**changes)
    forced = model(SOURCE, LENGTHS, TARGET)
    state = model.begin(SOURCE, LENGTHS)
    for t in range(TARGET.shape[1]):
        logits, state = model.step(TARGET[:, t], state)
        assert torch.allclose(logits, forced[:, t], atol=1e-12)


@models
def test_a_state_is_selected_row_by_row(changes):
    model = small(**changes)
    state = model.begin(SOURCE, LENGTHS)
    _, state = model.step(TARGET[:, 0], state)
    rows = torch.tensor([2, 0, 0])
    logits, _ = model.step(TARGET[rows, 1], state.select(rows))
    expected = model(SOURCE[rows], LENGTHS[rows], TARGET[rows])[:, 1]
    assert torch.allclose(logits, expected, atol=1e-12)
    logits, _ = model.step(TARGET[rows, 0], model.begin(SOURCE, LENGTHS).select(rows))
    expected = model(SOURCE[rows], LENGTHS[rows], TARGET[rows])[:, 0]
    assert torch.allclose(logits, expected, atol=1e-12)


@models
def test_padding_changes_nothing(changes):
    model = small(**changes)
    together = model(SOURCE, LENGTHS, TARGET)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model(SOURCE[row : row + 1, :length], LENGTHS[row : row + 1], TARGET[row : row + 1])
        assert torch.allclose(together[row], alone[0], atol=1e-12)
    noise = SOURCE.clone()
    noise[1, 2:], noise[2, 3:] = 11, 10
    assert torch.equal(model(noise, LENGTHS, TARGET), together)


def test_no_word_sees_those_after_it():
    model, changed_target = small(), TARGET.clone()
    changed_target[:, 2] = 11
    logits_before, logits_after = (
        model(SOURCE, LENGTHS, TARGET),
        model(SOURCE, LENGTHS, changed_target),
    )
    assert torch.equal(logits_before[:, :2], logits_after[:, :2])
    assert not torch.allclose(logits_before[:, 2], logits_after[:, 2])


@models
def test_looks_are_the_weights_that_make_the_readings(changes):
    model, states = small(**changes), {}
    for name, module in model.named_modules():
        if name.endswith("attention"):
            module.register_forward_hook(
                lambda module, inputs, output, name=name: states.update(
                    {name: (module, inputs, output)}
                )
            )
    model(SOURCE, LENGTHS, TARGET)
    looks = model.looks(SOURCE, LENGTHS, TARGET)
    assert sorted(looks) == sorted(
        [
            *(f"encoder.{i}.self" for i in range(2)),
            *(f"decoder.{i}.{k}" for i in range(2) for k in ("self", "cross")),
        ]
    )
    for name, look in looks.items():
        attention, inputs, output = states[f"{name}_attention"]
        weights, heads = look.weights(), attention.heads
        keys = inputs[-1]
        assert look.shape == (3, heads, inputs[0].shape[1], keys.shape[1])
        values = attention.value_projection(keys).unflatten(-1, (heads, -1)).transpose(1, 2)
        reading = attention.output_projection((weights @ values).transpose(1, 2).flatten(-2))
        assert torch.allclose(reading, output, atol=1e-12), name
        if name.endswith("cross"):
            assert weights[1, :, :, 2:].eq(0).all()
            assert torch.allclose(weights.sum(-1), torch.ones(3, heads, 3).double())
        if name.startswith("decoder") and name.endswith("self"):
            assert weights.triu(1).eq(0).all()
    states.clear()
    ((name, look),) = model.looks(SOURCE, LENGTHS, TARGET, "decoder.0.cross").items()
    assert name == "decoder.0.cross"
    assert torch.equal(look.weights(), looks[name].weights())
    assert "decoder.0.self_attention" in states
    assert "decoder.1.self_attention" not in states  # nobody reads further layers
    assert model.looks(SOURCE, LENGTHS, TARGET, "decoder.7.cross") == {}


@norms
@pytest.mark.parametrize("tied", ["none", "target", "three_way"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_parameters_are_the_formulas(norm, tied, positions):
    settings = shape(norm=norm, tied=tied, positions=positions, encoder_layers=3)
    source, target = (12, 12) if tied == "three_way" else (12, 15)
    w, f = WIDTH, INNER
    feed_forward = 2 * w * f + f + w
    layers = 3 * (4 * w * w + feed_forward + 2 * 2 * w) + 2 * (8 * w * w + feed_forward + 3 * 2 * w)
    embeddings = {"none": source + 2 * target, "target": source + target, "three_way": target}[
        tied
    ] * w
    other_parameters = (2 * 2 * w if norm == "pre" else 0) + (
        settings.longest * w if positions == "learned" else 0
    )
    model = Transformer(settings, source, target)
    assert (
        sum(parameter.numel() for parameter in model.parameters())
        == layers + embeddings + other_parameters
    )
    assert (model.output.weight is model.target_embedding.weight) == (tied != "none")
    assert (model.source_embedding is model.target_embedding) == (tied == "three_way")


def test_gates_norms_and_ties_add_what_their_formulas_say():
    plain = Transformer(shape(), 12, 12)
    gated = Transformer(shape(gated=True, normalisation="rms", tied="embeddings"), 12, 12)
    layers, norms = 4, 2 * 2 + 2 * 3 + 2
    added = layers * (WIDTH * INNER + INNER) - norms * WIDTH + 12 * WIDTH
    count = [sum(p.numel() for p in model.parameters()) for model in (plain, gated)]
    assert count[1] - count[0] == added
    assert gated.source_embedding is gated.target_embedding
    assert gated.output.weight is not gated.target_embedding.weight


@pytest.mark.parametrize("positions", ["rotary", "alibi", "relative"])
def test_positions_within_the_layers_are_seen_and_are_distances(positions):
    model = small(positions=positions)
    swapped = SOURCE[:1, [1, 0, 2, 3]]
    states = model.encode(SOURCE[:1], LENGTHS[:1]).states
    assert not torch.allclose(
        model.encode(swapped, LENGTHS[:1]).states[:, [1, 0, 2, 3]], states, atol=1e-3
    )
    assert model.longest is None
    bare = model.source_embedding(SOURCE) * WIDTH**0.5
    assert torch.equal(model._embed(model.source_embedding, SOURCE, start=3), bare)


def test_what_goes_in_is_the_papers():
    """sqrt(width) times the embedding, plus the position (sections 3.4 and 3.5)."""
    model = small(norm="post")
    model.encoder = nn.ModuleList()
    expected = model.source_embedding(SOURCE) * WIDTH**0.5 + sinusoidal(4, WIDTH).double()
    assert torch.allclose(model.encode(SOURCE, LENGTHS).states, expected)


def test_embeddings_are_scaled_unless_told_otherwise():
    model = small(norm="post", scale_embedding=False)
    model.encoder = nn.ModuleList()
    expected = model.source_embedding(SOURCE) + sinusoidal(4, WIDTH).double()
    assert torch.allclose(model.encode(SOURCE, LENGTHS).states, expected)


def test_biases_are_in_every_projection_and_the_output():
    model = small(attention_bias=True, output_bias=True)
    plain = small()
    added = {name for name, _ in model.named_parameters()} - {
        name for name, _ in plain.named_parameters()
    }
    assert len(added) == 4 * (2 + 2 * 2) + 1
    assert {name.rpartition(".")[0].rpartition(".")[2] for name in added} == {
        "query_projection",
        "key_projection",
        "value_projection",
        "output_projection",
        "output",
    }
    model_before = model(SOURCE, LENGTHS, TARGET)
    with torch.no_grad():
        model.output.bias += 1
    assert torch.allclose(model(SOURCE, LENGTHS, TARGET), model_before + 1)


def test_learned_positions_end_somewhere():
    model = small(positions="learned")
    assert model.longest == 9
    assert small().longest is None
    model.encode(torch.full((1, 9), 4), torch.tensor([9]))
    with pytest.raises(ValueError, match="a sentence of 10 positions, this model has learned 9"):
        model.encode(torch.full((1, 10), 4), torch.tensor([10]))


def test_three_way_tying_needs_one_vocabulary():
    with pytest.raises(ValueError, match="need one vocabulary, got 12 and 13"):
        Transformer(shape(), 12, 13)


def test_dropout_is_in_training_only_and_everywhere_the_paper_has_it():
    model = small(dropout=0.5).train()
    torch.manual_seed(5)
    first_logits, second = model(SOURCE, LENGTHS, TARGET), model(SOURCE, LENGTHS, TARGET)
    assert not torch.allclose(first_logits, second)
    model.eval()
    assert torch.equal(model(SOURCE, LENGTHS, TARGET), model(SOURCE, LENGTHS, TARGET))
    rates = [m.rate for m in model.modules() if type(m).__name__ == "Dropout"]
    assert rates == [0.5] * (1 + 2 * 2 + 2 * 3)  # after the embedding and after each sublayer


def test_everything_is_learnt():
    model = small(dropout=0.0)
    model(SOURCE, LENGTHS, TARGET).logsumexp(-1).sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in model.parameters())


def test_a_state_of_another_model_is_refused():
    with pytest.raises(TypeError, match="the model's own TransformerState, got a str"):
        small().advance(TARGET[:, 0], "something else")
