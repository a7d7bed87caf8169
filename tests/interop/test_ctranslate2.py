"""Models exported to CTranslate2: its engine gives the same probabilities, and the same translations of real text."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.interop.models import SENTENCES, pairs, translator
from tests.journeys.commands import check_refused
from tests.journeys.commands import run_apart as run
from tests.translation.tiny import trainer

from regard.errors import ConfigurationError, ModelError
from regard.interop import ctranslate2 as exporter
from regard.interop.engine import Engine
from regard.translation import checksums, weights
from regard.translation.decoding import forced
from regard.translation.decoding.search import Search
from regard.translation.text.corpora import Tsv, read_aligned
from regard.translation.text.tokenizer import BOS, EOS, PAD
from regard.translation.translator import Translator

ctranslate2 = pytest.importorskip("ctranslate2")

# Everyday Spanish of the kind the bundled model was trained on, and some that it was not.
SPANISH = """El gato negro duerme en la silla.
¿Dónde está la estación de trenes?
No sé qué decir.
Mi hermana vive en una casa muy grande cerca del mar.
Cuando llegué, ya se habían ido todos.
Si tuviera más dinero, compraría un coche nuevo.
¡Qué calor hace hoy!
Él no quiere hablar con nadie, y mucho menos contigo.
Hace tres años que estudiamos francés en la universidad.
Nunca he visto una película tan aburrida como esta.
Por favor, cierra la puerta antes de salir.
La reunión del 14 de mayo se canceló a las 9:30.
El presidente anunció ayer una reforma de la ley de pesca que afecta a miles de familias.
Mi amigo vive en Šibenik.
a""".splitlines()

SHAPES = {
    "pre": {},
    "post": {"norm": "post", "activation": "gelu"},
    "learned": {"positions": "learned", "activation": "silu"},
    "unordered": {"positions": "none"},
    "untied": {"tied": "none", "heads": 1, "joint": False},
    "target": {"tied": "target", "norm": "post", "joint": False, "decoder_layers": 1},
    "biased": {"attention_bias": True, "output_bias": True, "scale_embedding": False},
    "embeddings": {"tied": "embeddings", "activation": "gelu_tanh", "feed_forward_bias": False},
    "rotary": {"positions": "rotary", "normalisation": "rms"},
    "relative": {"positions": "relative", "relative_buckets": 8, "relative_furthest": 6},
    "t5": {
        "positions": "relative",
        "relative_buckets": 8,
        "relative_furthest": 6,
        "normalisation": "rms",
        "gated": True,
        "activation": "gelu_tanh",
        "head_width": 6,
        "scale_embedding": False,
        "feed_forward_bias": False,
    },
}


LOOPING = "Привет, как дела?"  # greedy search repeats itself: the model knows none of these letters


@pytest.fixture(scope="module")
def spanish() -> Translator:
    return Translator.open("es-en")


@pytest.fixture(scope="module")
def exported(spanish, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "es-en"
    exporter.export(spanish, folder)
    return folder


@torch.no_grad()
@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_every_shape_has_the_same_probabilities(tmp_path, changes):
    new_translator = translator(tmp_path, **changes)
    exporter.export(new_translator, tmp_path / "exported")
    source, lengths, target = pairs(new_translator)
    logits = new_translator.model(source, lengths, target)
    logits[..., [PAD, BOS]] = -torch.inf
    following = torch.cat([target[:, 1:], torch.full((2, 1), EOS)], 1)
    expected = logits.log_softmax(-1).gather(-1, following[..., None])[..., 0]
    engine = ctranslate2.Translator(str(tmp_path / "exported"), compute_type="float32")
    pieces = [
        new_translator.tokenizers.source.pieces(row[: n - 1])
        for row, n in zip(source, lengths.tolist(), strict=True)
    ]
    scored = engine.score_batch(
        pieces, [new_translator.tokenizers.target.pieces(row[1:]) for row in target]
    )
    actual = torch.tensor([one.log_probs for one in scored])
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("beam", "alpha"), [(1, 1.0), (5, 0.0), (5, 1.4)])
def test_the_bundled_model_translates_real_text_the_same(spanish, exported, beam, alpha):
    # As theirs, ours ends with patience 1 when as many translations have ended as the beam is wide.
    # A folder of theirs has no words by which sentences are read in other ways.
    search = Search(beam=beam, length_penalty=alpha, patience=1).as_written()
    ours = spanish.translate(SPANISH, search=search)
    theirs = Engine(exported, workers=1).translate(SPANISH, search=search)
    assert [one.text for one in theirs] == [one.text for one in ours]
    assert [one.target_pieces for one in theirs] == [one.target_pieces for one in ours]
    # Ours counts the little that the model gives to padding and to a second beginning, theirs does not.
    assert [one.score for one in theirs] == pytest.approx([one.score for one in ours], abs=2e-2)
    assert len({one.text for one in theirs}) == len(SPANISH)


@pytest.mark.parametrize("alpha", [0.0, 1.4])
def test_a_corpus_is_translated_the_same_or_better(spanish, exported, data_folder, alpha):
    pairs = read_aligned(Tsv(data_folder / "tatoeba-spa-eng" / "valid.tsv", 1, 0))
    texts = [pair.source for pair in random.Random(8).sample(pairs, 100)]
    search = Search(beam=5, length_penalty=alpha).as_written()
    ours = spanish.translate(texts, search=search, whole_lines=True)
    theirs = Engine(exported).translate(texts, search=search, whole_lines=True)
    differing = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.text != b.text]
    assert len(differing) <= 5
    # Theirs may stop too early, and the last bits may decide between two that are as good.
    tokenizers = spanish.tokenizers
    for hypothesis, expected in differing:
        source = torch.tensor([[*tokenizers.source.encode(hypothesis.source), EOS]])
        vocabulary = tokenizers.target.pieces(range(len(tokenizers.target)))
        places = [vocabulary.index(piece) for piece in expected.target_pieces[:-1]]
        (scored,) = forced.score(
            spanish.model, source, torch.tensor([source.shape[1]]), [places], length_penalty=alpha
        )
        assert hypothesis.score >= scored.score - 1e-4


def test_the_engine_needs_no_folder_and_searches_as_the_model_was_told(spanish):
    engine = Engine.of(spanish, quantization="int8", workers=1)
    assert engine.search == spanish.search
    assert (engine.search.beam, engine.search.length_penalty) == (5, 1.4)
    texts = ["", SPANISH[0], "  ", SPANISH[1].upper()]
    translations = engine.translate(texts)
    assert [one.source for one in translations] == texts
    assert translations[1].text == spanish.translate([SPANISH[0]])[0].text
    assert (
        translations[3].text
        == spanish.translate([texts[3]])[0].text
        == translations[3].text.upper()
    )
    assert translations[0].text == translations[2].text == ""
    assert translations[1].source_pieces[-1] == translations[1].target_pieces[-1] == "</s>"
    with pytest.raises(ConfigurationError, match="beam 0"):
        engine.translate(texts, beam=0)
    with pytest.raises(TypeError, match="pass a list of sentences"):
        engine.translate("hola")
    with pytest.raises(TypeError, match="does not search with sampling: leave it out"):
        engine.translate(texts, sampling=True)


def test_loops_end_and_are_forbidden_as_by_our_own_search(spanish, exported):
    texts = ["Hace frío.", LOOPING]
    engine = Engine(exported, workers=1)
    for settings in ({}, {"no_repeat_ngram": 3}):
        ours = spanish.translate(
            texts, search=spanish.search.as_written().changed(beam=1, **settings)
        )
        theirs = engine.translate(texts, beam=1, **settings)
        for a, b in zip(theirs, ours, strict=True):
            # A second search has a beam, which theirs ends sooner.
            assert a.repeats == b.repeats
            if not a.repeats:
                assert a.target_pieces == b.target_pieces
                assert a.unfinished == b.unfinished
            assert a.unknown == b.unknown
        assert [one.repeats for one in theirs] == [False, not settings]
        assert not ours[0].unfinished


def test_pieces_that_were_never_learnt_are_doubted_as_by_our_own_search(tmp_path):
    new_translator = translator(tmp_path, output_bias=True)
    pieces = new_translator.tokenizers.source.pieces(
        new_translator.tokenizers.source.encode("a sea")
    )
    new_translator.tokenizers = replace(new_translator.tokenizers, unseen=frozenset(pieces[:1]))
    exporter.export(new_translator, tmp_path / "exported")
    ours = new_translator.translate(["a sea"])
    theirs = Engine(tmp_path / "exported", workers=1).translate(["a sea"])
    assert theirs[0].unseen == ours[0].unseen == [p for p in pieces if p == pieces[0]]


def test_a_source_without_end_is_cut(spanish, exported):
    (translation,) = Engine(str(exported), workers=1).translate(["gato " * 5000], beam=1)
    assert len(translation.source_pieces) == 513
    assert len(translation.target_pieces) <= 257


def test_learned_positions_are_not_overrun(tmp_path):
    new_translator = translator(tmp_path, positions="learned", longest=12, output_bias=True)
    exporter.export(new_translator, tmp_path / "exported")
    texts = ["the cat sees the sea and the small dog wants to eat", "a child"]
    ours = new_translator.translate(texts, search=Search(beam=1))
    theirs = Engine(tmp_path / "exported", workers=1).translate(texts, beam=1)
    assert len(ours[0].source_pieces) == 12
    for a, b in zip(theirs, ours, strict=True):
        assert (a.source_pieces, a.text) == (b.source_pieces, b.text)


def test_two_tokenizers_go_with_the_model(tmp_path):
    new_translator = translator(tmp_path, joint=False, tied="target", output_bias=True)
    exporter.export(new_translator, tmp_path / "exported")
    engine = Engine(tmp_path / "exported", workers=1, compute_type="float32")
    ours = new_translator.translate(SENTENCES, search=Search(beam=3, length_penalty=0.5))
    theirs = engine.translate(SENTENCES, beam=3, length_penalty=0.5)
    assert [one.text for one in theirs] == [one.text for one in ours]
    assert any(one.text for one in ours)


def test_the_command_exports_and_says_where(tmp_path):
    result = run("export", "--to", "ctranslate2", tmp_path / "new", "--quantization", "int8")
    assert (result.code, result.out) == (0, f"wrote {tmp_path / 'new'}\n")
    assert (tmp_path / "new" / "model.bin").stat().st_size < 9_000_000
    assert json.loads((tmp_path / "new" / "config.json").read_text())["add_source_eos"] is True
    second_result = run("export", "--to", "ctranslate2", tmp_path / "new")
    check_refused(second_result, tmp_path / "new", "is there already")
    check_refused(
        run("export", "--to", "huggingface", tmp_path / "x", "--quantization", "int8"),
        "--quantization int8",
        code=2,
    )
    check_refused(run("export", "--to", "ctranslate2", tmp_path / "new" / "config.json" / "x"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new"]


def test_a_recurrent_model_is_refused_with_the_reason(tmp_path):
    new_trainer = trainer(tmp_path, model="recurrent")
    new_trainer.run.publish(weights.unique(new_trainer.model), "card")
    result = run("export", "--model", new_trainer.run.folder, "--to", "ctranslate2", tmp_path / "x")
    check_refused(result, "RecurrentModel", "no recurrent layers")
    assert not (tmp_path / "x").exists()


def test_other_attention_is_refused_with_the_reason(tmp_path):
    with pytest.raises(ModelError, match='"sparsemax": CTranslate2 has the softmax'):
        exporter.export(translator(tmp_path, normaliser="sparsemax"), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_mistakes_are_told(spanish, tmp_path, monkeypatch):
    with pytest.raises(ModelError, match="no CTranslate2 model: make one with"):
        Engine(tmp_path, spanish.tokenizers)
    with pytest.raises(ConfigurationError, match="quantization 'int3': use one of float32, "):
        exporter.export(spanish, tmp_path / "x", "int3")
    monkeypatch.setitem(__import__("sys").modules, "ctranslate2", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'regard\[ctranslate2\]'"):
        exporter.export(spanish, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_an_engine_of_a_translator_reads_like_it(spanish):
    engine = Engine.of(spanish, workers=1)
    texts = ["Ayer vi a Miguel en la calle.", "¿Donde esta el gato?", "-5", "1.  2"]
    actual_translation, ours = engine.translate(texts), spanish.translate(texts)
    assert [one.text for one in actual_translation] == [one.text for one in ours]
    read_as = [{"Miguel": "Tom"}, {"Donde": "Dónde", "esta": "está"}, {}, {}]
    assert [one.read_as for one in actual_translation] == read_as
    assert [one.text for one in actual_translation[2:]] == texts[2:]
    scores = [one.score for one in ours[2:]]
    assert [one.score for one in actual_translation[2:]] == pytest.approx(scores, abs=1e-3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"add_source_eos": [True]}, "must be boolean, but is array"),
        ({"decoder_start_token": {}}, "no decoder start token"),
        ({"unk_token": 5}, "must be string, but is number"),
        ({"learned_positions": [1]}, r"config\.json: learned_positions: "),
        ({"sentence_language": 5}, r"config\.json: sentence_language: "),
        ({"search": [1]}, r"config\.json: search: "),
        ({"search": {"beam": [1]}}, r"config\.json: search: beam \[1\]: use a whole number"),
    ],
)
def test_a_faulty_configuration_is_a_fault_of_the_folder(tmp_path, change, words):
    exporter.export(Translator.open("es-en-tiny"), tmp_path / "new")
    path = tmp_path / "new" / "config.json"
    content = json.loads(path.read_text())
    assert content | change != content
    path.write_text(json.dumps(content | change))
    sums = json.loads((tmp_path / "new" / "checksums.json").read_text())
    checksums.sign(tmp_path / "new", list(sums))
    with pytest.raises(ModelError, match=words) as fault:
        Engine(tmp_path / "new").translate(["Hola."])
    assert str(tmp_path) in str(fault.value)
