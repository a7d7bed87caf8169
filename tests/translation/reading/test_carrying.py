"""Stand-ins: every one of a sentence is in its translation, once, at the place of its neighbours."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.translation.reading.translators import Answers, said

from regard.translation import lines
from regard.translation.settings.search import Search
from regard.translation.text.corpora import Pair
from regard.translation.translator import Translator
from regard.translation.words import KnownWords

TRAINING = [Pair("Tom vive aquí.", "Tom lives here."), Pair("Hoy vi a Mary.", "I saw Mary today.")]
KNOWN = KnownWords.learn(TRAINING * 5)
READABLE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZáéíóúñ0123456789 .,!?¿¡")


def translated(line, answer, words=KNOWN, **changes):
    """A line by a translator that answers each sentence by a function, and its sentences."""
    translator = Answers(lambda texts: [said(text, *answer(text)) for text in texts])
    search = Search(spelling=False, accents=False, **changes)
    (translation,) = lines.translate(
        [line], translator, search, words=words, doubts=None, language="es", readable=READABLE
    )
    sources, targets = translation.source.split(), translation.text.split()
    assert translation.source == line
    assert [word.text for word in translation.words] == targets
    assert all(a < len(sources) and b < len(targets) for a, b in translation.alignment)
    return translation, translator.sentences


def upper(text):
    return (text.upper().replace("TOM", "Tom").replace("MARY", "Mary"),)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ven ❤️", "VEN ❤️"),
        ("❤️ ven", "❤️ VEN"),
        ("ven❤️.", "VEN❤️."),
        ("ven. ❤️", "VEN. ❤️"),
        ("ven❤️aquí", "VEN❤️ AQUÍ"),
        ("el <b>gato</b> duerme.", "EL <b>GATO</b> DUERME."),
        ("<b>el gato duerme.</b>", "<b>EL GATO DUERME.</b>"),
        ("el <i>gato <b>negro</b></i>, sí.", "EL <i>GATO <b>NEGRO</b></i>, SÍ."),
        ("uno <b></b> dos", "UNO <b></b> DOS"),
        ("uno<br/>dos", "UNO<br/> DOS"),
        ("¿<b>ven</b>?", "¿<b>VEN</b>?"),
        ("<a><b>ven</b></a>", "<a><b>VEN</b></a>"),
        ("ven a {casa} hoy", "VEN A {casa} HOY"),
        ("`a b` y `c`, {d}", "`a b` Y `c`, {d}"),
        ("{d} {d}", "{d} {d}"),
        ("`a`", "`a`"),
        ("🙂 12:30", "🙂 12:30"),
        ("ven. <p>el gato.</p>", "VEN. <p>EL GATO.</p>"),
    ],
)
def test_spans_are_where_they_were(line, expected):
    for words in (KNOWN, None):
        assert translated(line, upper, words)[0].text == expected


def test_the_model_reads_no_span():
    _, sentences = translated("<b>ven</b> a {casa} ❤️", upper)
    assert sentences == ["ven a Tom", "ven a"]


def test_what_the_model_does_not_carry_is_taken_out():
    def answer(text):
        return (re.sub("Tom|Mary", "he", text),)

    translation, sentences = translated("ven a {casa} hoy", answer)
    assert sentences == ["ven a Tom hoy", "ven a Mary hoy", "ven a hoy"]
    assert translation.text == "ven a {casa} hoy"
    assert translation.read_as == {}


@pytest.mark.parametrize(("without", "read_as"), [(-1.0, {}), (-9.0, {"{casa}": "Tom"})])
def test_a_span_is_carried_where_the_sentence_needs_it(without, read_as):
    def answer(text):
        return text, (-1.0 if "Tom" in text else without)

    translation, sentences = translated("ven aquí {casa}", answer)
    assert sentences == ["ven aquí Tom", "ven aquí"]
    assert (translation.text, translation.read_as) == ("ven aquí {casa}", read_as)


def test_links_and_words_are_those_of_the_line():
    translation, _ = translated("ven a `mi casa` 🙂 hoy", upper)
    assert translation.text == "VEN A `mi casa` 🙂 HOY"
    assert {(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)} <= set(translation.alignment)
    targets = [target for _, target in translation.alignment]
    assert targets == sorted(targets)
    assert [word.confidence for word in translation.words] == [0.5, 0.5, 1.0, 1.0, 1.0, 0.5]


def test_tags_and_capitals_link_no_words_that_have_links():
    translator = Translator.open("es-en")
    tagged, plain = translator.translate(
        ["El <b>gato negro</b> duerme.", "El gato negro duerme."], alignments=True
    )
    assert tagged.text == "The <b>black cat</b> sleeps."
    assert tagged.alignment == plain.alignment == [(0, 0), (2, 1), (1, 2), (3, 3)]


def test_as_written_reads_everything():
    search = Search().as_written()
    translator = Answers(lambda texts: [said(text, text) for text in texts])
    line = "ven a {casa} ❤️"
    lines.translate([line], translator, search, words=KNOWN, doubts=None, language="es")
    assert translator.sentences == [line]


PARTS = [
    "ven",
    "gato.",
    "<b>",
    "</b>",
    "<i>",
    "</i>",
    "<x/>",
    "🙂",
    "{a}",
    "`b c`",
    "@d",
    "+34 5",
    "北京",
    "¿",
    ",",
]


@given(st.lists(st.tuples(st.sampled_from(PARTS), st.sampled_from(["", " "])), max_size=12))
def test_nothing_is_lost_or_doubled_and_pairs_stay_nested(parts):
    line = "".join(text + space for text, space in parts)
    for words in (KNOWN, None):
        translation, _ = translated(line, lambda text: (" ".join(reversed(text.split())),), words)
        for text in ("<x/>", "🙂", "`b c`", "<b>", "</b>", "<i>", "</i>"):
            assert translation.text.count(text) == line.count(text)
        assert crossings(line) > 0 or crossings(translation.text) == 0


def crossings(text):
    """How many tags are no halves of nested pairs."""
    tags = ""
    for tag in re.findall(r"</?[bi]>", text):
        tags += tag
        tags = tags.removesuffix("<b></b>").removesuffix("<i></i>")
    return len(tags)


@pytest.mark.parametrize("model", ["es-en", "es-en-recurrent"])
def test_bundled_models(model):
    translator = Translator.open(model)
    texts = [
        "Te quiero ❤️",
        "<b>El gato</b> duerme.",
        "Escribe a ana@x.com hoy.",
        "¿Dónde está Pablo?",
        "Ven YA a mi casa.",
    ]
    translations = [one.text for one in translator.translate(texts)]
    assert translations[0] == "I love you. ❤️"
    assert translations[1] == "<b>The cat</b> sleeps."
    assert "ana@x.com" in translations[2]
    assert translations[3] == "Where's Pablo?"
    assert re.search("[A-Z]{2}", translations[4])
