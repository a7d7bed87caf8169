"""torch's modules as ours and back, in float64: values, masks of both polarities, both norms, refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.translation.models.test_transformer import LENGTHS, SOURCE, TARGET, small
from torch import Tensor, nn
from torch.ao.nn import quantizable
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import weight_norm

import regard
from regard.attention import normalisers, scores
from regard.interop.keras import to_keras
from regard.interop.torch import from_torch, masks_from_torch, to_torch
from regard.translation.models.transformer.layers import TransformerEncoded

WIDTH, HEADS, INNER = 16, 4, 24
later = nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64)
AFTER = torch.arange(5) > 0  # one key at least is never hidden: there a row of nothing is NaN
HIDDEN = torch.arange(5) >= torch.tensor([5, 3, 1])[:, None]


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shaken(module: nn.Module) -> Any:
    """In evaluation, in float64, with biases and gains that are not 0 and 1."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in module.double().eval().parameters():
            parameter.uniform_(-0.5, 0.5)
    return module


def same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("widths", [{}, {"kdim": 6, "vdim": 10}, {"vdim": 16, "kdim": 6}])
@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_there_and_back(bias, widths, batch_first):
    theirs = shaken(
        nn.MultiheadAttention(WIDTH, HEADS, bias=bias, batch_first=batch_first, **widths)
    )
    query, key = seeded(3, 4, WIDTH), seeded(3, 5, theirs.kdim, seed=1)
    value = seeded(3, 5, theirs.vdim, seed=2)
    ours = from_torch(theirs)
    inputs = (query, key, value)
    if not batch_first:
        inputs = tuple(each.transpose(0, 1) for each in inputs)
    expected, weights = theirs(*inputs, average_attn_weights=False)
    output, look = ours.read(query, key, value)
    same(output, expected if batch_first else expected.transpose(0, 1))
    same(look.weights(), weights)
    back = to_torch(ours)
    same(back(query, key, value)[0], output)
    assert back.state_dict().keys() == theirs.state_dict().keys()
    assert not back.training


MASKS: dict[str, dict[str, Tensor]] = {
    "queries and keys": {"attn_mask": torch.ones(4, 5, dtype=torch.bool).triu(2)},
    "each head": {"attn_mask": seeded(12, 4, 5).gt(0.8) & AFTER},
    "numbers": {"attn_mask": seeded(4, 5)},
    "numbers each head": {"attn_mask": seeded(12, 4, 5)},
    "padding": {"key_padding_mask": HIDDEN},
    "padding as numbers": {"key_padding_mask": seeded(3, 5)},
    "both": {"attn_mask": torch.ones(4, 5, dtype=torch.bool).triu(2), "key_padding_mask": HIDDEN},
    "both each head": {"attn_mask": seeded(12, 4, 5).gt(0.8) & AFTER, "key_padding_mask": HIDDEN},
    "both as numbers": {"attn_mask": seeded(12, 4, 5), "key_padding_mask": seeded(3, 5)},
}


@pytest.mark.parametrize("inputs", MASKS.values(), ids=MASKS)
def test_masks_are_turned_round_at_the_door(inputs):
    theirs = shaken(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    query, key = seeded(3, 4, WIDTH), seeded(3, 5, WIDTH, seed=1)
    expected, weights = theirs(query, key, key, average_attn_weights=False, **inputs)
    output, look = from_torch(theirs).read(query, key, **masks_from_torch(**inputs, heads=HEADS))
    same(output, expected)
    same(look.weights(), weights)
    assert not weights.isnan().any()


def test_no_mask_is_none():
    assert masks_from_torch(heads=2) == {"mask": None, "bias": None}


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu", nn.SiLU()], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_layers_there_and_back(norm_first, activation, bias):
    options = {
        "activation": activation,
        "norm_first": norm_first,
        "bias": bias,
        "batch_first": True,
        "layer_norm_eps": 1e-3,
    }
    encoder = shaken(nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, **options))
    decoder = shaken(nn.TransformerDecoderLayer(WIDTH, HEADS, INNER, **options))
    x, states = seeded(3, 4, WIDTH), seeded(3, 5, WIDTH, seed=1)
    ours = from_torch(encoder)
    expected = encoder(states, src_key_padding_mask=HIDDEN)
    same(ours(states, ~HIDDEN[:, None])[~HIDDEN], expected[~HIDDEN])
    same(to_torch(ours)(x), encoder(x))
    read = decoder(x, states, tgt_mask=later, memory_key_padding_mask=HIDDEN)
    same(from_torch(decoder)(x, TransformerEncoded(states, ~HIDDEN[:, None])), read)
    read, alone = decoder(x, states, tgt_mask=later), from_torch(encoder)(states)
    same(from_torch(decoder)(x, states), read)
    same(alone, encoder(states))
    read = decoder(x, states, tgt_mask=later, memory_key_padding_mask=HIDDEN)
    converted = to_torch(from_torch(decoder))
    same(converted(x, states, tgt_mask=later, memory_key_padding_mask=HIDDEN), read)


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_whole_transformer_there_and_back_with_looks(norm_first):
    theirs = shaken(
        nn.Transformer(WIDTH, HEADS, 2, 3, INNER, norm_first=norm_first, batch_first=True)
    )
    source, target = seeded(3, 5, WIDTH), seeded(3, 4, WIDTH, seed=1)
    masks = {"src_key_padding_mask": HIDDEN, "memory_key_padding_mask": HIDDEN}
    expected = theirs(source, target, tgt_mask=later, **masks)
    ours = from_torch(theirs)
    readable = ~HIDDEN[:, None]
    same(ours(source, target, readable), expected)
    back = to_torch(ours)
    same(back(source, target, tgt_mask=later, **masks), expected)
    for side in ("encoder", "decoder"):
        tensors = getattr(back, side).state_dict()
        for name, tensor in getattr(theirs, side).state_dict().items():
            assert torch.equal(tensors[name], tensor), name
    looks = ours.looks(source, target, readable)
    assert len(looks) == 2 + 2 * 3
    assert looks.keys() >= {"encoder.1.self", "decoder.2.cross"}
    _, weights = theirs.encoder.layers[0].self_attn(
        *[theirs.encoder.layers[0].norm1(source) if norm_first else source] * 3,
        key_padding_mask=HIDDEN,
        average_attn_weights=False,
    )
    same(looks["encoder.0.self"].weights(), weights)
    assert ours.encoder.looks(source, readable).keys() < looks.keys()
    assert ours.decoder.looks(target, source, readable).keys() < looks.keys()


