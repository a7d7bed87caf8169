"""What is kept, what it is called, what is said of the rest, and that nothing stays behind."""

from __future__ import annotations

import contextvars
import sys
import threading
import warnings
from types import ModuleType

import pytest
import torch
from tests.watching.cases import CLOSE
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as hooks

import regard
from regard.attention import heads as own_heads
from regard.watching.interception import WRAPPERS
from regard.watching.paths import short


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x, fail=False):
        query, key, value = self.qkv(x).unflatten(-1, (2, 12)).transpose(1, 2).chunk(3, -1)
        reading = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        if fail:
            raise LookupError("on purpose")
        return x + reading.transpose(1, 2).flatten(-2)


class Stack(nn.Module):
    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(depth))

    def forward(self, x, fail=False):
        for layer in self.layers:
            x = layer(x, fail)
        return x


@pytest.fixture
def model() -> Stack:
    torch.manual_seed(0)
    return Stack()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def nothing_stays_behind():
    from transformers import AttentionInterface

    def state():
        patched_functions = [
            F.scaled_dot_product_attention,
            F.multi_head_attention_forward,
            torch.ops,
        ]
        patched_functions += [
            torch._native_multi_head_attention,
            torch._transformer_encoder_layer_fwd,
        ]
        patched_functions += [torch.softmax]
        patched_functions += [regard.attend, regard.read, own_heads.attend]
        patched_functions += [AttentionInterface.get_interface, AttentionInterface.__getitem__]
        counts = [len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks)]
        patched_classes = "__getitem__" in vars(AttentionInterface), "softmax" in vars(torch.Tensor)
        return [*map(id, patched_functions), *counts, *patched_classes]

    state_before = state()
    yield
    assert state() == state_before


def test_paths_become_names_of_side_number_and_kind():
    assert short("model.decoder.layers.3.encoder_attn", "cross") == "decoder.3.cross"
    assert short("bert.encoder.layer.0.attention.self", "self") == "encoder.0.self"
    assert short("transformer.h.11.attn", "self") == "layer.11.self"
    assert short("pool.attention", "cross") == "pool.attention.cross"
    assert short("", "self") == "self"
    assert short("encoder.block.2.layer.0.SelfAttention", "self") == "encoder.2.self"
    assert short("encoder.layers.0.blocks.1.attention", "self") == "encoder.0.1.self"
    assert short("decoder.bert.encoder.layer.1.crossattention.self", "cross") == "decoder.1.cross"
    assert short("_functional.attention", "self") == "attention.self"


def test_calls_are_found_by_name_path_and_step(model, x):
    with regard.watch(model) as attentions:
        model(x)
        model(x[:, :4])
    assert list(attentions) == ["layer.0.self", "layer.1.self", "layer.2.self"]
    assert attentions["layer.1.self"] is attentions["layers.1"] is attentions["layer.1.causal", -1]
    assert [step.shape for step in attentions.steps("layers.1")] == [(2, 2, 6, 6), (2, 2, 4, 4)]
    assert attentions["layers.1", 0].shape == (2, 2, 6, 6)
    assert "layers.2" in attentions
    assert "layers.3" not in attentions
    assert "layer.2.self" in repr(attentions)
    with pytest.raises(KeyError, match=r"there are 3, such as \['layer"):
        attentions["layer.9.self"]
    with pytest.raises(KeyError, match="there is no number 2"):
        attentions["layers.1", 2]


@pytest.mark.parametrize("layers", [1, [1], "layers.1", "layer.1.*", ["layer.1.causal"], "*.1"])
def test_layers_are_chosen_by_number_name_or_path(model, x, layers):
    with regard.watch(model, layers=layers) as attentions:
        model(x)
    assert list(attentions) == ["layer.1.self"]
    assert attentions.unseen == {}


def test_a_sample_is_that_part_of_the_whole(model, x):
    with regard.watch(model) as attentions:
        model(x)
    full_weights = attentions["layers.2"].weights().detach()
    for options, expected in (
        ({"heads": [1]}, full_weights[:, 1:]),
        ({"rows": slice(2, 5)}, full_weights[:, :, 2:5]),
        ({"rows": [5, 0, 99]}, full_weights[:, :, [5, 0]]),
        ({"device": "cpu", "copy": True}, full_weights),
    ):
        with regard.watch(model, **options) as attentions:
            model(x)
        torch.testing.assert_close(attentions["layers.2"].weights(), expected, **CLOSE)
    with regard.watch(model, dtype=torch.float16) as attentions:
        model(x)
    assert attentions.parts("layers.2").query.dtype == torch.float16
    torch.testing.assert_close(attentions["layers.2"].weights(), full_weights, atol=2e-3, rtol=0)


