"""XLIFF: segments without a translation get one, and all else stays to the character."""

from __future__ import annotations

import re

import pytest
from tests.translation.formats.shouting import upper

from regard.errors import DataError
from regard.translation.formats import FORMATS

FILE = """<?xml version="1.0" encoding="ISO-8859-1"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="es" original="a"><body>
  <trans-unit id="1">
    <source>El <g id="1" x="a>b">gato</g> &amp; él<x id="2"/> duerme.</source>
  </trans-unit>
  <trans-unit id="2"><source>Hola</source><target/></trans-unit>
  <trans-unit id="3"><source>Sí</source><target>Yes</target></trans-unit>
  <trans-unit id="4" translate="no"><source>No</source></trans-unit>
  <group translate="no"><trans-unit id="5"><source>No</source></trans-unit></group>
  <trans-unit id="6"><source>12 <ph id="1">&lt;b&gt;</ph></source></trans-unit>
  <trans-unit id="7"><source>ñu <bpt id="1">&lt;b></bpt>negro<ept id="1">&lt;/b></ept></source>
    <target state="new"></target><note>x</note>
    <alt-trans><source>otro</source><target>other</target></alt-trans></trans-unit>
  <trans-unit id="8"><source>a</source><seg-source><mrk mtype="seg" mid="0">a</mrk></seg-source></trans-unit>
</body></file></xliff>"""
BOLD = 'ÑU <bpt id="1">&lt;b></bpt>NEGRO<ept id="1">&lt;/b></ept>'
REVIEW = '<target state="needs-review-translation">'


def translated(text: str) -> str:
    document = FORMATS["xlf"](text, "file.xlf")
    return document.translated([upper(passage) for passage in document.texts])


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_segments_without_a_translation_get_one(mark, newline):
    target = f'{REVIEW}EL <g id="1" x="a>b">GATO</g> &amp; ÉL<x id="2"/> DUERME.</target>'
    expected = (
        FILE.replace("duerme.</source>", f"duerme.</source>\n    {target}")
        .replace("<target/>", f"{REVIEW}HOLA</target>")
        .replace('<target state="new">', f'<target state="new">{BOLD}')
    )
    text, expected = (mark + side.replace("\n", newline) for side in (FILE, expected))
    assert translated(text) == expected


def test_version_2_has_segments_in_units():
    text = (
        '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="es"><file id="f"><unit id="1">'
        '<segment><source>El <pc id="1">gato</pc>.</source></segment>'
        '<segment state="final"><source>a b</source></segment><ignorable><source> </source></ignorable>'
        "</unit></file></xliff>"
    )
    target = '<target>EL <pc id="1">GATO</pc>.</target>'
    assert translated(text) == text.replace("gato</pc>.</source>", f"gato</pc>.</source>{target}")


def test_a_file_that_is_complete_stays():
    complete = translated(FILE)
    assert translated(complete) == complete


def test_passages_have_their_lines():
    assert list(FORMATS["xliff"](FILE, "file.xlf").lines()) == [4, 6, 12]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ":1: not well-formed XML: no element found"),
        ("<a/>", ":1: the file begins with <a>: no XLIFF"),
        ("<xliff>\n<", ":2: not well-formed XML"),
        ("<!DOCTYPE xliff [<!ENTITY a 'b'>]><xliff>&a;</xliff>", ":1: a document type"),
        ("<!DOCTYPE xliff SYSTEM 'file:///etc/passwd'><xliff/>", ":1: a document type"),
        ("<xliff>&a;</xliff>", ":1: not well-formed XML: undefined entity"),
        ("<xliff>" + "<g>" * 300, ":1: elements are nested more than 256 deep"),
        ("<xliff>\n<trans-unit/></xliff>", ":2: a <trans-unit> without <source>"),
    ],
)
def test_what_is_broken_or_hostile_is_refused_with_its_line(text, words):
    with pytest.raises(DataError, match=re.escape(words)):
        FORMATS["xlf"](text, "file.xlf")


@pytest.mark.parametrize("prefix", ["", "x:"])
def test_a_target_has_the_namespace_of_its_source(prefix):
    text = (
        (
            '<P:xliff version="1.2" xmlns:P="urn:a"><P:trans-unit id="1"><P:source>uno</P:source></P:trans-unit>'
            '<P:trans-unit id="2"><P:source>dos</P:source><P:target note="a/>b"/></P:trans-unit></P:xliff>'
        )
        .replace(":P=", f":{prefix[:-1]}=" if prefix else "=")
        .replace("P:", prefix)
    )
    state = 'state="needs-review-translation"'
    assert translated(text) == (
        text.replace(
            "uno</P:source>".replace("P:", prefix),
            f"uno</{prefix}source><{prefix}target {state}>UNO</{prefix}target>",
        ).replace(
            f'<{prefix}target note="a/>b"/>',
            f'<{prefix}target {state} note="a/>b">DOS</{prefix}target>',
        )
    )


@pytest.mark.parametrize("protection", ['translate="no"', 'mtype="protected"'])
def test_what_is_protected_within_a_sentence_stays(protection):
    source = f"El <mrk id='1' {protection}>Gran <g>Gato</g></mrk> duerme"
    text = f'<xliff version="2.0"><segment><source>{source}</source></segment></xliff>'
    target = source.replace("El", "EL").replace("duerme", "DUERME")
    assert f"<target>{target}</target>" in translated(text)


def test_text_with_the_form_of_a_short_tag_stays_text():
    text = "<xliff><segment><source>uno &lt;g1&gt; <x/></source></segment></xliff>"
    assert "<target>UNO &lt;g1&gt; <x/></target>" in translated(text)


def spaced(opening: str, source: str, version: str = "2.0") -> str:
    unit = "trans-unit" if version == "1.2" else "segment"
    return f'<xliff version="{version}"><file {opening}><{unit}><source>{source}</source></{unit}></file></xliff>'


@pytest.mark.parametrize("version", ["1.2", "2.0"])
@pytest.mark.parametrize(
    "source",
    [
        "  El  <g> gato</g>\n\tduerme. ",
        " uno\u00a0dos",
        "uno \n<x/> dos",
        "uno <x/>\n dos",
        "uno <x/>  <x/>\tdos ",
        "uno\r\ndos",
        "uno&#13;dos",
        "uno&#13;\r\ndos&#13;",
    ],
)
def test_white_space_is_kept_where_the_file_asks_for_it(source, version):
    def target(opening: str) -> str:
        result = translated(spaced(opening, source, version))
        return re.search("<target[^>]*>(.*)</target>", result, re.DOTALL)[1]

    shouted = re.sub(r"\w+(?![^<]*>)", lambda match: match[0].upper(), source)
    assert target('xml:space="preserve"') == shouted
    tidy = re.sub(r"(\s|&#13;)+", " ", shouted)
    assert target('xml:space="default"') == target("") == tidy


def test_a_new_target_keeps_white_space_as_its_source_does():
    text = (
        '<xliff version="2.0"><segment><source xml:space="preserve">a  b</source></segment></xliff>'
    )
    assert translated(text) == text.replace(
        "</source>", '</source><target xml:space="preserve">A  B</target>'
    )
    text = '<xliff xml:space="preserve"><segment xml:space="default"><source>a  b</source></segment></xliff>'
    assert "<target>A B</target>" in translated(text)
