"""Subtitles: captions and their sentences are read, all else stays, and what is broken is refused with its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.translation.formats.shouting import upper

from regard.errors import DataError
from regard.translation.formats import FORMATS, Document
from regard.translation.formats.subtitles import divide

pytest.importorskip("pysubs2")

SRT = """\
\ufeff1\r
00:00:01,000 --> 00:00:02,500 X1:10\r
<i>Le dije a mi hermano\r
que</i>\r
\r
\r
7\r
00:00:02,600 --> 00:00:04,000\r
no venga mañana.\r
\r
8\r
00:00:05,000 --> 00:00:06,000\r
- ¿Qué?\r
- {\\an8}El <b>gato\\No</b>.\r
\r
9\r
00:00:07,000 --> 00:00:08,000\r
\r
10\r
00:00:09,000 --> 00:00:10,000\r
♪ 42 ♪\r
\r
x\r
"""
VTT = """\
WEBVTT - a film

STYLE
::cue { color: red }

NOTE El gato duerme.

intro
00:01.000 --> 00:02.500 line:0
<v Ana>Hace <00:01.500>frío &amp; <00:01.800>llueve.</v>

2
00:05.000 --> 00:06.000

NOTE a note
01:00:07.000 --> 01:00:08.000
El gato
duerme.

