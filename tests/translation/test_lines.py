"""Lines of several sentences: nothing is lost, and positions are those of the line."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.translation import lines
from regard.translation.results import Candidate, Translation, Word
from regard.translation.text.corpora import Pair
from regard.translation.text.sentences import Sentence
from regard.translation.translator import Translator
from regard.translation.words import KnownWords

SPANISH = ["El gato negro duerme.", "¿Dónde está el gato?", "¡Hace frío!", "Me gusta mucho."]


@pytest.fixture(scope="module")
def spanish() -> Translator:
    return Translator.open("es-en")


def test_a_line_of_one_sentence_is_translated_as_before(spanish):
    texts = [*SPANISH, "", " ", ".", "  El Dr. Perry vive a 3.5 km. ", "🙂"]
    translations = spanish.translate(texts, looks=True, alignments=True)
    whole_translations = spanish.translate(texts, looks=True, alignments=True, whole_lines=True)
    assert [replace(one, looks={}) for one in translations] == [
        replace(one, looks={}) for one in whole_translations
    ]
    assert not any(one.sentences for one in translations)


def test_the_sentences_of_a_line_are_translated_one_by_one(spanish):
    alone = spanish.translate(SPANISH, alignments=True)
    (line,) = spanish.translate(["  ".join(SPANISH)], alignments=True)
    assert line.text == "  ".join(one.text for one in alone)
    assert [one.text for one in line.sentences] == [one.text for one in alone]
    assert [word.text for word in line.words] == line.text.split()
    assert line.score == pytest.approx(sum(one.score for one in alone), abs=1e-4)
    assert line.source_pieces == [piece for one in alone for piece in one.source_pieces]
    assert len(line.source_ids) == len(line.source_pieces) - 1
    assert len(line.probabilities) == len(line.target_pieces) == len(line.target_ids) + 1
    sources, targets = line.source.split(), line.text.split()
    linked = [(sources[a], targets[b]) for a, b in line.alignment]
    assert linked == [
        (one.source.split()[a], one.text.split()[b]) for one in alone for a, b in one.alignment
    ]


def test_looks_are_those_of_the_line_and_no_sentence_reads_another(spanish):
    (line,) = spanish.translate([" ".join(SPANISH[:2])], looks=True)
    first_translation, two = spanish.translate(SPANISH[:2], looks=True)
    for name, look in line.looks.items():
        first_weights, second = (
            first_translation.looks[name].weights()[0],
            two.looks[name].weights()[0],
        )
        expected = [torch.block_diag(a, b) for a, b in zip(first_weights, second, strict=True)]
        torch.testing.assert_close(look.weights()[0], torch.stack(expected), atol=1e-5, rtol=1e-4)
        queries, keys = line.labels(name)
        assert (len(queries), len(keys)) == tuple(look.shape[-2:])


def test_the_best_lines_are_the_best_sums_of_their_sentences(spanish):
    search = spanish.search.changed(nbest=3)
    alone = spanish.translate(SPANISH[:2], search=search)
    (line,) = spanish.translate([" ".join(SPANISH[:2])], search=search)
    sums = sorted(
        (a.score + b.score for a in alone[0].alternatives for b in alone[1].alternatives),
        reverse=True,
    )
    assert [one.score for one in line.alternatives] == pytest.approx(sums[:3], abs=1e-4)
    assert line.alternatives[0].text == line.text


def test_draws_of_a_line_are_as_many_as_were_wanted(spanish):
    search = spanish.search.changed(sampling=True, nbest=4)
    (line,) = spanish.translate([" ".join(SPANISH[:2])], search=search, seed=1)
    texts = [[one.text for one in sentence.alternatives] for sentence in line.sentences]
    both_pairs = zip(*texts, strict=True)
    assert [one.text for one in line.alternatives] == [f"{a} {b}" for a, b in both_pairs]


def test_a_prefix_begins_the_line(spanish):
    text = " ".join(SPANISH[2:])
    for prefix in ("The weather", "The weather is cold. It"):
        assert spanish.translate([text], prefix=prefix)[0].text.startswith(prefix)
    plain, prefixed = spanish.translate([text, text], prefix=["", "The weather"])
    assert plain.text == spanish.translate([text])[0].text != prefixed.text


@pytest.mark.parametrize("character", ["\U000f0000", "\U00104000", "\U00108000"])
def test_a_character_of_private_use_beside_a_prefix_is_no_span_of_another_line(spanish, character):
    line, another = f"El gato {character} duerme. El gato {character} come.", "Mira http://a.b/c ."
    (alone,) = spanish.translate([line], prefix="The")
    _, together = spanish.translate([another, line], prefix=["", "The"])
    assert (together.source, together.text) == (line, alone.text)
    assert together.text.startswith("The")
    assert together.text.count(character) == 1  # of the sentence without a prefix


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b c", "", "é. f"]), st.sampled_from([" ", "", "  "])),
        min_size=2,
        max_size=4,
    )
)
def test_words_and_links_keep_their_places(inputs):
    """Each sentence is copied word by word: so is the line, with or without spaces between."""
    sentences = [Sentence("", text, after) for text, after in inputs]
    sentences[-1] = sentences[-1]._replace(after="")
    readings = []
    for sentence in sentences:
        words = sentence.text.split()
        links = [(place, place) for place in range(len(words))]
        own_candidate = Candidate(
            sentence.text, 0.0, 0.0, [Word(word, 0.5) for word in words], links
        )
        readings.append(
            Translation(sentence.text, **vars(own_candidate), alternatives=[own_candidate])
        )
    whole_text = "".join(part.text + part.after for part in sentences)
    (line,) = lines.join([whole_text], [sentences], readings)
    assert line.text == whole_text
    if all(part.text for part in sentences):
        assert [word.text for word in line.words] == whole_text.split()
        assert line.alignment == [(place, place) for place in range(len(whole_text.split()))]


def test_generated_data_has_one_sentence_a_line(spanish, monkeypatch):
    monkeypatch.setattr(Translator, "sentence_language", None)
    text = " ".join(SPANISH)
    assert spanish.translate([text]) == spanish.translate([text], whole_lines=True)


NUMBERS = [
    "1",
    "-5",
    "1 2 3",
    "1.",
    "1)",
    "3,14",
    "1.000.000",
    "50 %",
    "12:30",
    "007",
    "+34 612",
    "１２３",
    "٣",
    "²",
]


@pytest.mark.parametrize("name", ["es-en", "es-en-tiny", "en-es", "en-fr", "es-en-recurrent"])
def test_a_line_that_is_only_a_number_is_its_own_translation(name):
    translator = Translator.open(name)
    translations = translator.translate([*NUMBERS, " 5\u00a0000 "], alignments=True, looks=True)
    assert [one.text for one in translations] == [*NUMBERS, " 5\u00a0000 "]
    for translation in translations:
        count = len(translation.text.split())
        assert (
            [word.text for word in translation.words]
            == translation.text.split()
            == translation.source.split()
        )
        assert translation.alignment == [(place, place) for place in range(count)]
        assert translation.doubts == translation.unknown == translation.unseen == []
        assert translation.score < 0
        assert all(look.shape[-2:] for look in translation.looks.values())
        queries, keys = translation.labels("decoder.0.cross")
        assert next(reversed(translation.looks.values())).shape[-2:] == (len(queries), len(keys))


def test_numbers_are_copied_by_every_search(spanish):
    text = ["1 2 3", "Hola."]
    own_search = spanish.search
    for search in (
        own_search.changed(beam=1),
        own_search.as_written(),
        own_search.changed(beam=4, nbest=4),
    ):
        assert spanish.translate(text, search=search)[0].text == "1 2 3"
    assert spanish.translate(text, whole_lines=True)[0].text == "1 2 3"
    translations = spanish.translate(
        text, search=own_search.changed(sampling=True, nbest=3), seed=1
    )
    assert [one.text for one in translations[0].alternatives] == ["1 2 3"] * 3
    both_translations = Translator.open(["es-en", "es-en"]).translate(["1 2 3"], alignments=True)
    assert both_translations[0].text == "1 2 3"
    assert spanish.look("1 2 3").text == "1 2 3"
    assert spanish.translate_text("1.\n\n-5\n") == "1.\n\n-5\n"
    text = "1" * 5000
    assert spanish.translate([text])[0].text == text


def test_a_number_has_the_scores_of_a_translation_that_is_given(spanish):
    (translation,) = spanish.translate(["12:30"])
    forced = spanish.look("12:30", "12:30")
    assert translation.log_probability == pytest.approx(forced.log_probability, abs=1e-4)
    assert translation.probabilities == pytest.approx(forced.probabilities, abs=1e-4)
    assert translation.target_pieces == forced.target_pieces


def test_a_number_is_translated_where_that_is_wanted(spanish, monkeypatch):
    translations = spanish.translate(["5", "5"], prefix=["It's", ""])
    assert [one.text for one in translations] == ["It's 5.", "5"]
    assert spanish.translate(["5"], search=spanish.search.changed(numbers=False))[0].text == "5."
    spelt = KnownWords.learn([Pair("5", "five"), Pair("un gato", "a cat")])
    monkeypatch.setattr(spanish, "words", spanish.words.merged(spelt))
    assert spanish.translate(["5"])[0].text == "5."


@pytest.mark.parametrize(
    "mark", ["\ufeff", "\u00ad", "\u200e", "\u200b", "\0", "\x07", "\x85", "\u2028"]
)
@pytest.mark.parametrize("place", [0, 4, 8])
def test_links_count_the_words_of_the_source_that_is_returned(spanish, mark, place):
    text = "El gato negro duerme."
    marked = text[:place] + mark + text[place:]
    (translation,) = spanish.translate([marked], alignments=True)
    (plain,) = spanish.translate([translation.source], alignments=True)
    assert (translation.text, translation.alignment) == (plain.text, plain.alignment)
    assert all(source < len(translation.source.split()) for source, _ in translation.alignment)
    assert not set(translation.source) & set("\ufeff\u00ad\u200e\u200b\0\x07\x85\u2028")
    if mark in "\ufeff\u00ad\u200e\u200b":
        assert translation.source == text
