"""A block of the Transformer: torch's layers as the oracle, memories, looks and refusals."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.attention import masks
from regard.attention.blocks import FeedForward, TransformerBlock
from regard.attention.positions import Rotary
from regard.translation.models.transformer.layers import DecoderLayer, EncoderLayer


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def built(**how: Any) -> TransformerBlock:
    torch.manual_seed(0)
    block = TransformerBlock(8, 2, 12, **how).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.5)
    return block.eval()


def copied(ours: nn.Module, theirs: nn.Module) -> None:
    for name, parameter in theirs.named_parameters():
        parameter.data.copy_(ours.get_parameter(f"{name}"))


def torch_twin(ours: TransformerBlock, cross: bool, norm: str) -> nn.Module:
    """torch's layer with the weights of ours."""
    kind = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    theirs = kind(
        8, 2, 12, dropout=0.0, batch_first=True, norm_first=norm == "pre", dtype=torch.float64
    )
    with torch.no_grad():
        pairs = [("self_attn", ours.self_attention)]
        pairs += [("multihead_attn", ours.cross_attention)] if cross else []
        for name, attention in pairs:
            submodule = theirs.get_submodule(name)
            three = [getattr(attention, f"{side}_projection") for side in ("query", "key", "value")]
            submodule.in_proj_weight.copy_(torch.cat([each.weight for each in three]))
            submodule.in_proj_bias.copy_(torch.cat([each.bias for each in three]))
            copied(attention.output_projection, submodule.out_proj)
        copied(ours.feed_forward.inner, theirs.linear1)
        copied(ours.feed_forward.outer, theirs.linear2)
        residuals = [ours.self_residual, ours.cross_residual, ours.feed_forward_residual]
        for number, residual in enumerate([each for each in residuals if each is not None], 1):
            copied(residual.norm, theirs.get_submodule(f"norm{number}"))
    return theirs


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("cross", [False, True])
def test_a_block_is_torchs_layer(cross: bool, norm: Any) -> None:
    ours = built(cross=cross, norm=norm, bias=True)
    theirs = torch_twin(ours, cross, norm)
    x, context = seeded(3, 5, 8).requires_grad_(), seeded(3, 7, 8, seed=1)
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    if cross:
        lengths = torch.tensor([7, 2, 4])
        padded = torch.arange(7) >= lengths[:, None]
        expected = theirs(x, context, tgt_mask=future, memory_key_padding_mask=padded)
        output = ours(x, context, mask="causal", context_mask=masks.padding(lengths))
    else:
        expected = theirs(x, src_mask=future)
        output = ours(x, mask="causal")
    torch.testing.assert_close(output, expected)
    (gradient,) = torch.autograd.grad(output.square().sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.square().sum(), x)[0])


def test_the_comparison_with_torch_can_fail() -> None:
    ours = built(bias=True)
    theirs = torch_twin(ours, False, "post")
    with pytest.raises(AssertionError):
        torch.testing.assert_close(ours(seeded(1, 3, 8)), theirs(seeded(1, 3, 8)))


@pytest.mark.parametrize("options", [{}, {"rotary": Rotary(), "key_heads": 1, "qk_norm": "rms"}])
@torch.no_grad()
def test_steps_over_a_memory_are_the_whole(options: dict[str, Any]) -> None:
    block = built(cross=True, **options)
    x, context = seeded(3, 6, 8), seeded(3, 7, 8, seed=1)
    expected = block(x, context, mask="causal")
    message = block.self_attention.remember(x[:, :0])
    source = block.cross_attention.remember(context)
    steps = [block(x[:, t : t + 1], source, memory=message) for t in range(6)]
    torch.testing.assert_close(torch.cat(steps, 1), expected)
    assert len(message) == 6


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("cuts", [[4, 1, 1], [1, 3, 2], [6]])
@torch.no_grad()
def test_a_prompt_of_several_steps_and_the_steps_after_it_are_the_whole(
    cuts: list[int], norm: Any
) -> None:
    block = built(norm=norm, rotary=Rotary())
    x = seeded(2, 6, 8)
    message = block.self_attention.remember(x[:, :0])
    steps = [block(part, memory=message, mask="causal") for part in x.split(cuts, 1)]
    torch.testing.assert_close(torch.cat(steps, 1), block(x, mask="causal"))