NOTE the end"""


def read(text: str, kind: str) -> Document:
    return FORMATS[kind](text, f"film.{kind}")


def test_captions_of_subrip():
    document = read(SRT, "srt")
    assert document.texts == [
        "Le dije a mi hermano que no venga mañana.", "¿Qué?", "El <g1>gato\\No</g1>.", "x",
    ]  # fmt: skip
    assert list(document.lines()) == [3, 13, 14, 23]
    changes = {
        "Le dije a mi hermano\r\nque": "I told my brother not\r\nto",
        "no venga": "come",
        "mañana.": "tomorrow.",
        "¿Qué?": "What?",
        "El <b>gato\\No</b>.": "The <b>cat</b>.",
        "\r\nx\r": "\r\ny\r",
    }
    expected = SRT
    for source, target in changes.items():
        assert expected.count(source) == 1
        expected = expected.replace(source, target)
    translations = ["I told my brother not to come tomorrow.", "What?", "The <g1>cat</g1>.", "y"]
    assert document.translated(translations) == expected


def test_captions_of_webvtt():
    document = read(VTT, "vtt")
    assert document.texts == ["Hace <x1/>frío & <x3/>llueve.", "El gato duerme."]
    result = document.translated(["It <x3/>rains & it's <x1/><cold>.", "Sleeps."])
    expected = VTT.replace(
        "Hace <00:01.500>frío &amp; <00:01.800>llueve.",
        "It <00:01.500>rains &amp; it's <00:01.800>&lt;cold&gt;.",
    ).replace("El gato\nduerme.", "Sleeps.")
    assert result == expected


def caption(text: str, kind: str = "srt") -> Document:
    return read(f"{HEADS[kind]}{text}\n", kind)


HEADS = {
    "srt": "1\n00:00:01,000 --> 00:00:02,000\n",
    "vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\n",
}


@pytest.mark.parametrize(
    ("text", "kind", "sentences", "expected"),
    [
        ("<i>Un</i> gato", "srt", ["<g0>Un</g0> gato"], "<i>UN</i> GATO"),
        ("<i>- Un</i> gato", "srt", ["<g0><x1/>Un</g0> gato"], "<i>- UN</i> GATO"),
        ("♪ <i>Un gato</i> ♪", "srt", ["Un gato"], "♪ <i>UN GATO</i> ♪"),
        (
            "{\\an8}Un {\\i1}gato{\\i0} x",
            "srt",
            ["Un <g1>gato</g1> x"],
            "{\\an8}UN {\\i1}GATO{\\i0} X",
        ),
        ("<v Ana>Un gato</v> <v Bo>No", "vtt", ["Un gato", "No"], "<v Ana>UN GATO</v> <v Bo>NO"),
        (
            "<v Ana>Un <c.red.big>gato</c> y <b>yo",
            "vtt",
            ["Un <g1>gato</g1> y <x5/>yo"],
            "<v Ana>UN <c.red.big>GATO</c> Y <b>YO",
        ),
        ("Un <i>gato\nnegro</i> x", "vtt", ["Un <g1>gato negro</g1> x"], "UN <i>GATO\nNEGRO</i> X"),
        ("un &lt;g1> <i>y</i> no", "vtt", ["un <x1/> <g3>y</g3> no"], "UN &lt;g1&gt; <i>Y</i> NO"),
    ],
)
def test_tags_inside_a_caption_go_with_their_words(text, kind, sentences, expected):
    document = caption(text, kind)
    assert document.texts == sentences
    assert document.translated(list(map(upper, sentences))) == f"{HEADS[kind]}{expected}\n"


def test_a_pair_of_tags_over_two_captions_is_closed_and_opened_again():
    text = "WEBVTT\n\n00:01.000 --> 00:02.000\nUno <i>dos\n\n00:02.000 --> 00:03.000\ntres</i> cuatro.\n"
    document = read(text, "vtt")
    assert document.texts == ["Uno <g1>dos tres</g1> cuatro."]
    assert document.translated(["One <g1>two three</g1> four."]) == (
        text.replace("Uno <i>dos", "One <i>two</i>").replace("tres</i> cuatro", "<i>three</i> four")
    )


@pytest.mark.parametrize("term", ["</g1>", "<g1>", "</g7>"])
def test_what_looks_like_a_tag_in_a_translation_is_text(term):
    assert caption("Un gato.").translated([f"A {term} cat."]) == f"{HEADS['srt']}A {term} cat.\n"


def test_captions_with_times_of_words_are_translated_by_themselves():
    text = (
        "WEBVTT\n\n00:01.000 --> 00:02.000\nUno <00:01.500>dos\n\n00:02.000 --> 00:03.000\ntres.\n"
    )
    assert read(text, "vtt").texts == ["Uno <x1/>dos", "tres."]


def test_tags_that_a_translation_lost_follow_its_text():
    assert caption("Un <i>gato</i>.").translated(["A cat."]) == f"{HEADS['srt']}A cat.<i></i>\n"


@pytest.mark.parametrize(("text", "kind"), [(SRT, "srt"), (VTT, "vtt")], ids=["srt", "vtt"])
def test_all_but_the_texts_stays(text, kind):
    document = read(text, kind)
    removed = document.translated([""] * len(document.texts))
    letters = iter(text)
    assert all(letter in letters for letter in removed)  # nothing is added or moved
    lines = [line for line in text.split("\n") if "-->" in line or "NOTE" in line or "::" in line]
    assert [line for line in removed.split("\n") if line in lines] == lines


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("Hola.\n", "srt", ":1: no times"),
        ("1\n00:00:01,000 --> x\nHola.\n", "srt", ":2: expected two times"),
        ("1\n00:00:01,000 00:00:02,000\nHola.\n", "srt", ":2: expected two times"),
        ("1\n00:00:03,000 --> 00:00:02,000\nHola.\n", "srt", ":2: the caption ends before"),
        ("1\n00:00:01,000 --> 00:00:02,000\nHola." + "\n" * 150 + "x", "srt", ":3: 100 empty"),
        ("00:01.000 --> 00:02.000\nHola.\n", "vtt", ":1: expected WEBVTT"),
        ("WEBVTT\n\n00:01.000 --> 00:02\nHola.\n", "vtt", ":3: expected two times"),
    ],
)
def test_what_is_broken_is_refused_with_its_line(text, kind, message):
    with pytest.raises(DataError, match=rf"film\.{kind}{message}"):
        read(text, kind)


@pytest.mark.parametrize("text", ["WEBVTT", "\ufeffWEBVTT\n\nNOTE only\n"])
def test_a_file_without_captions_stays(text):
    assert read(text, "vtt").translated([]) == text
    assert read("", "srt").translated([]) == ""


@given(st.text("ab ", max_size=40), st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_shares_of_a_text_join_to_it_and_have_words_where_there_are_enough(text, lengths):
    text = " ".join(text.split())
    shares = divide(text, lengths)
    assert len(shares) == len(lengths)
    assert " ".join(filter(None, shares)) == text
    empty = max(0, len(lengths) - len(text.split()))
    assert shares[len(shares) - empty :] == [""] * empty
    assert all(shares[: len(shares) - empty])


@given(st.text("a1\n\r <>-:{}\\N&;♪", max_size=60))
def test_any_caption_is_read_or_refused(payload):
    for kind, text in (
        ("srt", f"1\n00:00:01,000 --> 00:00:02,000\n{payload}"),
        ("vtt", f"WEBVTT\n\n00:01.000 --> 00:02.000\n{payload}"),
    ):
        try:
            document = read(text, kind)
        except DataError:
            continue
        assert document.translated([""] * len(document.texts)).startswith(
            text[: text.rfind("000\n")]
        )
