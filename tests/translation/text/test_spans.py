"""Spans: what a model cannot read is found, with its reason, and ordinary text has none."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.translation.text.replacements import replaced
from regard.translation.text.spans import Span, spans
from regard.translation.text.stand_ins import STAND_IN, StandIns

READABLE = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZáéíóúñ0123456789 .,;:!?¡¿'\"-%()$&+/"
)


@pytest.mark.parametrize(
    ("line", "texts", "reason"),
    [
        ("Visita https://a.es/b?c=1, luego.", ["https://a.es/b?c=1"], "address"),
        ("Visita www.a.es.", ["www.a.es"], "address"),
        ("Escribe a ana_1@x.org.", ["ana_1@x.org"], "address"),
        ("Usa `a b`, ``c`` y :py:func:`d`.", ["`a b`", "``c``", ":py:func:`d`"], "code"),
        ("Llama a leer() con max_size y --quiet.", ["leer()", "max_size", "--quiet"], "code"),
        ("Hola {name}, %d de %(total)s y ${x}.", ["{name}", "%d", "%(total)s", "${x}"], "placeholder"),
        ("@ana_92 en #viajes", ["@ana_92", "#viajes"], "user"),
        ("Llama al +34 612 345 678 hoy.", ["+34 612 345 678"], "number"),
        ("Páginas 3–35 y 4-6.", ["3–35", "4-6"], "number"),
        ("Los vuelos IB3456 e IB 345.", ["IB3456", "IB 345"], "number"),
        ("Te quiero ❤️.", ["❤️"], "symbol"),
        ("Hola 北京 y Wałęsa.", ["北京", "Wałęsa"], "script"),
        ("a &amp; b<br/>c", ["&amp;", "<br/>"], "markup"),
        ("El 50% de 3 < 5 años, el 12-05-2020 a las 10:30.", ["<"], "symbol"),
        ("El 50 % de Tom & Mary (no, 3.5 km).", [], ""),
        ("SON LAS 100 EN A 20.", [], ""),
        ("Я не знаю.", [], ""),
        ("", [], ""),
    ],
)  # fmt: skip
def test_what_is_found(line, texts, reason):
    line_spans = spans(line, READABLE)
    assert [span.text for span in line_spans] == texts
    assert {span.reason for span in line_spans} == ({reason} if texts else set())


@pytest.mark.parametrize(
    ("line", "roles"),
    [
        ("<b>a</b> c", ["opening", "closing"]),
        ("<b>a <i>b</b> c</i>", ["opening", "taken out", "closing", "taken out"]),
        ("<br>a</p>", ["taken out", "taken out"]),
        ("un **a** y *b*", ["opening", "closing", "opening", "closing"]),
        ("“a”, [b", ["opening", "closing", "taken out"]),
        ('<g id="1">a<x/></g>', ["opening", "taken out", "closing"]),
    ],
)
def test_halves_of_pairs(line, roles):
    assert [span.role for span in spans(line, READABLE)] == roles


@given(st.text(alphabet="ab <>/&;`{}%@#+1-–_.😂“”\U000f0001\U00100000", max_size=60))
def test_stand_ins_give_the_line_again(line):
    line_spans = spans(line, READABLE)
    assert all(line[span.start : span.stop] == span.text for span in line_spans)
    assert all(a.stop <= b.start for a, b in pairwise(line_spans))
    stand_ins = StandIns()
    text = stand_ins.put(line, line_spans)
    assert len(STAND_IN.findall(text)) == len(line_spans)
    assert (
        replaced(text, stand_ins.sources(text)) == replaced(text, stand_ins.targets(text)) == line
    )


def test_a_word_in_capitals_is_read_in_small_letters():
    stand_ins = StandIns()
    text = stand_ins.put("Ven YA, Tom", [Span(4, 6, "ya", "capitals")])
    assert STAND_IN.sub("|", text) == "Ven |ya|, Tom"
    assert replaced(text, stand_ins.sources(text)) == "Ven YA, Tom"


@pytest.mark.parametrize(
    "unit",
    [
        "<a",
        "`",
        "{",
        "%(",
        "a_",
        "a.",
        "😂",
        "<b>",
        "</b>",
        ":a",
        "+1 ",
        "1-",
        "&a",
        "“",
        "a@",
        "@",
        "--a",
        "$",
    ],
)
def test_time_grows_with_the_length_alone(unit):
    def seconds(count):
        begin = time.process_time()
        spans(unit * count, READABLE)
        return time.process_time() - begin

    def least(count):  # a collection of garbage may fall into one
        return min(seconds(count), seconds(count))

    # Eightfold text: about eightfold time, and 64 times if it grew with the square.
    assert least(32_000) < 20 * max(least(4_000), 0.01)


def test_a_stand_in_that_a_model_made_up_stays_as_it_is():
    stand_ins = StandIns()
    line = stand_ins.put("Visita www.a.es.", spans("Visita www.a.es.", READABLE))
    translation = line.replace("Visita", "Visit \U00101041")
    assert replaced(translation, stand_ins.targets(translation)) == "Visit \U00101041 www.a.es."
