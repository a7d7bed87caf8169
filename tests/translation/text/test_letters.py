"""Accents: restored where they were left out, untouched where they were written."""

from hypothesis import given
from hypothesis import strategies as st

from regard.translation.text.letters import Accents, without_accents

TEXT = [
    "¿Qué es esto?",
    "¿Qué quiere?",
    "Creo que está aquí.",
    "El gato que tengo está allí.",
    "Esta casa es de mi hermana.",
    "Dice que el niño está aquí.",
    "Vive en esta casa.",
    *["Está enfermo.", "Está lejos.", "¿Dónde está?", "Está triste.", "No está mal."] * 6,
] * 10
LEARNT = Accents.learn(TEXT)
KNOWN = frozenset("qué es esto quiere él creo que está aquí el gato tengo allí esta casa".split())


def test_a_text_without_accents_gets_those_of_the_training_text():
    for text in set(TEXT):
        assert LEARNT.restored(without_accents(text), KNOWN) == text


def test_a_neighbour_decides_against_the_usual_spelling():
    assert LEARNT.after["¿ que"] == "qué"
    assert LEARNT.before["esta casa"] == "esta"
    assert "está" in LEARNT.usual


def test_a_text_with_accents_keeps_its_known_words():
    assert (
        LEARNT.restored("Cómo vive en esta habitacion.", KNOWN) == "Cómo vive en esta habitacion."
    )
    assert LEARNT.restored("Qué esta aqui.", KNOWN) == "Qué esta aquí."


def test_a_name_is_no_spelling_of_a_word():
    accents = Accents.learn(["Me llamo Tomás.", "Tomás come."] * 20 + ["Lo tomas todo."])
    assert accents.restored("Tu tomas el tren con Tomas.", KNOWN) == "Tu tomas el tren con Tomás."
    assert accents.restored("Lo tomas.", KNOWN) == "Lo tomas."


def test_capitals_stay():
    assert LEARNT.restored("AQUI ESTA EL NINO", KNOWN) == "AQUÍ ESTÁ EL NIÑO"
    assert LEARNT.restored("Aqui", KNOWN) == "Aquí"


@given(
    st.lists(
        st.sampled_from(sorted({*" ".join(TEXT).split(), *without_accents(" ".join(TEXT)).split()}))
    )
)
def test_nothing_but_accents_changes(words):
    text = " ".join(words)
    read = LEARNT.restored(text, KNOWN)
    assert without_accents(read) == without_accents(text)


@given(st.lists(st.text(alphabet="xé\u0301\u0303 .¿", max_size=20), max_size=5))
def test_any_text_is_learnt(sources):
    accents = Accents.learn(sources * 9)
    for text in sources:
        accents.restored(text, frozenset())


def test_a_language_without_accents_has_none():
    accents = Accents.learn(["The cat sleeps.", "A dog barks."] * 10)
    assert accents == Accents()
    assert accents.restored("The cat.", frozenset()) == "The cat."