def test_a_budget_of_memory_is_kept_and_told(model, x):
    layer_bytes = 2 * 6 * 24 * 4  # the packed projections of a layer
    with (
        pytest.warns(RuntimeWarning, match="used up"),
        regard.watch(model, memory=2 * layer_bytes) as attentions,
    ):
        model(x)
    assert list(attentions) == ["layer.0.self", "layer.1.self"]
    assert attentions.nbytes == 2 * layer_bytes
    assert "1,1" in attentions.unseen["layers.2"] or "bytes" in attentions.unseen["layers.2"]
    for memory in ("lots", "1.2.3MB", -1):
        with pytest.raises(ValueError, match='"500MB"'):
            regard.watch(model, memory=memory)


def test_a_cache_that_another_replaced_counts_no_more():
    class Cached(nn.Module):
        def forward(self, query, keys):
            return F.scaled_dot_product_attention(query, keys, keys)

    steps, width = 60, 16
    whole_steps = steps * width * 4
    model, keys = Cached(), torch.randn(1, 1, 1, width)
    with torch.no_grad(), regard.watch(model, memory=4 * whole_steps) as attentions:
        for _ in range(steps):
            model(torch.randn(1, 1, 1, width), keys)
            keys = torch.cat([keys, torch.randn(1, 1, 1, width)], -2)  # 30 whole ones in all
    assert attentions.unseen == {}
    assert attentions["self"].shape == (1, 1, steps, steps)
    assert attentions.nbytes <= 4 * whole_steps


def test_one_number_is_as_good_as_several(model, x):
    with regard.watch(model) as attentions:
        model(x)
    for item in ({"heads": 1}, {"heads": torch.tensor([1])}, {"rows": 2}, {"layers": 1}):
        with regard.watch(model, **item) as selected:
            model(x)
        assert list(selected) == (["layer.1.self"] if "layers" in item else list(attentions))
        expected = attentions["layers.1"].weights()
        expected = expected[:, 1:] if "heads" in item else expected
        expected = expected[:, :, 2:3] if "rows" in item else expected
        torch.testing.assert_close(selected["layers.1"].weights(), expected, **CLOSE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": "all"}, r"heads is 'all': pass a number or several, such as \[0, 3\]"),
        ({"heads": [0.5]}, r"heads is \[0.5\]: pass a number"),
        ({"rows": 1.5}, r"rows is 1.5: pass a number"),
        ({"layers": 2.5}, "layers is 2.5: pass numbers of layers, or patterns such as"),
        ({"layers": [0, None]}, r"layers is \[0, None\]: pass numbers of layers"),
    ],
)
def test_what_is_no_number_is_refused_in_words(model, options, message):
    with pytest.raises(TypeError, match=message):
        regard.watch(model, **options)


def test_watches_nest_and_each_sees_its_own_model(model, x):
    second_stack = Stack(1)
    with regard.watch(model) as outer:
        model(x)
        with regard.watch(model, layers=0) as inner, regard.watch(second_stack) as third:
            model(x)
            second_stack(x)
        model(x)
    assert [len(each.steps("layers.0")) for each in (outer, inner, third)] == [3, 1, 1]
    assert len(inner) == len(third) == 1


def test_a_part_may_be_called_alone_and_an_outsider_is_not_seen(model, x):
    with regard.watch(model) as attentions:
        model.layers[1](x)
        Block()(x)
        F.scaled_dot_product_attention(x, x, x)
    assert list(attentions) == ["layer.1.self"]
    assert len(attentions.steps("layers.1")) == 1


def test_an_exception_leaves_nothing_behind_and_what_was_seen(model, x):
    with pytest.raises(LookupError), regard.watch(model) as attentions:
        model(x, fail=True)
    assert list(attentions) == ["layer.0.self"]
    with regard.watch(model) as attentions:
        with pytest.raises(LookupError):
            model(x, fail=True)
        model.layers[2](x)
    assert list(attentions) == ["layer.0.self", "layer.2.self"]


class Holding(nn.Module):
    """A module that holds the function itself."""

    def __init__(self) -> None:
        super().__init__()
        self.function = F.scaled_dot_product_attention

    def forward(self, x):
        return self.function(x, x, x)


