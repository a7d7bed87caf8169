"""A translation in a notebook: its words and weights, and no markup of its own."""

from __future__ import annotations

import torch

import regard
from regard.attention.looks import StoredLook
from regard.translation.results import Translation
from regard.viewing import notebook

EVIL = "<script>alert(1)</script>"


def _translation(**given: object) -> Translation:
    look = StoredLook(torch.tensor([[[[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.3], [0.4, 0.6]]]]))
    fields = {
        "source": EVIL,
        "text": "the cat",
        "alignment": [(0, 1)],
        "source_pieces": [f"▁{EVIL}", "</s>"],
        "target_pieces": ["▁the", "▁cat"],
        "looks": {"decoder.0.cross": look, "decoder.0.self": look},
    }
    return Translation(**{**fields, **given})  # type: ignore[arg-type]


def test_it_shows_sentences_links_and_the_mean_of_the_heads() -> None:
    html = _translation()._repr_html_()
    assert "<b><bdi>the cat</bdi></b>" in html
    assert "<bdi>cat</bdi> ← <bdi>&lt;script&gt;" in html
    assert "decoder.0.cross, mean of 2 heads" in html
    assert ">80</td>" in html
    assert ">70</td>" in html
    assert "decoder.0.self" not in html


def test_no_text_becomes_markup() -> None:
    assert "<script" not in _translation()._repr_html_()
    assert "<script" not in _translation(text=EVIL, target_pieces=[f"▁{EVIL}", "x"])._repr_html_()


def test_a_translation_without_looks_or_links_is_two_sentences() -> None:
    html = notebook.html(Translation("hola", "hello"))
    assert html == "<div><bdi>hola</bdi> → <b><bdi>hello</bdi></b></div>"


def test_a_long_sentence_has_no_table() -> None:
    count = notebook.MOST + 1
    look = StoredLook(torch.full((1, 1, 1, count), 1 / count))
    long = _translation(
        source_pieces=["▁a"] * count, target_pieces=["▁b"], looks={"decoder.0.cross": look}
    )
    assert "1 by 41 words" in long._repr_html_()
    assert "<table" not in long._repr_html_()


def test_the_representation_leaves_out_tensors_and_pieces() -> None:
    assert "looks" not in repr(_translation())
    assert "target_pieces" not in repr(_translation())


def test_masked_cells_differ_from_zeros() -> None:
    x = torch.zeros(1, 1, 2, 4)
    masked = regard.look(x, x, mask=regard.masks.causal(align="start"))
    html = _translation(looks={"decoder.0.cross": masked})._repr_html_()
    assert html.count("masked, may not be read") == 1
    zeros = StoredLook(torch.eye(2)[None, None])
    assert "masked" not in _translation(looks={"decoder.0.cross": zeros})._repr_html_()
