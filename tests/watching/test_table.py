"""The table of heads, beside heads whose reading is known."""

from __future__ import annotations

from math import isnan, log

import pytest
import torch
from tests.watching.cases import Fused

import regard

LENGTH = 6
FAR = 50.0


class Heads(torch.nn.Module):
    """Four heads: one reads the first key, one its own, one the one before, one all alike."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(10, 2)

    def forward(self, tokens):
        self.embedding(tokens)
        local_identity = torch.eye(LENGTH)
        to_first_key = torch.zeros(LENGTH, LENGTH)
        to_first_key[:, 0] = 1
        queries = torch.stack(
            [to_first_key, local_identity, local_identity.roll(-1, 1), torch.zeros(LENGTH, LENGTH)]
        )
        queries = queries.expand(len(tokens), -1, -1, -1)
        keys = local_identity.expand_as(queries)
        return torch.nn.functional.scaled_dot_product_attention(
            FAR * queries, keys, keys, scale=1.0
        )


@pytest.fixture
def table():
    model = Heads()
    with regard.watch(model) as attentions:
        model(torch.tensor([[1, 2, 3, 1, 2, 3]]))
    return attentions.table()


def test_each_head_is_told_by_its_numbers(table):
    sink, diagonal, previous, even = table
    assert (sink.sink, diagonal.diagonal, even.entropy) == pytest.approx((1, 1, log(LENGTH)))
    assert sink.distance == pytest.approx(sum(range(LENGTH)) / LENGTH)
    assert diagonal.distance == pytest.approx(0)
    assert previous.previous == pytest.approx((LENGTH - 1) / LENGTH)
    assert even.sink == even.diagonal == pytest.approx(1 / LENGTH)
    assert [head.entropy for head in (sink, diagonal, previous)] == pytest.approx([0] * 3, abs=1e-4)


def test_copies_are_of_other_keys_with_the_same_token_and_inductions_of_those_after(table):
    sink, diagonal, _, even = table
    assert sink.copy == pytest.approx(1 / LENGTH)  # position 3 reads 0, and 0 itself does not count
    assert diagonal.copy == pytest.approx(0)
    assert even.copy == pytest.approx(1 / LENGTH)
    # after the other 1, 2, 3: five such keys for six queries, that at the end has none
    assert even.induction == pytest.approx(5 / 36)
    # three queries have their token before; each reads the key after it with 1 / 6
    assert even.prefix == pytest.approx(1 / 6)
    assert sink.prefix == pytest.approx(0)


def test_heads_have_the_names_that_people_look_for(table):
    assert [head.role for head in table] == ["sink", "", "previous token", ""]
    assert [
        line.split("  ")[-1].strip().lstrip("0123456789. ") for line in str(table).splitlines()[1:4]
    ] == [
        "sink",
        "",
        "previous token",
    ]


def test_a_measure_of_the_callers_is_a_column():
    model = Heads()
    with regard.watch(model) as attentions:
        model(torch.tensor([[1, 2, 3, 1, 2, 3]]))
    table = attentions.table(measure=lambda name, look: look.weights()[0, :, -1, 0])
    assert [head.measure for head in table] == pytest.approx([1, 0, 0, 1 / 6], abs=1e-4)
    assert str(table).splitlines()[0].split()[-2:] == ["measure", "role"]
    with pytest.raises(regard.WatchError, match="return 4 numbers, one a head"):
        attentions.table(measure=lambda name, look: 1.0)


def test_without_tokens_there_is_nothing_to_copy_and_given_ones_will_do():
    query, key = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 8)
    model = Fused()
    with regard.watch(model, heads=[1]) as attentions:
        model(query, key)
    (head,) = attentions.table()
    assert head.head == 1
    assert isnan(head.copy)
    assert isnan(head.induction)
    assert str(attentions.table()).splitlines()[1].endswith("-         -         -")
    (head,) = attentions.table(torch.tensor([[7, 7, 7, 7]]))
    assert head.copy == pytest.approx(1 - head.diagonal)


def test_a_notebook_shows_tables():
    class Evil(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = torch.nn.ModuleDict({"<b>": Fused()})

        def forward(self, x):
            return self.parts["<b>"](x, x)

    model = Evil()
    with regard.watch(model) as attentions:
        model(torch.randn(1, 300, 4, 8))
    html = attentions.table()._repr_html_()
    assert html.startswith("<table><tr><th>name</th><th>kind</th><th>head</th>")
    assert html.count("<tr>") == 201
    assert "100 more rows" in html
    assert "<td>parts.&lt;b&gt;.self</td><td>self</td><td>0</td><td>" in html
    assert html.split("</tr>")[1].count("<td>-</td>") == 3
    attentions.unseen["a<i>"] = "<reason>"
    html = attentions._repr_html_()
    assert "<td>parts.&lt;b&gt;.self</td><td>self</td><td>1 x 300 x 4 x 4</td>" in html
    assert "<div>not seen: a&lt;i&gt;: &lt;reason&gt;</div>" in html
    with pytest.warns(RuntimeWarning), regard.watch(model) as nothing:
        pass
    assert "seen no attention" in nothing._repr_html_()


def test_a_sample_of_rows_stands_where_it_stood():
    query, key = torch.randn(1, 2, 9, 8), torch.randn(1, 2, 9, 8)
    model = Fused()
    with regard.watch(model, rows=slice(3, 6)) as attentions:
        model(query, key)
    (head, _) = attentions.table()
    weights = attentions["self"].weights()[0, 0]
    away = (torch.arange(9) - torch.arange(3, 6)[:, None]).abs()
    assert head.distance == pytest.approx(float((weights * away).sum(-1).mean()), abs=1e-5)
    assert head.diagonal == pytest.approx(float(weights[range(3), range(3, 6)].mean()), abs=1e-5)


def test_without_an_axis_of_heads_batch_entries_are_no_heads():
    x, memory, model = torch.randn(3, 6, 8), torch.randn(3, 4, 8), Fused()
    with regard.watch(model) as attentions:
        model(x, memory)
    (head,) = attentions.table()
    weights = torch.softmax(x @ memory.mT / 8**0.5, -1)
    assert (head.name, head.kind, head.head) == ("cross", "cross", 0)
    assert head.sink == pytest.approx(float(weights[..., 0].mean()), abs=1e-5)
    same = torch.arange(6) * 4 // 6
    assert head.diagonal == pytest.approx(float(weights[:, range(6), same].mean()), abs=1e-5)
    with regard.watch(model) as attentions:
        model(x, x)
    (head,) = attentions.table(torch.full((3, 6), 7))
    assert head.copy == pytest.approx(1 - head.diagonal)


def test_heads_of_a_sequence_without_a_batch_are_heads():
    class Unbatched(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.project = torch.nn.Linear(8, 8)

        def forward(self, x):
            heads = self.project(x).unflatten(-1, (2, 4)).transpose(0, 1)
            return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)

    model = Unbatched()
    with regard.watch(model) as attentions:
        model(torch.randn(6, 8))
    weights = attentions["self"].weights()
    assert [head.sink for head in attentions.table()] == pytest.approx(
        weights[..., 0].mean(-1).tolist()
    )


@pytest.mark.parametrize(("queries", "keys"), [(0, 0), (0, 3), (2, 0)])
def test_an_empty_sequence_has_rows_of_zeros(queries, keys):
    model = Fused()
    with regard.watch(model) as attentions:
        model(torch.ones(1, 2, queries, 4), torch.ones(1, 2, keys, 4))
    assert [(head.entropy, head.distance, head.sink) for head in attentions.table()] == [
        (0, 0, 0)
    ] * 2