def test_watches_of_several_models_leave_the_functions_that_these_hold(x):
    original, (outer, inner) = F.scaled_dot_product_attention, (Holding(), Holding())
    with regard.watch(outer) as outer_attentions:
        with regard.watch(inner) as attentions, regard.watch(inner):
            inner(x)
        outer(x)
    assert len(outer_attentions["self"].shape) == len(attentions["self"].shape) == 3
    assert outer.function is inner.function is F.scaled_dot_product_attention is original


def test_modules_that_took_a_wrapper_while_a_watch_was_open_have_the_function_again(
    model, x, monkeypatch
):
    original = F.scaled_dot_product_attention
    early, late = ModuleType("early"), ModuleType("late")
    early.attention = early.same = original
    monkeypatch.setitem(sys.modules, "early", early)
    with regard.watch(model) as attentions:
        model(x)
        wrapper = F.scaled_dot_product_attention
        early.more = late.attention = wrapper
        monkeypatch.setitem(sys.modules, "late", late)
        assert early.attention is early.same is wrapper is not original
    assert {*map(id, (early.attention, early.same, early.more, late.attention))} == {id(original)}
    assert len(attentions) == 3


def test_a_module_imported_between_two_watches_has_the_function_again(model, x, monkeypatch):
    original = F.scaled_dot_product_attention
    module, library = ModuleType("between"), ModuleType("library")
    library.attention = lambda q, k, v: v
    monkeypatch.setitem(WRAPPERS, "library.attention", WRAPPERS["torch.softmax"])
    with regard.watch(model) as attentions:
        model(x)
        module.attention = F.scaled_dot_product_attention
        monkeypatch.setitem(sys.modules, "between", module)
        monkeypatch.setitem(sys.modules, "library", library)  # whose function is wrapped next
        with regard.watch(model):
            model(x)
    assert module.attention is original
    assert len(attentions) == 3


def test_a_wrapper_that_is_left_in_the_place_of_something_else_computes_the_same(model, x):
    holder = ModuleType("holder")
    with regard.watch(model):
        model(x)
        holder.attention = F.scaled_dot_product_attention
    expected = F.scaled_dot_product_attention(x, x, x)
    assert torch.equal(holder.attention(x, x, x), expected)
    with regard.watch(model) as attentions:
        model(x)
        assert torch.equal(holder.attention(x, x, x), expected)
    assert len(attentions) == 3


def test_a_watch_that_ends_in_another_context_hears_no_more(model, x):
    def watching():
        with regard.watch(model) as attentions:
            yield attentions

    waiting = watching()
    attentions = next(waiting)
    model(x)
    contextvars.copy_context().run(waiting.close)
    with pytest.warns(RuntimeWarning, match="no attention"), regard.watch(Stack(1)):
        model(x)
    assert [len(attentions.steps(name)) for name in attentions] == [1, 1, 1]


def test_whatever_goes_wrong_in_the_telling_breaks_nothing(model, x, monkeypatch):
    def failing(*_):
        raise AttributeError("on purpose")

    monkeypatch.setattr(regard.watching.records.AttentionRecord, "keep", failing)
    expected = model(x)
    with pytest.warns(RuntimeWarning, match="on purpose") as caught_warnings, regard.watch(model):
        assert torch.equal(model(x), expected)
    assert caught_warnings[0].filename == __file__


def test_threads_see_their_own_calls(model, x):
    attentions_by_number, ready = {}, threading.Barrier(4)

    def run(number: int) -> None:
        own_rows = x[:, : number + 2]
        with torch.no_grad(), regard.watch(model) as attentions:
            ready.wait()
            for _ in range(5):
                model(own_rows)
            ready.wait()
        attentions_by_number[number] = attentions

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    with regard.watch(model) as main_attentions:
        for thread in threads:
            thread.start()
        ready.wait()
        model(x)
        ready.wait()
        for thread in threads:
            thread.join()
    assert len(main_attentions.steps("layers.0")) == 1
    for number, attentions in attentions_by_number.items():
        shape = (2, 2, number + 2, number + 2)
        assert [step.shape for step in attentions.steps("layers.2")] == [shape] * 5


def test_nothing_seen_is_never_an_empty_answer(model, x):
    with (
        pytest.warns(
            RuntimeWarning, match="run the model inside the `with` block"
        ) as caught_warnings,
        regard.watch(model) as attentions,
    ):
        pass
    assert caught_warnings[0].filename == __file__
    for ask in (
        len,
        list,
        repr,
        lambda attentions: attentions["layers.0"],
        lambda attentions: attentions.table(),
    ):
        if ask is repr:
            assert "nothing" in repr(attentions)
            continue
        with pytest.raises(regard.WatchError, match="run the model inside"):
            ask(attentions)
    with pytest.raises(TypeError, match="model is a function"):
        regard.watch(lambda: None)


