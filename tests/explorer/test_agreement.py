"""How heads agree with gold links: against the weights of `regard align`, and against a matrix."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.explorer.bundles import Bundle

import regard
from regard.attention.looks import StoredLook
from regard.attention.shapes import ShapeError
from regard.explorer import agreement, scenes, translating
from regard.explorer.agreement import Links
from regard.explorer.contract import pack
from regard.translation.aligning.word_attention import word_attentions
from regard.translation.evaluation.alignment import argmax_links, measure_alignment
from regard.translation.evaluation.gold import Gold
from regard.translation.translator import Translator

WORDS = "¿ Dónde está la casa grande ?".split(), "Where is the big house ?".split()
GOLD = Gold([{(1, 0), (2, 1), (3, 2), (5, 3), (4, 4), (6, 5)}], [{(0, 5), (0, 0)}], [WORDS])


@pytest.mark.parametrize("name", ["es-en", "es-en-recurrent"])
def test_the_heads_of_a_translation_agree_as_in_alignment(name):
    translator = Translator.open(name)
    scene, translation = translating.of_gold(translator, GOLD, 0, name)
    assert (translation.source, translation.text) == (
        "¿ Dónde está la casa grande?",
        "Where is the big house?",
    )
    words = [text for _, _, text in scene.sequences[0].words]
    assert words == [*WORDS[0], "</s>"]
    bundle = Bundle(pack(scene))
    (reading,) = word_attentions(translator.model, translator.tokenizers, GOLD.words)
    linked = bundle.header["links"]["of"]
    assert len(linked) == len(reading.written)
    assert set(linked) == {each for each in bundle.names if each.endswith("cross")}
    for layer, attention in enumerate(linked):
        actual_attention = bundle.attention(attention)["measures"]
        for name, read in (("agreement", "written"), ("agreement, word read", "read")):
            heads = [argmax_links(weights) for weights in getattr(reading, read)[layer]]
            scores = [measure_alignment([head], GOLD.sure, GOLD.possible) for head in heads]
            assert actual_attention[name] == pytest.approx(
                [1 - score.aer / 100 for score in scores]
            )
    unlinked = set(bundle.names) - set(linked)
    assert not any("agreement" in bundle.attention(each)["measures"] for each in unlinked)


@st.composite
def cuts(draw, maximum: int = 6):
    """Words of 0 to 3 tokens, one after the other, and the number of the tokens."""
    sizes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=maximum).filter(any))
    ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
    return list(pairwise(ends)), ends[-1]


@given(cuts(), cuts(), st.data())
def test_links_are_those_of_a_matrix_in_blocks_of_any_size(keys, queries, data):
    (across, columns), (down, rows) = keys, queries
    torch.manual_seed(data.draw(st.integers(0, 99)))
    weights = torch.rand(2, rows, columns).round(decimals=1)
    pairs = st.tuples(st.integers(0, len(across) - 1), st.integers(0, len(down) - 1))
    sure, possible = data.draw(st.frozensets(pairs)), data.draw(st.frozensets(pairs))
    expected = []
    for head in weights:
        cells = [[head[a:b, c:d].sum() for c, d in across] for a, b in down]
        links = argmax_links(torch.tensor(cells))
        expected.append(1 - measure_alignment([links], [sure], [possible]).aer / 100)
    links = Links(sure, possible)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agreement, "BLOCK", data.draw(st.sampled_from([1, 20, 1 << 22])))
        actual = agreement.agreement(StoredLook(weights), across, down, links)
    assert actual == pytest.approx(expected)


def test_a_look_takes_links_between_its_keys_and_queries():
    look = StoredLook(torch.eye(4)[None, [1, 2, 0]].repeat(2, 1, 1))
    bundle = Bundle(pack(scenes.of_look(look, links=[(1, 0), (2, 1), (3, 2)])))
    assert bundle.header["links"]["sure"] == [[1, 0], [2, 1], [3, 2]]
    (attention,) = bundle.header["attentions"]
    assert attention["measures"]["agreement"] == pytest.approx([2 / 3, 2 / 3])
    assert "agreement, word read" not in attention["measures"]
    with pytest.raises(ShapeError, match=r"link \(4, 0\): there are 4 keys and 3 queries"):
        scenes.of_look(look, links=[(4, 0)])


def test_a_watch_takes_links_of_its_cross_attentions():
    torch.manual_seed(0)
    model = torch.nn.TransformerDecoderLayer(16, 2, 16, batch_first=True).eval()
    with torch.no_grad(), regard.watch(model) as attentions:
        model(torch.randn(1, 3, 16), torch.randn(1, 5, 16))
    best = attentions["multihead_attn.cross"].weights()[0].argmax(-1).tolist()
    bundle = Bundle(
        pack(attentions.scene(links=[(key, query) for query, key in enumerate(best[1])]))
    )
    assert bundle.header["links"]["of"] == ["multihead_attn.cross"]
    measures = bundle.attention("multihead_attn.cross")["measures"]
    same = sum(a == b for a, b in zip(*best, strict=True))
    assert measures["agreement"] == pytest.approx([same / 3, 1.0])
