"""Multi-head attention: torch's as the oracle, the formula, and caches that equal recomputation."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.attention import masks, normalisers, scores
from regard.attention.attend import attend
from regard.attention.heads import MultiHeadAttention
from regard.attention.positions import Rotary
from regard.attention.shapes import ShapeError


def seeded(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def built(*args: object, **options: object) -> MultiHeadAttention:
    torch.manual_seed(3)
    return MultiHeadAttention(*args, **options).double()  # type: ignore[arg-type]


def torch_twin(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    """torch's module with the weights of ours."""
    theirs = nn.MultiheadAttention(
        ours.d_query,
        ours.heads,
        bias=ours.query_projection.bias is not None,
        kdim=ours.d_key,
        vdim=ours.d_value,
        batch_first=True,
        dtype=torch.float64,
    )
    projections = [ours.query_projection, ours.key_projection, ours.value_projection]
    with torch.no_grad():
        if theirs.in_proj_weight is not None:
            theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        else:
            weights = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
            for weight, projection in zip(weights, projections, strict=True):
                weight.copy_(projection.weight)
        if theirs.in_proj_bias is not None:
            theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
            theirs.out_proj.bias.copy_(ours.output_projection.bias)
        theirs.out_proj.weight.copy_(ours.output_projection.weight)
    return theirs


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("d_key", "d_value"), [(8, 8), (6, 10)])
def test_agrees_with_torch_in_values_weights_and_gradients(bias, d_key, d_value):
    ours = built(8, 2, d_key=d_key, d_value=d_value, bias=bias)
    if bias:
        for parameter in ours.parameters():
            nn.init.normal_(parameter)
    theirs = torch_twin(ours)
    query, key, value = seeded(3, 4, 8), seeded(3, 5, d_key, seed=1), seeded(3, 5, d_value, seed=2)
    readable = seeded(3, 4, 5, seed=3) > -0.5
    readable[..., 0] = True
    expected, expected_weights = theirs(
        query,
        key,
        value,
        attn_mask=~readable.repeat_interleave(2, 0),
        average_attn_weights=False,
    )
    output, look = ours.read(query, key, value, mask=readable)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(look.weights(), expected_weights)
    torch.testing.assert_close(ours(query, key, value, mask=readable), expected)
    output.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(ours.output_projection.weight.grad, theirs.out_proj.weight.grad)
    theirs_query_gradient = (
        theirs.in_proj_weight.grad[:8]
        if theirs.in_proj_weight is not None
        else theirs.q_proj_weight.grad
    )
    torch.testing.assert_close(ours.query_projection.weight.grad, theirs_query_gradient)


def test_the_comparison_with_torch_can_fail():
    ours = built(8, 2)
    theirs = torch_twin(ours)
    with torch.no_grad():
        ours.key_projection.weight[0, 0] += 1
    x = seeded(1, 3, 8)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(ours(x), theirs(x, x, x)[0])


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_the_parameter_count_is_the_formulas(heads):
    def count(**options: object) -> int:
        return sum(p.numel() for p in MultiHeadAttention(8, heads, **options).parameters())  # type: ignore[arg-type]

    assert count() == 4 * 8 * 8
    assert count(merge="sum") == 2 * 8 * 8 + heads * 8 * 8 + 8 * 8
    assert count(d_key=6, d_value=5, d_head=3, d_head_value=7, d_output=9) == heads * (
        3 * 8 + 3 * 6 + 7 * 5 + 7 * 9
    )
    assert count(bias=True) == 4 * (8 * 8 + 8)


@pytest.mark.parametrize("merge", ["concat", "sum"])
def test_heads_are_merged_as_the_formula_says(merge):
    attention = built(6, 2, d_key=5, d_value=4, d_head=3, d_head_value=7, d_output=9, merge=merge)
    query, key, value = seeded(2, 3, 6), seeded(2, 4, 5, seed=1), seeded(2, 4, 4, seed=2)
    readings = []
    for head in range(2):
        narrow, wide = slice(3 * head, 3 * head + 3), slice(7 * head, 7 * head + 7)
        q = query @ attention.query_projection.weight[narrow].T
        k = key @ attention.key_projection.weight[narrow].T
        v = value @ attention.value_projection.weight[wide].T
        readings.append(torch.softmax(q @ k.mT / math.sqrt(3), -1) @ v)
    merged = torch.cat(readings, -1) if merge == "concat" else sum(readings)
    expected = merged @ attention.output_projection.weight.T
    torch.testing.assert_close(attention(query, key, value), expected)


