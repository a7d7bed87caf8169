"""Placeholders: names and numbers reach the translation, and nothing else changes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.translation.reading.translators import Answers

from regard.errors import CorruptedError
from regard.translation.opening import open_runs
from regard.translation.reading.placeholders import lost_terms, with_placeholders
from regard.translation.reading.readings import Reading
from regard.translation.results import Candidate, Translation, Word
from regard.translation.settings.search import Search
from regard.translation.text.corpora import Pair
from regard.translation.translator import Translator
from regard.translation.words import KnownWords

TRAINING = [
    Pair("Tom vive aquí.", "Tom lives here."),
    Pair("Ayer vi a Tom en la calle.", "I saw Tom in the street yesterday."),
    Pair("Hoy vi a Mary.", "I saw Mary today."),
    Pair("Él no come en Londres.", "He doesn't eat in London."),
    Pair("Cuesta 2.000 yenes.", "It costs 2,000 yen."),
] * 5
KNOWN = KnownWords.learn(TRAINING)


def translated_as(text: str, log_probability: float = -1.0, links=()) -> Translation:
    words = [Word(word, 0.5) for word in text.split()]
    candidate = Candidate(text, log_probability, log_probability, words, list(links))
    return Translation("", **vars(candidate), target_pieces=words, alternatives=[candidate])


@pytest.mark.parametrize(
    ("source", "text", "lost"),
    [
        ("Ayer vi a Miguel en la calle.", "I saw Migal.", ["Miguel"]),
        ("Ayer vi a Miguel en la calle.", "I saw Miguel.", []),
        ("Ayer vi a Ana María en la calle.", "I saw Ana.", ["Ana María"]),
        ("Hoy vi a Mary.", "I saw Mother today.", ["Mary"]),  # no text has the word in its place
        ("Hoy vi a Mary.", "I saw Tom today.", []),  # known words are the model's
        ("Desayuné aquí.", "I ate here.", []),  # a capital at the beginning marks no name
        ("Miguel.", "Watch.", []),
        ("Привет aquí.", "Hello.", []),
        ("El Gato No Come.", "The cat does not eat.", []),
        ("Cuesta 1.234 euros.", "It costs 1.234 euros.", ["1.234"]),
        ("Cuesta 1.234 euros.", "It costs 1,234 euros.", []),
        ("Son las 10:30.", "It's half past ten.", []),  # numbers may be words
        ("Son las 10:30 y 5.", "It is 10:3 and 5.", ["10:30"]),
        ("El 7 y el 17.", "The 17 and the 71.", ["7"]),
        ("Cuesta 1.234,56 yenes.", "It costs 1,234.56 yen.", []),
        ("Cuesta 1,000 pesos.", "It costs 1,000 pesos.", []),
        ("Cuesta 1000 pesos.", "It costs 1,000 pesos.", []),
        ("Tengo 234 gatos.", "I have 1,234 cats.", ["234"]),
        ("Tiene 127.094.745 habitantes.", "It has 127,094,745 people.", []),
        ("Llámame al 963.360.788.", "Call 963,360,788.", ["963.360.788"]),
        ("Los años 80.", "The 1980s.", []),
        ("Son las 15:00.", "It's 3:00 p.m.", []),
        ("Vive en Finlandia y no en Irán.", "He lives in Finland, not Iran.", []),
        ('Me dijo: "Consultémoslo aquí".', '"Let us ask here," he said.', []),
        ("Échalo Xiomara abajo.", "Throw it down.", ["Xiomara"]),
        ("El Covid19 está aquí.", "Covid19 is here.", []),
    ],
)
def test_what_is_lost(source, text, lost):
    assert [
        part.text for part in lost_terms(KNOWN, source, translated_as(text)) if part.sure
    ] == lost


def test_capitals_that_mark_nouns_give_no_names():
    german = KnownWords.learn([Pair("Tom sagt, der Hund sieht Katze und Vogel.", "Tom says.")] * 9)
    assert german.names == []
    assert lost_terms(german, "Der Hund sieht Xaver.", translated_as("The dog sees.")) == []


def test_a_name_of_two_words_moves_the_words_behind_it():
    def translate(texts):
        assert texts == ["Ayer vi a Tom en la calle."]
        return [translated_as("I saw Tom there.", -0.2, [(1, 1), (3, 2), (4, 3)]) for _ in texts]

    source = "Ayer vi a Ana María en la calle."
    (reading,) = with_placeholders(
        KNOWN, [Reading(source, translated_as("I saw her there."))], Answers(translate), Search()
    )
    translation = reading.translation
    assert translation.text == "I saw Ana María there."
    assert [word.text for word in translation.words] == translation.text.split()
    assert translation.alignment == [(1, 1), (3, 2), (4, 2), (3, 3), (4, 3), (5, 4)]
    assert translation.read_as == {"Ana María": "Tom"}


@pytest.mark.parametrize("restored", ["I saw him.", "Tom and Tom.", "I saw Tomas."])
def test_a_translation_without_every_placeholder_once_is_thrown_away(restored):
    first_reading = Reading("Ayer vi a Miguel.", translated_as("I saw her."))
    translator = Answers(lambda texts: [translated_as(restored, -0.1) for _ in texts])
    assert with_placeholders(KNOWN, [first_reading], translator, Search()) == [first_reading]
    assert translator.sentences == ["Ayer vi a Tom.", "Ayer vi a Mary."]


def test_numbers_are_put_back_as_the_target_writes_them():
    first_reading = Reading("Cuesta 1.234 yenes.", translated_as("It costs 1.234 yen."))

    def translate(texts):
        return [
            translated_as(text.replace("Cuesta", "It costs").replace("yenes", "yen"))
            for text in texts
        ]

    (reading,) = with_placeholders(KNOWN, [first_reading], Answers(translate), Search())
    assert reading.translation.text == "It costs 1,234 yen."


def test_equal_names_have_the_same_placeholder_and_known_ones_none():
    translator = Answers(lambda texts: [translated_as(text) for text in texts])
    source = "Tom vi a Xiomara, y hoy Xiomara vi a Tom."
    (reading,) = with_placeholders(
        KNOWN, [Reading(source, translated_as("Tom saw her."))], translator, Search()
    )
    assert translator.sentences == ["Tom vi a Mary, y hoy Mary vi a Tom."]
    assert reading.translation.text == source
    assert reading.translation.read_as == {"Xiomara": "Mary"}


def test_a_much_less_probable_translation_is_thrown_away():
    first_reading = Reading("Ayer vi a Miguel.", translated_as("I saw her.", -1.0))
    second_lines = [translated_as("I saw Tom.", -9.0), translated_as("I saw Mary.", -9.0)]
    translator = Answers(lambda texts: [second_lines.pop(0) for _ in texts])
    assert with_placeholders(KNOWN, [first_reading], translator, Search()) == [first_reading]


TEXTS = st.text(alphabet="Tomabc 12.,-:", max_size=30)


@given(TEXTS, TEXTS)
def test_any_text_is_read(source, text):
    reading = Reading(source, translated_as(text))
    for term in lost_terms(KNOWN, source, reading.translation):
        assert source[term.start : term.stop] == term.text
    translator = Answers(lambda texts: [translated_as(again) for again in texts])
    (translated,) = with_placeholders(KNOWN, [reading], translator, Search())
    for term in lost_terms(KNOWN, source, translated.translation):
        assert term.text not in translated.translation.read_as


def test_the_bundled_model_keeps_names_numbers_and_accents():
    spanish = Translator.open("es-en")
    texts = ["Ayer vi a Miguel en la calle.", "La versión es la 20.9.3."]
    names, numbers = spanish.translate(texts)
    assert "Miguel" in names.text
    assert names.read_as == {"Miguel": "Tom"}
    assert names.source == texts[0]
    assert "20.9.3" in numbers.text
    accented, bare = spanish.translate(["¿Dónde está el gato?", "¿Donde esta el gato?"])
    assert bare.text == accented.text
    assert bare.read_as == {"Donde": "Dónde", "esta": "está"}
    (translation,) = spanish.translate([texts[0]], search=spanish.search.as_written())
    assert "Miguel" not in translation.text
    assert translation.read_as == {}


def test_spoilt_words_are_refused(tmp_path):
    (run,), _ = open_runs("es-en")
    run.export(tmp_path / "copy", "float32")
    path = tmp_path / "copy" / "words.json"
    assert KnownWords.open(open_runs(str(tmp_path / "copy"))[0][0]) == KnownWords.open(run)
    path.write_text(json.dumps({"version": 1}))
    with pytest.raises(CorruptedError, match=r"words.json"):
        KnownWords.open(open_runs(str(tmp_path / "copy"))[0][0])
