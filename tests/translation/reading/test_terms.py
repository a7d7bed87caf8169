"""Glossaries: every term that overlaps no longer one is in the translation as it is listed."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.translation.reading.test_carrying import KNOWN, READABLE, TRAINING, upper
from tests.translation.reading.translators import Answers, said

from regard.errors import ConfigurationError
from regard.translation import lines
from regard.translation.settings.search import Search
from regard.translation.text.corpora import Pair
from regard.translation.translator import Translator
from regard.translation.words import KnownWords

WORDS = KnownWords.learn([*TRAINING, Pair("el gato negro duerme. ven", "")] * 5)


def translated(texts, glossary, answer=upper, words=WORDS, **options):
    translator = Answers(lambda sentences: [said(text, *answer(text)) for text in sentences])
    search = Search(spelling=False, accents=False, inventions=False, constraints=False)
    arguments = {"words": words, "doubts": None, "language": "es", "readable": READABLE}
    translations = lines.translate(
        texts, translator, search, glossary=glossary, **arguments | options
    )
    assert [one.source for one in translations] == texts
    for one in translations:
        assert [word.text for word in one.words] == one.text.split()
        places = len(one.source.split()), len(one.text.split())
        assert all(a < places[0] and b < places[1] for a, b in one.alignment)
    return translations, translator.sentences


@pytest.mark.parametrize(
    ("line", "glossary", "expected"),
    [
        ("el gato duerme.", {"gato": "feline"}, "EL feline DUERME."),
        ("Gato, ven.", {"gato": "feline"}, "feline, VEN."),
        ("el gato negro duerme", {"gato negro": "panther"}, "EL panther DUERME"),
        ("el gato duerme.", {"gato": "big old cat"}, "EL big old cat DUERME."),
        ("gato gato.", {"gato": "feline"}, "feline feline."),
        ("gato", {"gato": "feline"}, "feline"),
        ("el gato duerme", {"gat": "x", "GATO": "y"}, "EL GATO DUERME"),
        ("los gatos duermen", {"gato*": "cats"}, "LOS cats DUERMEN"),
        ("el gato duerme", {"gato": "="}, "EL gato DUERME"),
        ("el chirimbolo duerme", {"chirimbolo": "gadget"}, "EL gadget DUERME"),
        ("EL GATO DUERME", {"gato": "feline"}, "EL feline DUERME"),
        ("el GATO duerme", {"gato": "feline"}, "EL feline DUERME"),
        ("el <b>gato</b> ❤️ duerme", {"gato": "feline"}, "EL <b>feline</b> ❤️ DUERME"),
        ("ven a www.gato.es, gato", {"gato": "feline"}, "VEN A www.gato.es, feline"),
        ("`gato` ven", {"gato": "feline"}, "`gato` VEN"),
        ("`gato` ven", {"`gato`": "`cat`"}, "`cat` VEN"),
        ("24/7", {"24/7": "always"}, "always"),
        ("ven aquí muy gato", {"aquí": "T", "gato": "cat"}, "VEN T MUY cat"),
        ("usa C++ aquí", {"c++": "C plus"}, "USA C plus AQUÍ"),
        ("el gato.", {"gato": "U.S."}, "EL U.S."),
        ("el chirimbolo. ven.", {"chirimbolo": "U.S."}, "EL U.S. VEN."),
        ("el gato...", {"gato": "U.S."}, "EL U.S...."),
        ("el gato?", {"gato": "U.S."}, "EL U.S.?"),
    ],
)
def test_terms_are_as_they_are_listed(line, glossary, expected):
    for words in (WORDS, None):
        (translation,), _ = translated([line], glossary, words=words)
        assert translation.text == expected


def test_the_model_reads_the_term_in_its_sentence():
    (translation,), sentences = translated(["el gato duerme."], {"gato": "feline"})
    assert sentences == ["el gato duerme."]
    assert translation.terms == {"gato": "feline"}
    assert {(0, 0), (1, 1), (2, 2)} == set(translation.alignment)


def test_a_name_carries_a_term_that_the_training_text_does_not_know():
    (translation,), sentences = translated(["el chirimbolo duerme."], {"chirimbolo": "gadget"})
    assert sentences[0] == "el Tom duerme."
    assert translation.terms == {"chirimbolo": "gadget"}


def test_the_longest_term_wins_and_the_other_is_named():
    glossary = {"gato": "feline", "gato negro": "panther"}
    (translation,), _ = translated(["el gato negro duerme"], glossary)
    assert translation.text == "EL panther DUERME"
    assert translation.overlapping == ["gato"]
    assert translation.doubts == ["overlapping terms"]


def test_no_sentence_ends_within_a_term():
    (translation,), _ = translated(
        ["Vive. Ven a la R. Ciudad. Gato ven."], {"la r. ciudad. gato": "Rome"}
    )
    assert translation.text == "VIVE. VEN A Rome VEN."


def test_a_term_of_several_sentences_with_one_model_answer():
    (translation,), _ = translated(["gato. gato."], {"gato": "feline"})
    assert translation.text == "feline. feline."
    assert translation.terms == {"gato": "feline"}


def test_prefixes_are_refused():
    with pytest.raises(ConfigurationError, match="a prefix and a glossary: leave one of them out"):
        translated(["gato"], {"gato": "feline"}, prefix="The")


TOKENS = ["ven", "gato", "Gato", "GATO", "gato negro", "negro", "chirimbolo", "Sr. Paz", "R. Ven",
          "12", "<b>", "</b>", "❤️", "{a}", ",", ".", "¿", "\U000f0001", "北京"]  # fmt: skip
GLOSSARY = {
    "gato": "T1", "gato negro": "T2", "chirimbolo": "T3 T3", "sr. paz": "T4", "r. ven": "T5",
    "Gato": "T6", "12": "T7", "北京": "T8", "\U000f0001": "T9", "negro gato": "T10",
}  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from(TOKENS), st.sampled_from(["", " "])), max_size=12),
    st.sampled_from(["upper", "reversed", "dropped", "empty", "names dropped"]),
)
def test_every_term_comes_out_once(tokens, kind):
    line = "".join(text + space for text, space in tokens)
    answers = {
        "upper": str.upper,
        "reversed": lambda text: " ".join(reversed(text.split())),
        "dropped": lambda text: " ".join(text.split()[::2]),
        "empty": lambda text: "",
        "names dropped": lambda text: re.sub("Tom|Mary", "", text),
    }
    for words in (WORDS, KNOWN, None):
        (translation,), _ = translated(
            [line], GLOSSARY, lambda text: (answers[kind](text),), words=words
        )
        terms = [match.term.target for match in lines.Glossary(GLOSSARY).matches(line)[0]]
        assert Counter(re.findall(r"T\d+(?: T3)?", translation.text)) == Counter(terms)
        assert set(translation.terms.values()) == set(terms)


@pytest.mark.parametrize(
    ("log_probability", "expected"), [(-1.5, "A feline is SLEEPING."), (-2.0, "EL feline DUERME.")]
)
def test_a_search_that_writes_the_term_is_used_unless_it_is_less_probable(
    log_probability, expected
):
    class Constrained(Answers):
        def translate(self, sentences, search, prefixes=None, terms=None):
            if terms is None:
                return super().translate(sentences, search)
            assert (sentences, terms) == (texts[:1], [["feline"]])
            return [said("el gato duerme.", "A feline is SLEEPING.", 4 * log_probability)]

    def answer(sentences):
        return [
            said(text, text.upper().replace("FELINE", "feline"), -1.4 * len(text.split()))
            for text in sentences
        ]

    texts = ["el gato duerme.", "feline ven, gato.", "ven"]
    translations = lines.translate(
        texts, Constrained(answer), Search(inventions=False), words=WORDS, doubts=None,
        language="es", readable=READABLE, glossary={"gato": "feline"},
    )  # fmt: skip
    assert translations[0].text == expected
    assert [one.text for one in translations[1:]] == ["feline VEN, feline.", "VEN"]
    assert translations[0].terms == {"gato": "feline"}
    assert all(source < 3 for source, _ in translations[0].alignment)


def test_a_term_that_is_there_too_seldom_is_searched_for():
    searched = []

    class Constrained(Answers):
        def translate(self, sentences, search, prefixes=None, terms=None):
            searched.extend(terms or ())
            return super().translate(sentences, search)

    def answer(sentences):
        return [
            said(text, "a cat sees a feline." if "." in text else "feline, feline")
            for text in sentences
        ]

    lines.translate(
        ["el gato ve el gato.", "gato, gato"], Constrained(answer), Search(inventions=False), words=WORDS,
        doubts=None, language="es", readable=READABLE, glossary={"gato": "feline"},
    )  # fmt: skip
    assert searched == [["feline", "feline"]]


def test_the_search_of_a_model_writes_terms_that_fit():
    """The article of such a term is written for it; others are placed by links."""
    translator = Translator.open("es-en")
    linked = translator.search.changed(constraints=False)

    def text(target, search=None):
        glossary = {"mago": target}
        return translator.translate(["Tom es mago."], glossary=glossary, search=search)[0].text

    assert text("magician", linked) == "Tom is magician."
    assert text("magician") == "Tom is a magician."
    assert text("sophomores") == text("sophomores", linked) == "Tom is sophomores."


@pytest.mark.parametrize("model", ["es-en-tiny", "es-en"])
def test_bundled_models(model):
    translator = Translator.open(model)
    texts = ["El gato negro duerme.", "¿Dónde está el gato?", "Los gatos comen pescado."]
    glossary = {"gato*": "Félix", "duerme": "="}
    translations = translator.translate(texts, glossary=glossary)
    assert all(one.text.count("Félix") == 1 for one in translations)
    assert "duerme" in translations[0].text
    assert [one.terms for one in translations] == [
        {"gato": "Félix", "duerme": "duerme"}, {"gato": "Félix"}, {"gatos": "Félix"}
    ]  # fmt: skip


def test_the_time_is_linear_in_the_line():
    """Counted in steps of the tree: a term of many words that nearly begins everywhere."""
    glossary = lines.Glossary({" ".join(["a"] * 50 + ["b"]): "x", "a*": "y"})
    steps = Counter()
    node = type(glossary._folded)
    terms = node.terms

    def counted(self, words, place):
        steps[len(words)] += 1
        return terms(self, words, place)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node, "terms", counted)
        for size in (500, 1000):
            glossary.matches(" ".join(["a"] * size))
    assert steps[1999] < 2.2 * steps[999]