SCORES = {
    "dot": scores.Dot(),
    "cosine": scores.Cosine(scale=4.0),
    "general": scores.General(4, 4, heads=2).double(),
    "additive": scores.Additive(4, 4, 5, heads=2).double(),
    "capped": scores.SoftCap(scores.ScaledDot(), 2.0),
    "callable": lambda query, key: -torch.cdist(query, key),
}


@pytest.mark.parametrize("name", SCORES)
def test_any_score_and_normaliser_goes_head_by_head(name):
    score = SCORES[name]
    attention = built(8, 2, score=score, normaliser=normalisers.Sparsemax())
    x = seeded(3, 5, 8)
    q, k, v = (
        projection(x).unflatten(-1, (2, 4)).transpose(1, 2)
        for projection in (
            attention.query_projection,
            attention.key_projection,
            attention.value_projection,
        )
    )
    weights = normalisers.Sparsemax()(score(q, k), None)
    expected = attention.output_projection((weights @ v).transpose(1, 2).flatten(-2))
    torch.testing.assert_close(attention(x), expected)
    attention(x).sum().backward()
    for parameter in attention.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


@pytest.mark.parametrize("growing", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_decoding_from_a_memory_equals_recomputing(growing):
    attention = built(8, 2)
    x = seeded(3, 40, 8)
    causal = masks.causal(align="end")
    expected = attention(x, mask=causal)
    with growing():
        memory = attention.remember(x[:, :3])
        steps = [attention(x[:, :3], memory=memory, mask=causal)]
        for start, stop in [(3, 4), (4, 9), *((t, t + 1) for t in range(9, 40))]:
            step = x[:, start:stop]
            assert attention.remember(step, memory=memory) is memory
            steps.append(attention(step, memory=memory, mask=causal))
            assert len(memory) == stop
    torch.testing.assert_close(torch.cat(steps, 1), expected)


def test_gradients_flow_through_a_growing_memory():
    attention = built(8, 2)
    x = seeded(2, 6, 8)
    attention(x, mask=masks.causal(align="end")).square().sum().backward()
    expected = [parameter.grad.clone() for parameter in attention.parameters()]
    attention.zero_grad()
    memory, loss = None, torch.zeros((), dtype=x.dtype)
    for t in range(6):
        memory = attention.remember(x[:, t : t + 1], memory=memory)
        loss = loss + attention(x[:, t : t + 1], memory=memory).square().sum()
    loss.backward()
    for parameter, gradient in zip(attention.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_a_step_between_forward_and_backward_spoils_no_gradient():
    attention = built(8, 2)
    for projection in (attention.key_projection, attention.value_projection):
        projection.requires_grad_(False)
    x = seeded(2, 4, 8)
    memory = attention.remember(x[:, :1])
    for t in (1, 2):
        attention.remember(x[:, t : t + 1], memory=memory)
    output = attention(x[:, 2:3], memory=memory)
    attention.remember(x[:, 3:4], memory=memory)
    output.sum().backward()
    assert attention.query_projection.weight.grad is not None


@torch.no_grad()
def test_selecting_rows_reorders_a_beam():
    attention = built(8, 2)
    x = seeded(3, 5, 8)
    rows = torch.tensor([2, 0, 0, 1])
    memory = attention.remember(x[:, :3])
    attention.remember(x[:, 3:4], memory=memory)
    beam = memory.select(rows)
    attention.remember(x[rows][:, 4:], memory=beam)
    torch.testing.assert_close(
        attention(x[rows][:, 4:], memory=beam),
        attention(x[rows], mask=masks.causal(align="end"))[:, 4:],
    )
    assert len(memory) == 4  # the memory that was selected from is as it was
    torch.testing.assert_close(memory.keys, attention.remember(x[:, :4]).keys)


@torch.no_grad()
def test_growing_copies_a_constant_number_of_rows_on_average():
    attention = built(4, 1)
    memory = attention.remember(torch.zeros(1, 1, 4, dtype=torch.float64))
    rooms = set()
    for _ in range(500):
        attention.remember(torch.zeros(1, 1, 4, dtype=torch.float64), memory=memory)
        rooms.add(memory.keys.data_ptr())
    assert len(memory) == 501
    assert len(rooms) <= 7  # 16, 32, ... 512: addresses may even be used again


@torch.no_grad()
def test_causal_over_a_memory_puts_the_last_query_at_the_last_key():
    attention = built(8, 2)
    x = seeded(3, 7, 8)
    expected = attention(x, mask="causal")
    memory, steps = None, []
    for item in x.split([4, 1, 2], 1):
        memory = attention.remember(item, memory=memory)
        steps.append(attention(item, memory=memory, mask="causal"))
        if item.shape[1] > 1:
            for call in (attention, attention.read):
                with pytest.raises(ValueError, match=r'steps after it: pass mask="causal"'):
                    call(item, memory=memory)
    torch.testing.assert_close(torch.cat(steps, 1), expected)
    output, look = attention.read(x[:, 5:], memory=memory, mask="causal")
    torch.testing.assert_close(output, expected[:, 5:])
    assert look.weights()[..., 0, -1].eq(0).all()
    with pytest.raises(ShapeError, match=r"10 queries and 7 keys"):
        attention(seeded(3, 10, 8), memory=memory, mask="causal")
    second_sequence = seeded(3, 2, 8)  # queries of another sequence read all steps
    assert attention(second_sequence, memory=memory).shape == (3, 2, 8)


@torch.no_grad()
def test_last_steps_read_what_a_mask_says_and_nothing_else_by_chance():
    attention = built(8, 2)
    x = seeded(3, 5, 8)
    memory = attention.remember(x)
    for steps in (x[:, 3:], x[:, 4:]):
        with pytest.raises(ValueError, match='align="start", which puts them at the first'):
            attention(steps, memory=memory, mask=masks.causal(align="start"))
    for steps in (x, x[:, 3:]):
        with pytest.raises(
            ValueError, match=r"all of them: mask=torch\.ones\(1, 1, dtype=torch\.bool"
        ):
            attention(steps, memory=memory)
    everything = torch.ones(1, 1, dtype=torch.bool)
    torch.testing.assert_close(attention(x, memory=memory, mask=everything), attention(x))
    # Others are not its last steps: the first ones, another sequence, another batch, a past one.
    rule = masks.causal(align="start")
    expected = attention(x, mask=rule)
    torch.testing.assert_close(attention(x[:, :3], memory=memory, mask=rule), expected[:, :3])
    for queries in (x.clone(), x[:, ::2], x[:1], x.transpose(0, 1)[:3, :3]):
        assert attention(queries, memory=memory).shape[1:] == queries.shape[1:]
    attention.remember(seeded(3, 1, 8), memory=memory)
    assert attention(x[:, 3:], memory=memory).shape == (3, 2, 8)


@pytest.mark.parametrize("growing", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_shallow_copy_of_a_memory_continues_by_itself(growing):
    attention, x, y = built(8, 2), seeded(3, 6, 8), seeded(3, 6, 8, seed=1)
    with growing():
        memory = attention.remember(x[:, :3])
        attention.remember(x[:, 3:4], memory=memory)  # there is spare room now
        twin = copy.copy(memory)
        attention.remember(y[:, 4:], memory=twin)
        attention.remember(x[:, 4:5], memory=memory)
        assert (len(memory), len(twin)) == (5, 6)
        joint = torch.cat([x[:, :4], y[:, 4:]], 1)
        for memory_copy, expected in ((memory, x[:, :5]), (twin, joint)):
            torch.testing.assert_close(memory_copy.keys, attention.remember(expected).keys)
            torch.testing.assert_close(memory_copy.values, attention.remember(expected).values)
        assert repr(twin) == "HeadMemory(6 steps: keys [3, 2, 6, 4], values [3, 2, 6, 4])"


@pytest.mark.parametrize("growing", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda memory: pickle.loads(pickle.dumps(memory))]
)
def test_a_memory_is_copied_without_its_history_and_spare_room(growing, copied):
    attention, x = built(8, 2), seeded(3, 6, 8)
    with growing():
        memory = attention.remember(x[:, :3])
        attention.remember(x[:, 3:4], memory=memory)
        twin = copied(memory)
        assert not twin.keys.requires_grad
        assert twin.keys.untyped_storage().nbytes() == 3 * 2 * 4 * 4 * 8
        attention.remember(x[:, 4:], memory=twin)
        assert (len(memory), len(twin)) == (4, 6)
        torch.testing.assert_close(twin.keys, attention.remember(x).keys)
        torch.testing.assert_close(memory.values, attention.remember(x[:, :4]).values)


def test_self_attention_has_the_keys_default_and_values_default_to_keys():
    attention = built(8, 2)
    x, y = seeded(2, 3, 8), seeded(2, 4, 8, seed=1)
    torch.testing.assert_close(attention(x), attention(x, x, x))
    torch.testing.assert_close(attention(x, y), attention(x, y, y))
    torch.testing.assert_close(attention(x, y), attention(x, memory=attention.remember(y)))
    torch.testing.assert_close(attention(x[0]), attention(x)[0])  # no batch axis at all
    torch.testing.assert_close(attention(x, y[:1]), attention(x, y[:1].expand(2, -1, -1)))


def test_masks_and_biases_of_every_form_reach_every_head():
    attention = built(8, 2)
    x = seeded(3, 4, 8)
    lengths = torch.tensor([4, 2, 1])
    padding = (torch.arange(4) < lengths[:, None])[:, None].expand(3, 4, 4)
    triangle = torch.ones(4, 4, dtype=torch.bool).tril()
    expected = attention(x, mask=(padding & triangle)[:, None].expand(3, 2, 4, 4))
    for mask in (
        padding & triangle,
        masks.padding(lengths) & masks.causal(align="start"),
        masks.causal(align="start") & padding,
        padding & masks.causal(align="start"),
    ):
        torch.testing.assert_close(attention(x, mask=mask), expected)
    bias = torch.zeros(3, 4, 4, dtype=x.dtype).masked_fill(~(padding & triangle), -math.inf)
    torch.testing.assert_close(attention(x, bias=bias), expected)
    per_head = torch.stack([triangle, triangle.T])[None]
    _, look = attention.read(x, mask=per_head)
    assert look.shape == (3, 2, 4, 4)
    assert (look.weights() > 0).equal(per_head.expand(3, 2, 4, 4))


def test_a_row_with_nothing_to_read_gives_zero_and_no_gradient():
    attention = built(8, 2)
    x = seeded(2, 3, 8).requires_grad_()
    mask = torch.ones(2, 3, 3, dtype=torch.bool)
    mask[0] = False
    output, look = attention.read(x, mask=mask)
    assert output[0].eq(0).all()
    assert look.weights()[0].eq(0).all()
    output.square().sum().backward()
    assert x.grad is not None
    assert x.grad[0].eq(0).all()
    assert x.grad[1].ne(0).any()
    assert all(p.grad.isfinite().all() for p in attention.parameters())
    nothing = attention(x, x[:, :0])
    assert nothing.shape == (2, 3, 8)
    assert nothing.eq(0).all()


def test_dropout_is_for_training_only():
    attention = built(8, 2, dropout=0.5)
    x = seeded(1, 6, 8)
    assert not torch.equal(attention(x), attention(x))
    attention.eval()
    assert torch.equal(attention(x), attention(x))


def test_bfloat16_autocast_trains_and_decodes():
    torch.manual_seed(0)
    attention = MultiHeadAttention(16, 2)
    x = seeded(2, 5, 16, dtype=torch.float32)
    exact = attention(x, mask=masks.causal(align="end"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = attention(x, mask=masks.causal(align="end"))
        with torch.no_grad():
            memory = attention.remember(x[:, :4])
            attention.remember(x[:, 4:], memory=memory)
            step = attention(x[:, 4:], memory=memory)
    assert output.dtype == memory.keys.dtype == torch.bfloat16
    torch.testing.assert_close(output.float(), exact, atol=0.05, rtol=0.05)
    torch.testing.assert_close(step.float(), exact[:, 4:], atol=0.05, rtol=0.05)
    output.float().sum().backward()
    assert attention.key_projection.weight.grad is not None


def test_one_call_of_attend_does_the_reading(monkeypatch):
    calls = []

    def counting(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        calls.append(key)
        return attend(query, key, value, **options)

    monkeypatch.setattr("regard.attention.heads.attend", counting)
    x = seeded(2, 3, 8)
    attention = built(8, 2)
    attention(x)
    assert len(calls) == 1
    key = calls[0]
    assert key.shape == (2, 2, 3, 4)
    assert key._base is not None  # split into heads without a copy


def test_state_names_are_the_fields_words():
    assert set(MultiHeadAttention(4, 1, bias=True).state_dict()) == {
        f"{name}_projection.{part}"
        for name in ("query", "key", "value", "output")
        for part in ("weight", "bias")
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, "3 heads do not divide the query width 8"),
        ({"heads": 0}, "heads is 0"),
        ({"heads": 2, "d_value": 0}, "d_value is 0"),
        ({"heads": 2, "merge": "mean"}, "merge is 'mean'"),
        ({"heads": 2, "dropout": 1.0}, "dropout is 1.0"),
        ({"heads": 2, "key_heads": 3}, "key_heads is 3: pass a divisor of 2, the heads"),
        ({"heads": 2, "key_heads": 0}, "key_heads is 0"),
        (
            {"heads": 2, "qk_norm": "batch"},
            "normalisation 'batch' is unknown: the names are layer, rms",
        ),
        ({"heads": 2, "score": "aditive"}, "did you mean 'additive'"),
        ({"heads": 2, "normaliser": "softmaks"}, "did you mean 'softmax'"),
    ],
)
def test_impossible_configurations_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(8, **options)


def test_shapes_that_do_not_fit_are_refused_in_words():
    attention = built(8, 2)
    x = seeded(2, 3, 8)
    memory = attention.remember(x)
    with pytest.raises(
        ShapeError, match=r"query has shape \(2, 3, 7\): pass \[\.\.\., length, 8\]"
    ):
        attention(seeded(2, 3, 7))
    with pytest.raises(ShapeError, match=r"key has shape \(8,\)"):
        attention(x, seeded(8))
    with pytest.raises(ValueError, match="a memory and a key"):
        attention(x, x, memory=memory)
    with pytest.raises(ShapeError, match=r"new keys have shape \(1, 2, 1, 4\)"):
        attention.remember(x[:1, :1], memory=memory)
    with pytest.raises(ShapeError, match="no batch axis"):
        attention.remember(x[0]).select(torch.tensor([0]))
    assert len(memory) == 3


def naive(attention: MultiHeadAttention, query: Tensor, key: Tensor, start: int = 0) -> Tensor:
    """Head after head: projected, normalised, turned and read, with keys of its group."""

    def normalised(norm: nn.Module | None, vectors: Tensor) -> Tensor:
        return vectors if norm is None else norm(vectors)

    d, readings = attention.d_head, []
    for head in range(attention.heads):
        columns, of = slice(d * head, d * head + d), head // attention.group
        shared = slice(d * of, d * of + d)
        q = query @ attention.query_projection.weight[columns].T
        k = key @ attention.key_projection.weight[shared].T
        v = key @ attention.value_projection.weight[shared].T
        q, k = normalised(attention.query_norm, q), normalised(attention.key_norm, k)
        if attention.rotary is not None:
            q, k = attention.rotary(q, start), attention.rotary(k)
        readings.append(torch.softmax(q @ k.mT / math.sqrt(d), -1) @ v)
    return torch.cat(readings, -1) @ attention.output_projection.weight.T


@pytest.mark.parametrize("rotary", [None, Rotary()], ids=["still", "rotary"])
@pytest.mark.parametrize("qk_norm", [None, "layer", "rms"])
@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_grouped_heads_and_norms_are_the_naive_ones(key_heads, qk_norm, rotary):
    attention = built(16, 4, key_heads=key_heads, qk_norm=qk_norm, rotary=rotary)
    if qk_norm:
        nn.init.normal_(attention.query_norm.weight)
        nn.init.normal_(attention.key_norm.weight)
    query, key = seeded(3, 5, 16), seeded(3, 7, 16, seed=1)
    expected = naive(attention, query, key)
    torch.testing.assert_close(attention(query, key), expected)
    reading, look = attention.read(query, key)
    torch.testing.assert_close(reading, expected)
    assert look.shape == (3, 4, 5, 7)
    torch.testing.assert_close(look[1, 3].weights(), look.weights()[1, 3])
    torch.testing.assert_close(attention(query, key[:1]), naive(attention, query, key[:1]))
    memory = attention.remember(key[:, :3])
    attention.remember(key[:, 3:], memory=memory)
    assert memory.keys.shape == (3, key_heads, 7, 4)
    torch.testing.assert_close(attention(query, memory=memory, start=0), expected)
    step = attention(query[:, -1:], memory=memory)
    torch.testing.assert_close(step, naive(attention, query[:, -1:], key, start=6))
    attention(query, key).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in attention.parameters())


def test_the_naive_heads_can_disagree():
    attention = built(16, 4, key_heads=2)
    query = seeded(3, 5, 16)
    second_module = built(16, 4, key_heads=2)
    with torch.no_grad():
        second_module.key_projection.weight[0, 0] += 1
    with pytest.raises(AssertionError):
        torch.testing.assert_close(attention(query), naive(second_module, query, query))


def test_grouped_heads_have_the_parameters_of_the_formula():
    def count(**options: object) -> int:
        return sum(p.numel() for p in MultiHeadAttention(16, 4, **options).parameters())  # type: ignore[arg-type]

    assert count(key_heads=4) == 4 * 16 * 16
    assert count(key_heads=2) == 2 * 16 * 16 + 2 * 16 * 8
    assert count(key_heads=1) == 2 * 16 * 16 + 2 * 16 * 4
    assert count(qk_norm="rms") == 4 * 16 * 16 + 2 * 4
    assert count(qk_norm="layer") == 4 * 16 * 16 + 4 * 4
    assert count(score="general") == 4 * 16 * 16 + 4 * 4 * 4
    assert count(score="additive", key_heads=2) == 2 * 16 * 16 + 2 * 16 * 8 + 4 * (4 * 9)


def test_masks_and_biases_of_every_form_reach_grouped_heads():
    attention = built(16, 4, key_heads=2)
    x = seeded(3, 5, 16)
    per_head = seeded(3, 4, 5, 5, seed=5) > -0.5
    _, look = attention.read(x, mask=per_head)
    assert (look.weights() > 0).equal(per_head)
    bias = torch.zeros(3, 4, 5, 5, dtype=x.dtype).masked_fill(~per_head, -math.inf)
    torch.testing.assert_close(attention(x, bias=bias), attention(x, mask=per_head))
    shared = per_head[:, 0]
    _, look = attention.read(x, mask=masks.padding([5, 2, 0]) & shared)
    allowed = shared & masks.padding([5, 2, 0]).dense((3,), 5, 5)
    assert (look.weights() > 0).equal(allowed[:, None].expand(3, 4, 5, 5))
    with pytest.raises(ShapeError, match="mask has 2 heads, this attention 4"):
        attention(x, mask=per_head[:, :2])


@pytest.mark.parametrize("name", ["mask", "bias"])
def test_planes_of_heads_are_not_taken_for_those_of_a_batch(name):
    """Broadcast, they would answer with a batch of four entries where one was given."""
    attention, query = MultiHeadAttention(8, 4), torch.randn(1, 3, 8)
    planes = torch.zeros(4, 3, 3) if name == "bias" else torch.ones(4, 3, 3, dtype=torch.bool)
    with pytest.raises(ShapeError, match=rf"{name} has shape \[4, 3, 3\].*pass \[1, heads,"):
        attention(query, **{name: planes})
    assert attention(query, **{name: planes[None]}).shape == (1, 3, 8)
    # One query for a batch of keys: the planes are those of the batch.
    assert attention(query, torch.randn(4, 3, 8), **{name: planes}).shape == (4, 3, 8)


@pytest.mark.parametrize("key_heads", [4, 2, 1])
@pytest.mark.parametrize("name", ["dot", "scaled_dot", "cosine", "general", "additive", "concat"])
def test_scores_and_normalisers_by_name(name, key_heads):
    attention = built(16, 4, score=name, normaliser="sparsemax", key_heads=key_heads)
    x = seeded(2, 5, 16)
    reading, look = attention.read(x)
    torch.testing.assert_close(attention(x), reading)
    assert look.shape == (2, 4, 5, 5)
    assert (look.weights() == 0).any()
    values = attention.value_projection(x).unflatten(-1, (key_heads, 4)).transpose(1, 2)
    values = values.repeat_interleave(4 // key_heads, 1)
    merged = (look.weights() @ values).transpose(1, 2).flatten(-2)
    torch.testing.assert_close(attention.output_projection(merged), reading)
    assert attention.normaliser == normalisers.Sparsemax()
    owned = [p for n, p in attention.named_parameters() if n.startswith("score.")]
    assert bool(owned) == (name in ("general", "additive", "concat"))
    for parameter in owned:  # one set for each head
        assert math.prod(parameter.shape[: 1 if key_heads == 4 else 2]) == 4


def test_the_causal_mask_by_name():
    attention, x = built(8, 2), seeded(3, 5, 8)
    expected = attention(x, mask=masks.causal(align="start"))
    torch.testing.assert_close(attention(x, mask="causal"), expected)
    with pytest.raises(ShapeError, match="5 queries and 4 keys"):
        attention(x, x[:, :4], mask="causal")


def test_padding_of_two_axes_is_never_taken_for_rows_of_queries():
    attention = built(8, 2)
    square, longer = seeded(4, 4, 8), seeded(4, 6, 8)
    readable = torch.arange(4) < torch.tensor([4, 2, 1, 3])[:, None]
    expected = attention(square, mask=masks.padding([4, 2, 1, 3]))
    message = (
        r"mask has shape \[4, 4\], a row for each of the 4 batch entries or for each of the 4 queries:"
        r" pass regard\.masks\.padding\(lengths\) or shape \[4, 1, 4\] for the batch, or \[1, 4, 4\]"
    )
    for mask in (readable, masks.band(1, 1) & readable):
        with pytest.raises(ShapeError, match=message):
            attention(square, mask=mask)
    with pytest.raises(
        ShapeError, match=r"bias has shape \[4, 4\], .*: pass shape \[4, 1, 4\] for"
    ):
        attention.read(square, bias=readable.double())
    with pytest.raises(
        ShapeError, match=r"each of the 4 batch entries: pass .* \[4, 1, 6\] for the"
    ):
        attention(longer, mask=torch.ones(4, 6, dtype=torch.bool))
    torch.testing.assert_close(attention(square, mask=readable[:, None]), expected)
    rows = attention(square, mask=readable[None])
    torch.testing.assert_close(rows[:3], attention(square[:3], mask=readable))
    torch.testing.assert_close(attention(square[0], mask=readable), rows[0])
    one_attention = attention(square[:1, :1], square[:1], mask=readable[:1])  # either way the same
    assert one_attention.shape == (1, 1, 8)


@pytest.mark.parametrize("argument", ["query", "key", "value"])
def test_a_sequence_that_is_no_tensor_or_of_another_precision(argument: str) -> None:
    heads, x = MultiHeadAttention(8, heads=2), torch.zeros(1, 3, 8)
    for dtype in (torch.float64, torch.float16, torch.int64):
        match = rf"{argument} holds {str(dtype)[6:]}, this attention float32: pass {argument}.to\("
        with pytest.raises(TypeError, match=match):
            heads(**{"query": x, "key": x, "value": x, argument: x.to(dtype)})
    for sequence in (x.numpy(), x.tolist()):
        with pytest.raises(
            TypeError, match=rf"{argument} is of type (ndarray|list): pass a tensor"
        ):
            heads(**{"query": x, "key": x, "value": x, argument: sequence})


def test_autocast_converts_precisions() -> None:
    heads, x = MultiHeadAttention(8, heads=2), torch.zeros(1, 3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        assert heads(x.bfloat16()).dtype == torch.bfloat16


def test_a_memory_that_is_a_tensor() -> None:
    heads, x = MultiHeadAttention(8, heads=2), torch.zeros(1, 3, 8)
    for call in (heads, heads.read, heads.remember):
        with pytest.raises(TypeError, match="memory is of type Tensor: pass a HeadMemory"):
            call(x, memory=x)