def test_an_encoder_without_a_last_norm():
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, batch_first=True)
    theirs = shaken(nn.TransformerEncoder(layer, 2))
    x = seeded(3, 5, WIDTH)
    ours = from_torch(theirs)
    same(ours(x), theirs(x))
    assert to_torch(ours).norm is None


@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_a_translation_model_is_torchs_transformer_between_its_embeddings(norm):
    ours = small(norm=norm, attention_bias=True)
    theirs = to_torch(ours)
    hidden = SOURCE == 0
    hidden[1, 2:], hidden[2, 3:] = True, True
    states = theirs(
        ours._embed(ours.source_embedding, SOURCE),
        ours._embed(ours.target_embedding, TARGET),
        tgt_mask=later[:3, :3],
        src_key_padding_mask=hidden,
        memory_key_padding_mask=hidden,
    )
    same(states, ours.hidden(SOURCE, LENGTHS, TARGET))


def test_weights_are_copies_and_keep_type_and_mode():
    theirs = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, dropout=0.25).bfloat16()
    ours = from_torch(theirs)
    assert ours.training
    assert {p.dtype for p in ours.parameters()} == {torch.bfloat16}
    copy_before = theirs.self_attn.in_proj_weight.clone()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.zero_()
    assert torch.equal(theirs.self_attn.in_proj_weight, copy_before)
    assert to_torch(ours).dropout1.p == 0.25


def attention(**options: Any) -> regard.MultiHeadAttention:
    return regard.MultiHeadAttention(8, 2, **options)


REFUSED = {
    "bias_k": (nn.MultiheadAttention(8, 2, add_bias_kv=True), "made with add_bias_kv"),
    "zeros": (nn.MultiheadAttention(8, 2, add_zero_attn=True), "made with add_zero_attn"),
    "activation": (
        nn.TransformerEncoderLayer(8, 2, 8, activation=nn.ELU()),
        r"its activation is ELU\(.*: ours are relu, gelu, gelu_tanh, silu$",
    ),
    "norm": (
        nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 8), 1, norm=nn.RMSNorm(8)),
        "its last norm is RMSNorm",
    ),
}