def test_a_model_without_attention_and_layers_that_match_nothing_are_told_when_the_watch_ends(
    model, x
):
    plain = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    with pytest.warns(RuntimeWarning, match=r"the model ran.*regard\.declare"), regard.watch(plain):
        plain(x)
    with (
        pytest.warns(RuntimeWarning, match="attentions that do not match: layers.0"),
        regard.watch(model, layers=7),
    ):
        model(x)


def test_a_watch_or_change_that_is_never_entered_says_so(model, x):
    edits = {"layers.0": regard.edits.Scale(0.0)}
    for call in (lambda: regard.change(model, edits), lambda: regard.watch(model)):
        with pytest.warns(
            RuntimeWarning, match=r"did nothing: write `with regard\.\w+\("
        ) as warned:
            call()
        assert [each.filename for each in warned] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with regard.watch(model):
            model(x)
        with pytest.raises(TypeError):
            regard.watch(model, heads="x")


def test_modules_that_torch_does_not_register_have_paths_of_their_own(x):
    class Listed(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = [Block(), Block()]
            self.named = {"last": Block()}

        def forward(self, x):
            for block in [*self.blocks, self.named["last"]]:
                x = block(x)
            blocks = [Block(), Block()]
            return blocks[1](blocks[0](x))

    model = Listed()
    with regard.watch(model) as attentions:
        model(x)
        model(x)
    paths = ["blocks.0", "blocks.1", "named.last", "Block_4", "Block_5"]
    assert [attentions.path(name) for name in attentions] == paths
    assert [len(attentions.steps(path)) for path in paths] == [2] * 5


class LowRank(nn.Module):
    """DeepSeek's projections: the second of two reads what the first has made."""

    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(8, 4), nn.Linear(4, 8)
        self.key, self.is_causal = nn.Linear(8, 8), is_causal

    def forward(self, x, memory):
        query, key = self.up(self.down(x)), self.key(memory)
        return F.scaled_dot_product_attention(query, key, key, is_causal=self.is_causal)


class Core(nn.Module):
    def forward(self, query, key):
        return F.scaled_dot_product_attention(query, key, key)


class Around(nn.Module):
    """The projections are of the module around the attention."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.core = nn.Linear(8, 8), nn.Linear(8, 8), Core()

    def forward(self, x, memory):
        return self.core(self.query(x), self.key(memory))


@pytest.mark.parametrize(
    ("model", "length", "kind"),
    [
        (LowRank(is_causal=True), None, "causal"),
        (LowRank(is_causal=False), 4, "cross"),
        (Around(), None, "self"),
        (Around(), 6, "cross"),
        (Core(), None, "self"),
        (Core(), 4, "cross"),
        (Core(), 9, "cross"),
    ],
)
def test_sequences_are_told_apart_by_projections_masks_and_lengths(model, length, kind, x):
    memory = x if length is None else torch.randn(2, length, 8)
    with regard.watch(model) as attentions:
        model(x, memory)
    (name,) = attentions
    assert attentions.kind(name) == kind


def test_a_compiled_part_is_named(model, x):
    model.layers[1] = torch.compile(model.layers[1], backend="aot_eager")
    model(x)
    with (
        pytest.warns(RuntimeWarning, match=r"layers\.1: is compiled"),
        regard.watch(model) as attentions,
    ):
        watched = model(x)
    assert list(attentions) == ["layer.0.self", "layer.2.self"]
    assert torch.equal(watched, model(x))
    torch._dynamo.reset()


def test_a_script_is_named(x):
    class Scripted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(x, x, x)

    model = nn.Sequential(torch.jit.script(Scripted()))
    with pytest.warns(RuntimeWarning, match="TorchScript"), regard.watch(model) as attentions:
        model(x)
    with pytest.raises(regard.WatchError, match="TorchScript"):
        len(attentions)


def exported(model: nn.Module, x: torch.Tensor) -> nn.Module:
    return torch.export.export(model, (x,)).module()


def unflattened(model: nn.Module, x: torch.Tensor) -> nn.Module:
    return torch.export.unflatten(torch.export.export(model, (x,)))


@pytest.mark.parametrize("graph_of", [exported, unflattened])
def test_a_graph_of_operators_is_named_and_the_advice_is_the_model_it_was_made_from(graph_of, x):
    class Fused(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(x, x, x)

    model = nn.Sequential(graph_of(Fused(), x))
    advice = "made by torch.export, .*: watch the model it was made from"
    with pytest.warns(RuntimeWarning, match=advice), regard.watch(model) as attentions:
        model(x)
    assert list(attentions.unseen) == ["0"]


def test_a_transformation_holds_no_numbers_to_keep(model, x):
    with pytest.warns(RuntimeWarning, match=r"torch\.func"), regard.watch(model) as attentions:
        torch.func.vmap(model)(x[None])
    assert "layers.0" in attentions.unseen


def test_shared_layers_and_two_attentions_of_one_module_are_told_apart(x):
    class Twice(nn.Module):
        def forward(self, x, memory):
            x = F.scaled_dot_product_attention(x, x, x)
            return F.scaled_dot_product_attention(x, memory, memory)

    model = Twice()
    with regard.watch(model) as attentions:
        model(x, x[:, :3])
        model(x, x[:, :2])
    assert [step.shape for step in attentions.steps("self")] == [(2, 6, 6)] * 2
    assert [step.shape for step in attentions.steps("#1")] == [(2, 6, 3), (2, 6, 2)]


def test_a_transformed_attention_of_another_sequence_runs_as_it_does_unwatched():
    model = nn.MultiheadAttention(8, 2, batch_first=True)
    query, key = torch.randn(3, 2, 5, 8), torch.randn(3, 2, 6, 8)
    run = torch.func.vmap(lambda q, k: model(q, k, k, need_weights=True)[0])
    expected = run(query, key)
    with pytest.warns(RuntimeWarning, match=r"torch\.func"), regard.watch(model):
        torch.testing.assert_close(run(query, key), expected, atol=0, rtol=0)


def test_looks_carry_the_names_of_model_attention_and_heads() -> None:
    model, x = nn.MultiheadAttention(8, 4, batch_first=True), torch.randn(2, 5, 8)
    with regard.watch(model) as attentions:
        model(x, x, x, need_weights=False)
    caption = attentions["self"].caption
    assert caption.title == "MultiheadAttention: self"
    assert caption.places.tolist() == [0, 1, 2, 3, 4]
    assert caption.of((1, 3)) == "entry 1, head 3"
    assert attentions.of_heads("self", [3, 1]).caption.of((0, 1)) == "entry 0, head 1"
    with regard.watch(model, heads=[2]) as attentions:
        model(x, x, x, need_weights=False)
    assert attentions["self"].caption.of((0, 0)) == "entry 0, head 2"


class Cached(nn.Module):
    """Keeps the keys of earlier calls, as a decoder that generates does."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = torch.zeros(1, 1, 0, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = torch.cat([self.kept, x], dim=-2)
        return F.scaled_dot_product_attention(x, self.kept, self.kept)


def test_generated_queries_and_chosen_rows_have_their_own_positions() -> None:
    model, prompt = Cached(), torch.randn(1, 1, 5, 8)
    with regard.watch(model) as attentions:
        model(prompt)
        for _ in range(4):
            model(torch.randn(1, 1, 1, 8))
    assert attentions["self"].caption.places.tolist() == [5, 6, 7, 8]
    attention, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    with regard.watch(attention, rows=[1, 3]) as attentions:
        attention(x, x, x, need_weights=False)
    assert attentions["self"].caption.places.tolist() == [1, 3]


MASK = torch.arange(5) < torch.tensor([5, 3, 2])[:, None, None, None]


@pytest.mark.parametrize(
    "options",
    [
        {"mask": MASK},
        {"mask": torch.ones_like(MASK)},
        {"mask": regard.masks.padding([5, 3, 2])},
        {"bias": torch.zeros(3, 1, 5, 5)},
    ],
    ids=["tensor", "all true", "padding", "bias"],
)
@pytest.mark.parametrize("rows", [None, [1, 2], []], ids=str)
def test_batch_axes_that_only_a_mask_or_a_bias_has(options, rows):
    class Model(nn.Module):
        def forward(self, x):
            return regard.attend(x, x, x, **options)

    model, x = Model(), torch.randn(1, 2, 5, 8)
    with regard.watch(model, rows=rows) as attentions:
        model(x)
    expected = regard.look(x, x, **options).weights()
    expected = expected.expand(3, 2, 5, 5)[..., slice(None) if rows is None else rows, :]
    assert attentions.steps("self")[0].shape == attentions["self"].shape == expected.shape
    torch.testing.assert_close(attentions["self"].weights(), expected)
