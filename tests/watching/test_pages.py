"""The page of a watch: the heads of each attention over its tokens, and never too large."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from tests.explorer.bundles import Bundle
from tests.watching.cases import Fused
from torch import nn

import regard

EVIL = "</script><script>alert(1)</script>"


def seen_of(batch=1, heads=2, queries=3, keys=None, **how):
    torch.manual_seed(0)
    query, key = (
        torch.randn(batch, heads, queries, 4),
        torch.randn(batch, heads, keys or queries, 4),
    )
    model = Fused()
    with regard.watch(model, **how) as attentions:
        model(query, key)
    return attentions


class Worded(nn.Module):
    """An encoder and a decoder of words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.pos_emb = nn.Embedding(9, 8), nn.Embedding(90, 8)
        self.body = nn.Transformer(8, 2, 1, 1, 8, batch_first=True)

    def forward(self, source, target):
        source, target = (
            self.words(each) + self.pos_emb(torch.arange(each.shape[1])[None])
            for each in (source, target)
        )
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.body(source, target, tgt_mask=mask)


@pytest.fixture
def two():
    model = Worded().eval()
    with torch.no_grad(), regard.watch(model) as attentions:
        model(torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]]))
    return attentions


def test_the_heads_of_an_entry_stand_over_the_tokens(tmp_path):
    attentions = seen_of(batch=2)
    path = attentions.page(tmp_path / "x.html", tokens=["a", EVIL, "c" * 99], entry=1, title=EVIL)
    page = Bundle.of_page(path)
    assert page.names == ["self"]
    assert page.labels("self") == (["a", EVIL, "c" * 59 + "…"],) * 2
    np.testing.assert_allclose(page.weights("self"), attentions["self"].weights()[1], atol=5e-4)
    assert path.read_text().count("<script") == 2
    assert "<script>alert" not in path.read_text()


def test_an_encoder_and_a_decoder_have_tokens_of_their_own(two, tmp_path):
    words = {"encoder": ["x", "y", "z"], "decoder": ["p", "q"]}
    page = Bundle.of_page(two.page(tmp_path / "x.html", tokens=words))
    assert {name: page.labels(name) for name in page.names} == {
        "encoder.0.self": (["x", "y", "z"], ["x", "y", "z"]),
        "decoder.0.self": (["p", "q"], ["p", "q"]),
        "decoder.0.cross": (["p", "q"], ["x", "y", "z"]),
    }
    with pytest.raises(regard.WatchError, match=r'tokens=\{"encoder"'):
        two.page(tmp_path / "y.html", tokens=["x", "y", "z"])
    with pytest.raises(regard.WatchError, match="expected"):
        two.page(tmp_path / "y.html", tokens={"source": ["x", "y", "z"]})


def test_stacks_that_read_other_tokens_share_no_sequence(two, tmp_path):
    """Positions of an encoder and of a decoder look alike; rollout must not multiply their layers."""
    page = Bundle.of_page(two.page(tmp_path / "x.html"))
    encoder, self_attention, cross = (page.attention(name) for name in page.names)
    assert (
        encoder["rows"]
        == encoder["columns"]
        != self_attention["rows"]
        == self_attention["columns"]
        == cross["rows"]
    )


def test_a_tokenizer_names_the_ids_of_the_embedding_and_no_positions(two, tmp_path):
    class Tokenizer:
        def convert_ids_to_tokens(self, ids):
            return [f"w{each}" for each in ids]

    for tokenizer in (Tokenizer(), Tokenizer().convert_ids_to_tokens):
        page = Bundle.of_page(two.page(tmp_path / "x.html", tokenizer=tokenizer))
        assert page.labels("decoder.0.cross") == (["w4", "w5"], ["w1", "w2", "w3"])
    with pytest.raises(TypeError, match="convert_ids_to_tokens"):
        two.page(tmp_path / "y.html", tokenizer=3)


def test_positions_stand_where_no_tokens_are_known_and_queries_where_they_stood(tmp_path):
    attentions = seen_of(queries=5, rows=slice(2, 4))
    page = Bundle.of_page(attentions.page(tmp_path / "x.html"))
    assert page.labels("self") == (["2", "3"], ["0", "1", "2", "3", "4"])
    page = Bundle.of_page(attentions.page(tmp_path / "x.html", tokens="abcde"))
    assert page.labels("self")[0] == ["c", "d"]


def test_tokens_that_fit_nothing_and_an_entry_that_is_not_there_are_refused(tmp_path):
    attentions = seen_of()
    with pytest.raises(
        regard.WatchError, match=r"tokens has 4 strings, but the attentions have \[3\]"
    ):
        attentions.page(tmp_path / "x.html", tokens="abcd")
    with pytest.raises(regard.WatchError, match=r"entry is 1, but .* has 1 batch entries"):
        attentions.page(tmp_path / "x.html", entry=1)
    with pytest.raises(KeyError, match="no attention 'cross'"):
        attentions.page(tmp_path / "x.html", names=["cross"])
    with pytest.raises(regard.WatchError, match="nothing to show"):
        seen_of(queries=0, keys=3).page(tmp_path / "x.html")
    assert not list(tmp_path.iterdir())


def test_heads_have_the_numbers_that_they_have_in_the_model(tmp_path):
    page = Bundle.of_page(seen_of(heads=4).page(tmp_path / "x.html"))
    assert page.attention("self")["heads"] == [0, 1, 2, 3]
    query, model = torch.randn(1, 4, 3, 4), Fused()
    with regard.watch(model, heads=[2, 0]) as attentions:
        model(query, query)
    page = Bundle.of_page(attentions.page(tmp_path / "x.html"))
    assert page.attention("self")["heads"] == [2, 0]


def test_a_page_has_the_measures_of_the_table(two, tmp_path):
    page = Bundle.of_page(two.page(tmp_path / "x.html"))
    for head in two.table():
        measures = page.attention(head.name)["measures"]
        for name in ("entropy", "distance", "sink", "diagonal", "previous", "copy", "induction"):
            assert measures[name][head.head] == pytest.approx(getattr(head, name)), name
    page = Bundle.of_page(seen_of().page(tmp_path / "x.html"))
    assert not {"copy", "induction"} & set(page.attention("self")["measures"])


def test_many_weights_become_pictures_and_the_largest_of_each_row(tmp_path):
    attentions = seen_of(heads=64, queries=500)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = attentions.page(tmp_path / "x.html", tokens=["\U0001f600" * 60] * 500)
    assert path.stat().st_size < 10e6
    attention = Bundle.of_page(path).attention("self")
    assert "weights" not in attention
    assert (attention["map"]["height"], attention["top"]["count"], len(attention["heads"])) == (
        128,
        8,
        64,
    )


def test_masked_cells_are_not_numbers(tmp_path):
    query, model = torch.zeros(1, 2, 2, 4), Fused()
    with regard.watch(model) as attentions:
        model(query, query, is_causal=True)
    page = Bundle.of_page(attentions.page(tmp_path / "x.html"))
    np.testing.assert_array_equal(page.weights("self"), [[[1.0, np.nan], [0.5, 0.5]]] * 2)
