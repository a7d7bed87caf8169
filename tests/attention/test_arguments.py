"""Arguments of wrong types, and those of torch, are answered in the caller's words."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch.nn import functional as F

import regard
from regard.attention.blocks import FeedForward, Residual
from regard.attention.torch_names import BLOCK, THROUGH

WRONG = [True, "8", 2.5, None, torch.ones(2), [4], object(), F.gelu, torch.nn.GELU]
MODULES = {
    regard.MultiHeadAttention: {"d_query": 16, "heads": 4},
    regard.TransformerBlock: {"width": 16, "heads": 4},
    FeedForward: {"width": 4, "inner": 8},
    Residual: {"width": 4},
    regard.scores.General: {"d_query": 4, "d_key": 4},
    regard.scores.Additive: {"d_query": 4, "d_key": 4, "d_hidden": 4},
    regard.scores.SoftCap: {"score": "dot", "cap": 2.0},
    regard.scores.ScaledDot: {},
    regard.scores.Cosine: {},
    regard.normalisers.Softmax: {},
    regard.normalisers.Entmax: {},
    regard.positions.Rotary: {},
    regard.positions.Alibi: {"heads": 4},
    regard.positions.RelativeBias: {"heads": 4},
    regard.positions.Learned: {"max_length": 4, "width": 4},
}
FUNCTIONS = {"score", "normaliser", "activation"}  # which take functions of the caller
CASES = [(module, name) for module in MODULES for name in inspect.signature(module).parameters]


@pytest.mark.parametrize(
    ("module", "name"), CASES, ids=lambda case: getattr(case, "__name__", case)
)
def test_a_wrong_type_is_named_with_its_argument(module, name):
    parameter = inspect.signature(module).parameters[name]
    annotation = str(parameter.annotation)
    for wrong in WRONG:
        fits = (
            (wrong is None and ("None" in annotation or "Optional" in annotation))
            or (wrong is True and "bool" in annotation)
            or (isinstance(wrong, float) and "float" in annotation and name != "dropout")
            or (wrong is F.gelu and name in FUNCTIONS)
            or (isinstance(wrong, list) and "Sequence" in annotation)
        )
        arguments = {**MODULES[module], name: wrong}
        if fits:
            module(**arguments)
            continue
        known_text = "normalisation" if name == "qk_norm" else name
        with pytest.raises((TypeError, ValueError), match=f"^{known_text}"):
            module(**arguments)


@pytest.mark.unannotated
def test_numbers_of_numpy_and_torch_are_numbers():
    numpy = pytest.importorskip("numpy")
    attention = regard.MultiHeadAttention(
        numpy.int64(16), torch.tensor(4), dropout=numpy.float32(0.5), bias=numpy.bool_(True)
    )
    assert (type(attention.d_query), attention.heads, attention.dropout) == (int, 4, 0.5)
    assert attention.query_projection.bias is not None


def test_an_activation_can_be_a_function():
    torch.manual_seed(0)
    block = regard.TransformerBlock(16, 4, activation=F.gelu)
    named = regard.TransformerBlock(16, 4, activation="gelu")
    named.load_state_dict(block.state_dict())
    x = torch.randn(2, 3, 16)
    assert torch.equal(block(x), named(x))


X = torch.zeros(1, 3, 16)
ATTENTION = regard.MultiHeadAttention(16, 4)
COUNTERPARTS = {
    "embed_dim": (lambda: regard.MultiHeadAttention(embed_dim=16, num_heads=4), "pass d_query"),
    "num_heads": (lambda: regard.MultiHeadAttention(16, num_heads=4), "pass heads"),
    "batch_first": (lambda: regard.MultiHeadAttention(16, 4, batch_first=True), "always first"),
    "key_padding_mask": (lambda: ATTENTION(X, X, X, key_padding_mask=None), "masks.padding"),
    "attn_mask": (lambda: ATTENTION.read(X, attn_mask=None), "True = may be read"),
    "need_weights": (lambda: ATTENTION(X, X, X, need_weights=False), r"call read\(\)"),
    "d_model": (lambda: regard.TransformerBlock(d_model=16, nhead=4), "pass width"),
    "nhead": (lambda: regard.TransformerBlock(16, nhead=4), "pass heads"),
    "src_mask": (lambda: regard.TransformerBlock(16, 4)(X, src_mask=None), "pass mask"),
    "dropout_p": (lambda: regard.attend(X, X, X, dropout_p=0.0), "pass dropout"),
    "is_causal": (lambda: regard.look(X, X, is_causal=True), "causal"),
}


@pytest.mark.parametrize("name", COUNTERPARTS)
def test_an_argument_of_torch_is_answered_with_ours(name):
    call, answer = COUNTERPARTS[name]
    with pytest.raises(TypeError, match=f"has no argument {name}, which torch has: .*{answer}"):
        call()


OTHERS = {
    "num_kv_heads": (lambda: regard.MultiHeadAttention(16, 4, num_kv_heads=2), "pass key_heads$"),
    "hidden_size": (lambda: regard.TransformerBlock(hidden_size=16, heads=4), "pass width$"),
    "attention_mask": (lambda: ATTENTION(X, attention_mask=X), r"masks\.padding\(attention_mask"),
    "casual": (lambda: ATTENTION(X, casual=True), 'pass mask="causal"$'),
    "head": (lambda: regard.MultiHeadAttention(16, head=4), r"did you mean heads\? The arg"),
    "biass": (lambda: regard.attend(X, X, X, biass=X), r"did you mean bias\?"),
    "widht": (lambda: regard.cost("multi-head", widht=8), r"did you mean width\?"),
    "layer": (lambda: regard.watch(ATTENTION, layer=1), r"did you mean layers\?"),
    "encodr": (lambda: regard.Memory(encodr=None), r"did you mean encoder\?"),
    "xyz": (lambda: ATTENTION.read(X, xyz=1), "xyz: The arguments are query, key, value, mask, "),
}


@pytest.mark.parametrize("name", OTHERS)
def test_an_argument_of_another_library_or_a_misspelt_one_is_answered_with_ours(name):
    call, answer = OTHERS[name]
    with pytest.raises(TypeError, match=answer) as refused:
        call()
    assert f"has no argument {name}: " in str(refused.value)


@pytest.mark.parametrize(
    ("theirs", "method", "ours"),
    [
        (torch.nn.TransformerEncoderLayer, "__init__", BLOCK),
        (torch.nn.TransformerEncoderLayer, "forward", THROUGH),
        (torch.nn.TransformerDecoderLayer, "forward", THROUGH),
    ],
)
def test_the_answers_are_to_arguments_that_torch_has(theirs, method, ours):
    """Each mask and each size of torch's layers has an answer, or is an argument of ours too."""
    names = set(inspect.signature(getattr(theirs, method)).parameters)
    known_names = {
        "self",
        "dropout",
        "activation",
        "bias",
        "memory",
        "device",
        "dtype",
        "batch_first",
    }
    assert names - set(ours) - known_names <= {"layer_norm_eps", "memory_is_causal"}