@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (None, r'of the \d steps in the memory, and without a mask .* pass mask="causal"'),
        (masks.band(1, 0), 'the mask has align="start", which puts them at the first: pass'),
        (masks.causal(align="start") & masks.padding(9), 'the mask has align="start"'),
    ],
)
@torch.no_grad()
def test_steps_with_a_memory_do_not_read_the_future_in_silence(
    start: int, mask: Any, message: str
) -> None:
    block = built()
    x = seeded(2, 5, 8)
    printed_text = block.self_attention.remember(x[:, :start])
    if start or mask is None:
        with pytest.raises(ValueError, match=message):
            block(x[:, start:], memory=printed_text, mask=mask)
        assert len(printed_text) == start  # nothing was appended
    mask = torch.ones(1, 1, dtype=torch.bool)  # one that says that they may read all
    assert block(x[:, start:], memory=printed_text, mask=mask).shape == (2, 5 - start, 8)


def test_looks_are_of_the_attentions_by_name() -> None:
    block = built(cross=True, normalisation="rms", activation="silu", gated=True)
    x, context = seeded(3, 5, 8), seeded(3, 7, 8, seed=1)
    padding = masks.padding([7, 2, 4])
    output, looks = block.read(x, context, mask="causal", context_mask=padding)
    torch.testing.assert_close(output, block(x, context, mask="causal", context_mask=padding))
    assert {name: look.shape for name, look in looks.items()} == {
        "self": (3, 2, 5, 5),
        "cross": (3, 2, 5, 7),
    }
    assert looks["self"].weights().triu(1).eq(0).all()
    assert looks["cross"].weights()[1, ..., 2:].eq(0).all()
    _, alone = built().read(x)
    assert list(alone) == ["self"]


def test_dropout_is_for_training_only() -> None:
    block = built(dropout=0.5)
    x = seeded(1, 6, 8)
    torch.testing.assert_close(block(x), block(x))
    block.train()
    assert not torch.equal(block(x), block(x))


def test_the_parameter_count_is_the_formulas() -> None:
    def count(*arguments: int, **how: Any) -> int:
        return sum(each.numel() for each in TransformerBlock(*arguments, **how).parameters())

    assert count(8, 2) == 4 * 64 + (2 * 8 * 32 + 32 + 8) + 2 * 16
    assert count(8, 2, 12, cross=True) == 8 * 64 + (2 * 8 * 12 + 12 + 8) + 3 * 16
    assert count(8, 2, 12, gated=True, feed_forward_bias=False, normalisation="rms") == (
        4 * 64 + 3 * 8 * 12 + 2 * 8
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "before"}, "norm 'before' is unknown: .* names are post, pre"),
        ({"normalisation": "batch"}, "normalisation 'batch' is unknown"),
        ({"activation": "gelo"}, "activation 'gelo' is unknown: did you mean 'gelu'"),
        ({"dropout": 1.0}, "at least 0 and below 1"),
        ({"key_heads": 3}, "key_heads is 3"),
    ],
)
def test_impossible_blocks_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TransformerBlock(8, 2, **options)


def test_a_context_belongs_to_cross_attention() -> None:
    x = seeded(1, 3, 8)
    with pytest.raises(ValueError, match="has cross-attention: pass a context"):
        built(cross=True)(x)
    with pytest.raises(ValueError, match="built without cross=True"):
        built().read(x, x)


def test_the_translators_layers_are_blocks() -> None:
    assert issubclass(EncoderLayer, regard.TransformerBlock)
    assert issubclass(DecoderLayer, regard.TransformerBlock)
    names = {name.partition(".")[0] for name in TransformerBlock(8, 2, cross=True).state_dict()}
    assert names == {
        *("self_attention", "self_residual", "cross_attention", "cross_residual"),
        *("feed_forward", "feed_forward_residual"),
    }
    assert copy.deepcopy(built()).state_dict().keys() == built().state_dict().keys()
    assert FeedForward(4, 8)(torch.zeros(2, 4)).shape == (2, 4)
