"""The page of a watch: the heads of each attention over its tokens, and never too large."""

from __future__ import annotations

import json
import re

import pytest
import torch
from tests.watching.cases import Fused
from torch import nn

import regard
from regard.watching import pages

EVIL = "</script><script>alert(1)</script>"


def data(path):
    """What the page holds as JSON."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text())
    assert found is not None
    return json.loads(found[1])


def seen_of(batch=1, heads=2, queries=3, keys=None, **how):
    torch.manual_seed(0)
    query, key = (
        torch.randn(batch, heads, queries, 4),
        torch.randn(batch, heads, keys or queries, 4),
    )
    model = Fused()
    with regard.watch(model, **how) as seen:
        model(query, key)
    return seen


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
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]]))
    return seen


def test_the_heads_of_an_entry_stand_over_the_tokens(tmp_path):
    seen = seen_of(batch=2)
    path = seen.page(tmp_path / "x.html", tokens=["a", EVIL, "c" * 99], entry=1, title=EVIL)
    (layer,) = data(path)["layers"]
    assert layer["name"] == "self"
    assert layer["keys"] == layer["queries"] == ["a", EVIL, "c" * 59 + "…"]
    torch.testing.assert_close(
        torch.tensor(layer["heads"]), seen["self"].weights()[1], atol=1e-5, rtol=0
    )
    assert path.read_text().count("<script") == 2
    assert "<script>alert" not in path.read_text()


def test_an_encoder_and_a_decoder_have_tokens_of_their_own(two, tmp_path):
    words = {"encoder": ["x", "y", "z"], "decoder": ["p", "q"]}
    layers = data(two.page(tmp_path / "x.html", tokens=words))["layers"]
    assert [(layer["name"], layer["queries"], layer["keys"]) for layer in layers] == [
        ("encoder.0.self", ["x", "y", "z"], ["x", "y", "z"]),
        ("decoder.0.self", ["p", "q"], ["p", "q"]),
        ("decoder.0.cross", ["p", "q"], ["x", "y", "z"]),
    ]
    with pytest.raises(regard.WatchError, match=r'tokens=\{"encoder"'):
        two.page(tmp_path / "y.html", tokens=["x", "y", "z"])
    with pytest.raises(regard.WatchError, match="expected"):
        two.page(tmp_path / "y.html", tokens={"source": ["x", "y", "z"]})


def test_a_tokenizer_names_the_ids_of_the_embedding_and_no_positions(two, tmp_path):
    class Tokenizer:
        def convert_ids_to_tokens(self, ids):
            return [f"w{each}" for each in ids]

    for tokenizer in (Tokenizer(), Tokenizer().convert_ids_to_tokens):
        layers = data(two.page(tmp_path / "x.html", tokenizer=tokenizer))["layers"]
        assert layers[2]["queries"] == ["w4", "w5"]
        assert layers[2]["keys"] == ["w1", "w2", "w3"]
    with pytest.raises(TypeError, match="convert_ids_to_tokens"):
        two.page(tmp_path / "y.html", tokenizer=3)


def test_positions_stand_where_no_tokens_are_known_and_queries_where_they_stood(tmp_path):
    seen = seen_of(queries=5, rows=slice(2, 4))
    (layer,) = data(seen.page(tmp_path / "x.html"))["layers"]
    assert layer["queries"] == ["2", "3"]
    assert layer["keys"] == ["0", "1", "2", "3", "4"]
    (layer,) = data(seen.page(tmp_path / "x.html", tokens="abcde"))["layers"]
    assert layer["queries"] == ["c", "d"]


def test_tokens_that_fit_nothing_and_an_entry_that_is_not_there_are_refused(tmp_path):
    seen = seen_of()
    with pytest.raises(
        regard.WatchError, match=r"tokens has 4 strings, but the attentions have \[3\]"
    ):
        seen.page(tmp_path / "x.html", tokens="abcd")
    with pytest.raises(regard.WatchError, match=r"entry is 1, but .* has 1 batch entries"):
        seen.page(tmp_path / "x.html", entry=1)
    with pytest.raises(KeyError, match="no attention 'cross'"):
        seen.page(tmp_path / "x.html", names=["cross"])
    with pytest.raises(regard.WatchError, match="nothing to show"):
        seen_of(queries=0, keys=3).page(tmp_path / "x.html")
    assert not list(tmp_path.iterdir())


def test_heads_have_the_numbers_that_they_have_in_the_model(tmp_path):
    seen = seen_of(heads=4)
    assert data(seen.page(tmp_path / "x.html"))["layers"][0]["numbers"] == [0, 1, 2, 3]
    query, model = torch.randn(1, 4, 3, 4), Fused()
    with regard.watch(model, heads=[2, 0]) as seen:
        model(query, query)
    assert data(seen.page(tmp_path / "x.html"))["layers"][0]["numbers"] == [2, 0]


def test_a_page_is_never_too_large(tmp_path, monkeypatch):
    seen = seen_of(heads=4, queries=20)
    monkeypatch.setattr(pages, "LARGEST", 8000)
    with pytest.warns(RuntimeWarning, match="the mean of the heads") as told:
        path = seen.page(tmp_path / "x.html")
    assert told[0].filename == __file__
    (layer,) = data(path)["layers"]
    assert layer["name"] == "self, mean of 4 heads"
    torch.testing.assert_close(
        torch.tensor(layer["heads"]), seen["self"].weights()[0].mean(0)[None], atol=1e-5, rtol=0
    )
    monkeypatch.setattr(pages, "LARGEST", 3000)
    with pytest.raises(regard.WatchError, match="names="):
        seen.page(tmp_path / "y.html")
    assert not (tmp_path / "y.html").exists()


def test_the_bound_holds_for_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.watching.table.BLOCK", 1000)  # the weights come in several blocks
    seen = seen_of(heads=8, queries=120)
    path = seen.page(tmp_path / "x.html", tokens=["\U0001f600" * 60] * 120)
    assert path.stat().st_size < pages.NUMBER * 8 * 120**2 + 12 * 60 * 240 + 50_000
    assert len(data(path)["layers"][0]["heads"]) == 8


@pytest.mark.parametrize("mean", [False, True])
def test_masked_cells_are_null(tmp_path, monkeypatch, mean):
    query, model = torch.zeros(1, 2, 2, 4), Fused()
    with regard.watch(model) as seen:
        model(query, query, is_causal=True)
    if mean:
        monkeypatch.setattr(pages, "_is_reduced", lambda *_: True)
    (layer,) = data(seen.page(tmp_path / "x.html"))["layers"]
    assert layer["heads"] == [[[1.0, None], [0.5, 0.5]]] * (1 if mean else 2)