def test_renamed_arguments_of_a_block_work_with_a_warning():
    with pytest.warns(DeprecationWarning, match="head_width .* is called d_head now") as warned:
        block = regard.TransformerBlock(16, 4, head_width=8, attention_bias=True)
    assert len(warned) == 2
    assert warned[0].filename == __file__
    assert block.self_attention.d_head == 8
    assert block.self_attention.query_projection.bias is not None
    with pytest.raises(TypeError, match="got head_width and d_head"), pytest.warns():
        regard.TransformerBlock(16, 4, head_width=8, d_head=8)


def test_the_complement_of_a_mask_allows_the_other_keys():
    rule, batch = regard.masks.causal(align="start"), regard.masks.padding([3, 1])
    for mask in (rule, batch, rule & batch, ~rule | batch):
        assert torch.equal((~mask).dense((2,), 3, 3), ~mask.dense((2,), 3, 3))
        assert torch.equal((~~mask).dense((2,), 3, 3), mask.dense((2,), 3, 3))
    x = torch.randn(2, 3, 16)
    later = torch.ones(3, 3, dtype=torch.bool).triu(1)
    torch.testing.assert_close(ATTENTION(x, mask=~rule), ATTENTION(x, mask=later))
    plane = torch.rand(2, 3, 3) > 0.5
    complement = ~(regard.masks.causal(align="start") & plane)
    dense = ~(later.logical_not() & plane)
    torch.testing.assert_close(ATTENTION(x, mask=complement), ATTENTION(x, mask=dense))
