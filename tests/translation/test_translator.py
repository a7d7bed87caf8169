"""The front door: every sentence gets its translation, its pieces and its looks."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import math
import shutil
from collections.abc import Iterator

import pytest
import torch
from tests.translation.tiny import MODELS, PAIRS, WORDS, trainer

import regard
from regard.errors import ConfigurationError, ModelError
from regard.translation import lines, opening, sentence_search
from regard.translation.aligning.aligner import Aligner
from regard.translation.aligning.choice import of_run
from regard.translation.decoding.hypothesis import penalty
from regard.translation.decoding.search import Search, translate_batch
from regard.translation.opening import find
from regard.translation.results import Candidate, Translation
from regard.translation.runs import Run
from regard.translation.text.corpora import Pair
from regard.translation.text.normalisation import clean
from regard.translation.text.tokenizer import word_spans
from regard.translation.translator import Translator

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
    new_trainer = trainer(
        folder, "training.max_steps=30", "training.validate_every=30", model=request.param
    )
    new_trainer.train()
    new_trainer.run.publish(new_trainer.best_weights()[0], "card")
    return Translator.open(new_trainer.run.folder)


def test_one_translation_each_in_their_order(translator):
    translations = translator.translate(TEXTS)
    assert [one.source for one in translations] == list(map(clean, TEXTS))
    for text, translation in zip(TEXTS, translations, strict=True):
        alone = translator.translate([text])[0]
        assert alone.text == translation.text
        assert alone.score == pytest.approx(translation.score, abs=1e-4)


def test_a_sentence_in_capitals_is_read_in_small_letters(translator):
    (small, shouted) = translator.translate(["one two 3", "ONE TWO 3"], alignments=True)
    assert shouted.source == "ONE TWO 3"
    assert shouted.text == small.text.upper()
    assert [word.text for word in shouted.words] == [word.text.upper() for word in small.words]
    assert [one.text for one in shouted.alternatives] == [shouted.text]
    for name in ("source_pieces", "target_ids", "alignment", "unknown"):
        assert getattr(shouted, name) == getattr(small, name)


@pytest.mark.parametrize("spans", [True, False])
@pytest.mark.parametrize("text", ["ONE two", "three TWO", "one TWO THREE four"])
def test_words_in_capitals_are_read_in_small_letters(translator, text, spans):
    search = translator.search.changed(spans=spans)
    small, shouted = translator.translate([text.lower(), text], search=search)
    assert shouted.source == text
    assert shouted.source_ids == small.source_ids
    assert shouted.text.upper() == small.text.upper()


@pytest.mark.parametrize(
    ("text", "prefix", "changes"),
    [
        ("ONE TWO", ["ONE"], {}),
        ("ONE TWO", None, {"capitals": False}),
        ("ONE two", None, {"capitals": False, "spans": False}),
    ],
)
def test_other_sentences_are_read_as_they_are(translator, text, prefix, changes):
    search = translator.search.changed(**changes)
    (translation,) = translator.translate([text], search=search, prefix=prefix)
    assert translator.tokenizers.source.encode(text) == translation.source_ids


def test_a_line_without_a_beginning_is_read_as_without_prefixes(translator):
    lines = ["ONE TWO 3", "one two", "ONE two. three 日本"]
    free = translator.translate(lines)
    bound = translator.translate(lines, prefix=["", "ONE", ""])
    assert [bound[0], bound[2]] == [free[0], free[2]]
    assert bound[1].text.startswith("ONE")


def test_an_empty_sentence_has_an_empty_translation(translator):
    for text in ("", " \t", "\u2028"):
        (translation,) = translator.translate([text], looks=True)
        assert translation == Translation(clean(text), "")
        assert translator.look(text, target="something").source_pieces == []
    assert translator.translate([]) == []


def test_each_translation_says_what_makes_it_doubtful(translator):
    plain, strange, empty = translator.translate(["one two", "one 日本 é", ""])
    assert (plain.unknown, empty.unknown) == ([], [])
    assert strange.unknown == []
    assert strange.text.split()[-2:] == ["日本", "é"]
    search = translator.search.changed(spans=False)
    (read,) = translator.translate(["one 日本 é"], search=search)
    assert read.unknown == ["日", "本", "é"]
    assert translator.look("日", target="one").unknown == ["日"]
    short = translator.translate(["one two", ""], search=Search(max_length=1, min_length=1))
    assert [one.unfinished for one in short] == [True, False]
    assert [one.unfinished for one in (plain, empty)] == [False, False]
    long = Search(beam=1, max_length=40, length_margin=40, min_length=40, inventions=False)
    (looping,) = translator.translate(["one two"], search=long)
    assert looping.repeats
    assert looping.doubts == ["repeats", "unfinished"]
    assert not plain.repeats
    (bound,) = translator.translate(["one two"], search=long.changed(no_repeat_ngram=2))
    assert not bound.repeats


def test_a_configuration_says_how_to_search(translator):
    section = translator.run.configuration.search
    assert translator.search == Search(**dict(section))
    changed_section = section.model_copy(update={"no_repeat_ngram": 2, "length_ratio": 0.5})
    run = dataclasses.replace(
        translator.run,
        configuration=translator.run.configuration.model_copy(update={"search": changed_section}),
    )
    other_translator = Translator(run, translator.model, translator.tokenizers)
    assert (other_translator.search.no_repeat_ngram, other_translator.search.length_ratio) == (
        2,
        0.5,
    )


def test_batches_change_nothing(translator, monkeypatch):
    texts = [source for source, _ in PAIRS[:10]]
    whole_translations = translator.translate(texts)
    sizes: list[int] = []

    def counted(model, source, *more, **settings):
        sizes.append(len(source))
        return translate_batch(model, source, *more, **settings)

    monkeypatch.setattr(sentence_search, "translate_batch", counted)
    for batch_tokens, expected in ((1, [1] * 10), (10**6, [10])):
        sizes.clear()
        second_translations = translator.translate(texts, batch_tokens=batch_tokens)
        assert [one.text for one in second_translations] == [one.text for one in whole_translations]
        assert sizes == expected
    monkeypatch.setattr(lines, "CHUNK", 3)
    assert [one.text for one in translator.stream(iter(texts))] == [
        one.text for one in whole_translations
    ]


def test_pieces_probabilities_and_scores_belong_together(translator):
    (translation,) = translator.translate(["one two"], beam=2)
    assert translation.source_pieces[-1] == translation.target_pieces[-1] == "</s>"
    assert len(translation.probabilities) == len(translation.target_pieces)
    assert all(0 < p <= 1 for p in translation.probabilities)
    assert translation.alternatives[0] == Candidate(
        translation.text, translation.score, translation.log_probability, translation.words, []
    )
    assert translation.log_probability == pytest.approx(
        math.log(math.prod(translation.probabilities)), abs=1e-4
    )
    three = translator.translate(["one two"], search=Search(beam=3, nbest=3))[0].alternatives
    assert len(three) == 3
    assert [one.score for one in three] == sorted((one.score for one in three), reverse=True)
    assert len({one.text for one in three}) > 1


def test_words_and_their_confidences_make_up_the_translation(translator):
    for translation in translator.translate(TEXTS, search=Search(beam=3, nbest=3)):
        for alternative in translation.alternatives:
            assert " ".join(word.text for word in alternative.words) == alternative.text
            assert all(0 < word.confidence <= 1 for word in alternative.words)
        product = math.prod(word.confidence for word in translation.words)
        end = translation.probabilities[-1] if translation.probabilities else 1.0
        if len(translation.words) == len(word_spans(translation.target_pieces[:-1])):
            assert math.log(product * end) == pytest.approx(translation.log_probability, abs=1e-4)


def test_alignments_lead_from_target_words_to_source_words(translator):
    assert translator.translate(["one two"])[0].alignment == []
    texts = ["one two three four", "", "eight"]
    for text, result in zip(texts, translator.translate(texts, alignments=True), strict=True):
        links = result.alignment
        assert [target for _, target in links] == list(range(len(result.words)))
        assert all(0 <= source < len(text.split()) for source, _ in links)
        if text:
            assert result.alternatives[0].alignment == links
            look = translator.look(text, target=result.text)
            if look.target_pieces == result.target_pieces:
                aligner = Aligner(translator.model, translator.tokenizers, of_run(translator.run))
                (aligned,) = aligner.align([(text.split(), result.text.split())])
                assert aligned.links == set(links)


def test_a_translation_begins_with_the_words_that_are_asked_for(translator):
    texts = ["one two", "three four", ""]
    for translation in translator.translate(texts, prefix="SEVEN EIGHT")[:2]:
        assert [word.text for word in translation.words][:2] == ["SEVEN", "EIGHT"]
        assert translation.text != translator.translate([translation.source])[0].text
    own_translations = translator.translate(texts, prefix=["SEVEN", "", "ONE"])
    assert own_translations[0].text.split()[0] == "SEVEN"
    assert own_translations[1].text == translator.translate(texts)[1].text
    assert own_translations[2].text == ""
    (sampled_translation,) = translator.translate(
        ["one"], prefix="TWO", search=Search(sampling=True), seed=1
    )
    assert sampled_translation.text.startswith("TWO")
    assert not sampled_translation.text[3:4].isalnum()  # a whole word, whatever was drawn after it
    with pytest.raises(ConfigurationError, match="2 prefixes for 3 texts"):
        translator.translate(texts, prefix=["a", "b"])
    with pytest.raises(ConfigurationError, match="takes at most 512"):
        translator.translate(["one"], prefix="ONE " * 600)


def test_a_coverage_penalty_changes_the_ranking(translator):
    texts = [source for source, _ in PAIRS]
    plain, covered = (
        translator.translate(texts, search=Search(beam=4, nbest=4, coverage_penalty=beta))
        for beta in (0.0, 5.0)
    )
    assert [one.text for one in plain] != [one.text for one in covered]
    for translation in covered:
        log_p = translation.alternatives[0].log_probability
        assert translation.score < log_p / penalty(len(translation.target_pieces), 1.0) + 1e-6


def test_paragraphs_keep_what_is_between_their_sentences(translator):
    text = " One two.  Three\nfour!\n\n- five\r\n\n"
    texts = [one.text for one in translator.translate(["One two.", "Three four!", "five"])]
    expected = f" {texts[0]}  {texts[1]}\n\n- {texts[2]}\r\n\n"
    assert translator.translate_text(text) == expected
    assert translator.translate_text(text, batch_tokens=1, language="fr") == expected
    assert translator.translate_text("") == ""


def test_a_stream_of_letters_is_refused(translator):
    with pytest.raises(TypeError, match="pass a list of sentences"):
        translator.stream("one two")


def test_a_stream_reads_no_more_than_it_must(translator, monkeypatch):
    monkeypatch.setattr(lines, "CHUNK", 32)
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        for number in itertools.count():
            read += 1
            yield WORDS[number % 8]

    stream = translator.stream(endless(), search=Search(beam=1), prefix="ONE")
    for number in range(80):
        first_translation = next(stream)
        assert first_translation.source == WORDS[number % 8]
        assert read - number <= lines.CHUNK
    assert first_translation.words[0].text == "ONE"


def test_labels_fit_the_looks(translator):
    (actual_translation,) = translator.translate(["one two three"], looks=True)
    forced = translator.look("one two three", target="SOME OTHER Words")
    assert actual_translation.looks.keys() == forced.looks.keys() >= {"decoder.0.cross"}
    for translation in (actual_translation, forced):
        for name, look in translation.looks.items():
            queries, keys = translation.labels(name)
            assert look.shape[0] == 1
            assert look.shape[-2:] == (len(queries), len(keys)), name
            weights = look.weights()
            assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-5)


def test_no_looks_unless_asked_for(translator):
    assert translator.translate(["one"])[0].looks == {}
    assert translator.look("one").looks


def test_a_given_translation_is_looked_at_as_it_is(translator):
    look = translator.look("one two", target="  TWO\u00a0ONE ")
    assert look.text == "TWO ONE"
    (translation,) = translator.translate(["one two"])
    second_look = translator.look("one two", target=translation.text)
    if second_look.target_pieces == translation.target_pieces:
        assert second_look.score == pytest.approx(translation.score, abs=1e-4)
    assert translator.look("one two", target="").target_pieces == ["</s>"]


def test_scores_of_translations_of_others(translator):
    pairs = [Pair(source, target) for source, target in PAIRS[:3]]
    scores = translator.score(pairs)
    assert scores == pytest.approx(
        [translator.look(s, target=t).score for s, t in PAIRS[:3]], abs=1e-4
    )
    assert all(score < 0 for score in scores)


def test_a_translation_of_too_many_pieces_is_refused(translator):
    with pytest.raises(ConfigurationError, match="takes at most 512"):
        translator.score([Pair("one", "ONE " * 600)])
    with pytest.raises(ConfigurationError, match="takes at most 512"):
        translator.look("one", target="ONE " * 600)


def test_a_line_of_200_kilobytes_is_cut_and_bounded(translator):
    (translation,) = translator.translate(["one " * 50_000], search=Search(beam=1, max_length=20))
    assert len(translation.source_pieces) == translator.longest + 1
    assert translation.cut > 10_000
    assert len(translation.target_pieces) <= 21
    assert "\n" not in translation.text


def test_learned_positions_bound_source_and_target(tmp_path):
    new_trainer = trainer(
        tmp_path,
        "model.positions=learned",
        "model.longest=20",
        "data.longest=19",
        "training.max_steps=2",
    )
    new_trainer.train()
    translator = Translator.open(new_trainer.run.folder)
    assert translator.longest == 19
    for text in ("one " * 100, "one"):
        (translation,) = translator.translate([text], looks=True)
        assert len(translation.source_pieces) <= 20
        assert len(translation.target_pieces) <= 20
    translator.look("one", target="ONE " * 19)
    with pytest.raises(ConfigurationError, match="takes at most 19"):
        translator.look("one", target="ONE " * 20)


def test_sampling_repeats_itself_from_a_seed(translator):
    texts, search = [source for source, _ in PAIRS], Search(sampling=True, beam=1, temperature=3.0)

    def samples(seed: int) -> list[str]:
        return [one.text for one in translator.translate(texts, search=search, seed=seed)]

    assert samples(1) == samples(1) != samples(2)


def test_several_models_translate_together(translator, tmp_path):
    kind = translator.run.configuration.model.kind
    second_kind = sorted(set(MODELS) - {kind})[0]
    # Of another kind and a little trained; the same text gives the same tokenizer.
    new_trainer = trainer(tmp_path, "training.max_steps=10", "seed=2", model=second_kind)
    new_trainer.train()
    folders = [translator.run.folder, new_trainer.run.folder]
    texts = [source for source, _ in PAIRS[:8]]
    both_translator = Translator.open(folders)
    alone = [Translator.open(folder).translate(texts) for folder in folders]
    together = both_translator.translate(texts, alignments=True)
    scores = [[one.score for one in found] for found in (together, *alone)]
    assert scores[0] != pytest.approx(scores[1], abs=1e-3)
    assert scores[0] != pytest.approx(scores[2], abs=1e-3)
    inputs = together[0]
    second_look = both_translator.look(texts[0], target=inputs.text)
    if second_look.target_pieces == inputs.target_pieces:
        probabilities = [
            Translator.open(f).look(texts[0], target=inputs.text).probabilities for f in folders
        ]
        mean = [(a + b) / 2 for a, b in zip(*probabilities, strict=True)]
        assert inputs.probabilities == pytest.approx(mean, abs=1e-4)
    for name, look in second_look.looks.items():
        assert look.shape[-2:] == tuple(map(len, second_look.labels(name)))
    assert both_translator.longest == translator.longest


def test_pieces_that_one_of_several_models_has_not_learnt_are_doubtful(translator, tmp_path):
    (plain,) = translator.translate(["one two"])
    assert plain.unseen == []
    pieces = plain.source_pieces[0], plain.source_pieces[-2]
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder, piece in zip(folders, pieces, strict=True):
        shutil.copytree(translator.run.folder, folder)
        Run.open(folder).keep("unseen.json", json.dumps([piece]).encode())
    (translation,) = Translator.open(folders).translate(["one two"])
    assert translation.unseen == [piece for piece in translation.source_pieces if piece in pieces]


def test_models_of_different_vocabularies_are_refused(tmp_path):
    folders = []
    for number, size in enumerate((320, 300)):
        new_trainer = trainer(
            tmp_path,
            "training.max_steps=2",
            f"tokenizer.vocabulary_size={size}",
            run=f"run{number}",
        )
        new_trainer.train()
        folders.append(new_trainer.run.folder)
    with pytest.raises(ModelError, match=r"run1: its source vocabulary \(\d+ pieces\) is not that"):
        Translator.open(folders)
    with pytest.raises(ModelError, match="no model is named"):
        Translator.open([])


def test_mistakes_are_told(translator, tmp_path):
    with pytest.raises(TypeError, match="pass a list of sentences"):
        translator.translate("one")
    with pytest.raises(ConfigurationError, match="beam 0"):
        translator.translate(["one"], beam=0)
    with pytest.raises(ConfigurationError, match="batch_tokens 0"):
        translator.translate(["one"], batch_tokens=0)
    for nowhere in ("no-such-model", tmp_path / "missing", "nul\0nul", "x" * 5000, __file__):
        with pytest.raises(ModelError, match="no such model or run folder; bundled models:"):
            Translator.open(nowhere)
    with pytest.raises(ModelError, match=r"no config\.toml"):
        Translator.open(tmp_path)


def test_a_bundled_model_is_found_by_its_name(monkeypatch, tmp_path):
    (tmp_path / "xx-yy").mkdir()
    monkeypatch.setattr(opening, "BUNDLED", tmp_path)
    assert find("xx-yy") == tmp_path / "xx-yy"
    monkeypatch.setattr(opening, "BUNDLED", tmp_path / "none")
    assert opening.bundled() == {}


def test_refresh_reads_the_weights_anew(translator):
    own_translator = Translator(
        translator.run, copy.deepcopy(translator.model), translator.tokenizers
    )
    texts = [source for source, _ in PAIRS[:3]]

    def scores() -> list[float]:
        return [one.score for one in own_translator.translate(texts)]

    scores_before = scores()
    for weight in own_translator.model.parameters():
        weight.data.mul_(0.5)
    own_translator.refresh()
    scores_after = scores()
    assert scores_after != scores_before
    own_translator.refresh(avoid_loops="to compare")
    assert scores_after == pytest.approx(scores(), abs=1e-4)


def test_hooks_of_layers_are_called_and_a_watch_sees_attention(translator):
    calls = []
    hook = translator.model.output.register_forward_hook(lambda *_: calls.append(1))
    translator.translate([PAIRS[0][0]])
    hook.remove()
    assert calls
    with regard.watch(translator.model) as attentions:
        translator.translate([PAIRS[0][0]])
    assert list(attentions)
    assert not attentions.unseen
