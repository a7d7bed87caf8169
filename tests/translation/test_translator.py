"""The front door: every sentence gets its translation, its pieces and its looks."""

from __future__ import annotations

import pytest
import torch
from tests.translation.tiny import MODELS, PAIRS, trainer

from regard.translation import translator as front
from regard.translation.decoding.search import Search
from regard.translation.errors import ConfigurationError, ModelError
from regard.translation.text.corpora import Pair
from regard.translation.translator import Translation, Translator, find

TEXTS = [
    "one two",
    "",
    "three four five six seven eight one",
    "two",
    " \u2028 ",
    "日本 <s>",
    "eight one two",
]


@pytest.fixture(scope="module", params=sorted(MODELS))
def translator(request, tmp_path_factory) -> Translator:
    folder = tmp_path_factory.mktemp(request.param)
    made = trainer(
        folder, "training.max_steps=30", "training.validate_every=30", model=request.param
    )
    made.train()
    made.run.publish(made.best_weights()[0], "card")
    return Translator.open(made.run.folder)


def test_one_translation_each_in_their_order(translator):
    found = translator.translate(TEXTS)
    assert [one.source for one in found] == TEXTS
    for text, one in zip(TEXTS, found, strict=True):
        alone = translator.translate([text])[0]
        assert alone.text == one.text
        assert alone.score == pytest.approx(one.score, abs=1e-4)


def test_an_empty_sentence_has_an_empty_translation(translator):
    for text in ("", " \t", "\u2028"):
        (found,) = translator.translate([text], looks=True)
        assert found == Translation(text, "")
        assert translator.look(text, target="something").source_pieces == []
    assert translator.translate([]) == []


def test_batches_change_nothing(translator, monkeypatch):
    texts = [source for source, _ in PAIRS[:10]]
    whole = translator.translate(texts)
    monkeypatch.setattr(front, "_BATCH_POSITIONS", 1)
    single = translator.translate(texts)
    assert [one.text for one in single] == [one.text for one in whole]
    monkeypatch.setattr(front, "_CHUNK", 3)
    assert [one.text for one in translator.stream(iter(texts))] == [one.text for one in whole]


def test_pieces_probabilities_and_scores_belong_together(translator):
    (found,) = translator.translate(["one two"], beam=2)
    assert found.source_pieces[-1] == found.target_pieces[-1] == "</s>"
    assert len(found.probabilities) == len(found.target_pieces)
    assert all(0 < p <= 1 for p in found.probabilities)
    assert found.alternatives[0] == (found.text, found.score)
    three = translator.translate(["one two"], search=Search(beam=3, nbest=3))[0].alternatives
    assert len(three) == 3
    assert [score for _, score in three] == sorted((score for _, score in three), reverse=True)


def test_labels_fit_the_looks(translator):
    (found,) = translator.translate(["one two three"], looks=True)
    forced = translator.look("one two three", target="SOME OTHER Words")
    assert found.looks.keys() == forced.looks.keys() >= {"decoder.0.cross"}
    for one in (found, forced):
        for name, look in one.looks.items():
            queries, keys = one.labels(name)
            assert look.shape[0] == 1
            assert look.shape[-2:] == (len(queries), len(keys)), name
            weights = look.weights()
            assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-5)


def test_no_looks_unless_asked_for(translator):
    assert translator.translate(["one"])[0].looks == {}
    assert translator.look("one").looks


def test_a_given_translation_is_looked_at_as_it_is(translator):
    given = translator.look("one two", target="  TWO\u00a0ONE ")
    assert given.text == "TWO ONE"
    (own,) = translator.translate(["one two"])
    again = translator.look("one two", target=own.text)
    if again.target_pieces == own.target_pieces:
        assert again.score == pytest.approx(own.score, abs=1e-4)
    assert translator.look("one two", target="").target_pieces == ["</s>"]


def test_scores_of_translations_of_others(translator):
    pairs = [Pair(source, target) for source, target in PAIRS[:3]]
    found = translator.score(pairs)
    assert found == pytest.approx(
        [translator.look(s, target=t).score for s, t in PAIRS[:3]], abs=1e-4
    )
    assert all(score < 0 for score in found)


def test_a_line_of_a_megabyte_is_cut_and_bounded(translator):
    (found,) = translator.translate(["one " * 250_000], search=Search(beam=1, max_length=20))
    assert len(found.source_pieces) == translator.longest + 1
    assert found.cut > 10_000
    assert len(found.target_pieces) <= 21
    assert "\n" not in found.text


def test_learned_positions_bound_source_and_target(tmp_path):
    made = trainer(
        tmp_path,
        "model.positions=learned",
        "model.longest=20",
        "data.longest=19",
        "training.max_steps=2",
    )
    made.train()
    translator = Translator.open(made.run.folder)
    assert translator.longest == 19
    for text in ("one " * 100, "one"):
        (found,) = translator.translate([text], looks=True)
        assert len(found.source_pieces) <= 20
        assert len(found.target_pieces) <= 20
    translator.look("one", target="ONE " * 100)


def test_sampling_repeats_itself_from_a_seed(translator):
    texts, search = [source for source, _ in PAIRS], Search(sampling=True, beam=1, temperature=3.0)

    def drawn(seed: int) -> list[str]:
        return [one.text for one in translator.translate(texts, search=search, seed=seed)]

    assert drawn(1) == drawn(1) != drawn(2)


def test_mistakes_are_told(translator, tmp_path):
    with pytest.raises(TypeError, match="pass a list of sentences"):
        translator.translate("one")
    with pytest.raises(ConfigurationError, match="beam 0"):
        translator.translate(["one"], beam=0)
    for nowhere in ("no-such-model", tmp_path / "missing", "nul\0nul", "x" * 5000, __file__):
        with pytest.raises(ModelError, match="no such model or run folder; bundled models:"):
            Translator.open(nowhere)
    with pytest.raises(ModelError, match=r"no config\.toml"):
        Translator.open(tmp_path)


def test_a_bundled_model_is_found_by_its_name(monkeypatch, tmp_path):
    (tmp_path / "xx-yy").mkdir()
    monkeypatch.setattr(front, "BUNDLED", tmp_path)
    assert find("xx-yy") == tmp_path / "xx-yy"
    monkeypatch.setattr(front, "BUNDLED", tmp_path / "none")
    assert front.bundled() == {}