@pytest.mark.parametrize(("module", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_counterpart_here_is_refused(module, reason):
    with pytest.raises(ValueError, match=reason):
        from_torch(module)


@pytest.mark.parametrize(
    ("ours", "reason"),
    [
        (attention(score=scores.Dot()), "scaled dot products only"),
        (attention(normaliser=normalisers.Sparsemax()), "torch's has softmax only"),
        (attention(merge="sum"), "torch's has heads side by side"),
        (attention(d_head=3), "heads together are 6 and 6 wide"),
        (attention(d_output=9), "the output 9"),
        (attention(key_heads=1), "1 key heads for 2 heads"),
        (attention(qk_norm="rms"), "normalises queries and keys"),
    ],
)
def test_what_has_no_counterpart_there_is_refused(ours, reason):
    with pytest.raises(ValueError, match=reason):
        to_torch(ours)
    to_torch(attention(score=scores.ScaledDot(), normaliser=normalisers.Softmax()))


class Doubled(nn.MultiheadAttention):
    def forward(self, *given: Any, **how: Any) -> Any:
        output, weights = super().forward(*given, **how)
        return 2 * output, weights


class DoubledLayer(nn.TransformerEncoderLayer):
    def _ff_block(self, x: Tensor) -> Tensor:
        return 2 * super()._ff_block(x)


class Scaled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def encoder(**parts: nn.Module) -> nn.TransformerEncoder:
    """An encoder whose second layer has other parts."""
    theirs = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 2)
    for name, submodule in parts.items():
        setattr(theirs.layers[1], name, submodule)
    return theirs


def pruned() -> nn.Module:
    return prune.l1_unstructured(nn.Linear(8, 8), "weight", 0.5)


def replaced(module: Any, name: str, replacement: Any = lambda *_: None) -> Any:
    setattr(module, name, replacement)
    return module


class Called(nn.MultiheadAttention):
    def __call__(self, *given: Any, **how: Any) -> Any:
        return super().__call__(*given, **how)[0], None


class Named(nn.MultiheadAttention):
    """It overrides nothing that takes part in its answers."""

    def __init__(self, name: str) -> None:
        super().__init__(8, 2, batch_first=True)
        self.name = name

    def described(self) -> str:
        return self.name


ALTERED = {
    "attention": (
        Doubled(8, 2),
        "it is a Doubled, a subclass of MultiheadAttention that .* forward",
    ),
    "quantizable": (quantizable.MultiheadAttention(8, 2), "subclass of MultiheadAttention"),
    "in a layer": (encoder(self_attn=Doubled(8, 2)), r"layers\.1\.self_attn is a Doubled"),
    "layer": (DoubledLayer(8, 2, 8), "DoubledLayer, .* that overrides _ff_block"),
    "linear": (encoder(linear1=Scaled(8, 8)), r"layers\.1\.linear1 is a Scaled"),
    "pruned": (encoder(linear1=pruned()), r"layers\.1\.linear1 has forward hooks"),
    "parametrized": (
        encoder(linear2=weight_norm(nn.Linear(8, 8))),
        r"layers\.1\.linear2 has parametrizations",
    ),
    "replaced": (replaced(encoder(), "forward"), "it has another forward than its class"),
    "call": (Called(8, 2), "that overrides __call__"),
    "of another": (
        replaced(nn.MultiheadAttention(8, 2), "forward", nn.MultiheadAttention(8, 2).forward),
        "it has another forward than its class",
    ),
    "norm": (encoder(norm1=nn.RMSNorm(8)), "its norm1 is of type RMSNorm, ours of type LayerNorm"),
    "in a model": (nn.Transformer(8, 2, custom_encoder=Doubled(8, 2)), r"encoder is a Doubled"),
}


@pytest.mark.parametrize(("module", "reason"), ALTERED.values(), ids=ALTERED)
def test_modules_that_compute_something_else_are_refused(module, reason):
    with pytest.raises(ValueError, match=reason):
        from_torch(module)


def test_a_subclass_that_overrides_nothing_is_converted():
    theirs, x = Named("mine"), torch.randn(1, 3, 8)
    assert torch.allclose(from_torch(theirs)(x), theirs(x, x, x)[0], atol=1e-6)
    theirs.forward = theirs.forward  # its own method, kept by the object
    assert torch.allclose(from_torch(theirs)(x), theirs(x, x, x)[0], atol=1e-6)


@pytest.mark.parametrize("kind", [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer])
def test_a_dropout_that_was_switched_off_has_the_rate_0(kind):
    theirs = kind(8, 2, 8, dropout=0.3)
    for name in ("dropout", "dropout1", "dropout2"):
        setattr(theirs, name, nn.Identity())
    assert to_torch(from_torch(theirs)).dropout1.p == 0


class Halved(regard.MultiHeadAttention):
    def forward(self, *given: Any, **how: Any) -> Tensor:
        return super().forward(*given, **how) / 2


def test_modules_of_ours_that_compute_something_else_are_refused():
    hooked = from_torch(encoder())
    hooked.layers[0].feed_forward.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match=r"layers\.0\.feed_forward has forward hooks"):
        to_torch(hooked)
    for convert in (to_torch, to_keras):
        with pytest.raises(
            ValueError, match="subclass of MultiHeadAttention that overrides forward"
        ):
            convert(Halved(8, 2))


def test_other_modules_are_refused():
    with pytest.raises(TypeError, match="got a Linear: pass nn"):
        from_torch(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="got a Linear: pass a MultiHeadAttention"):
        to_torch(nn.Linear(2, 2))


def test_an_approximate_gelu_is_one_there_and_back():
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(8, 2, 8, activation=nn.GELU("tanh"), batch_first=True)
    x = torch.randn(1, 3, 8)  # with gradients: torch's fast path takes any GELU for the exact one
    ours = from_torch(theirs.eval())
    torch.testing.assert_close(ours(x, None), theirs(x))
    torch.testing.assert_close(to_torch(ours)(x), theirs(x))
