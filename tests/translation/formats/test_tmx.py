"""Translation memories: units, languages and codes; what is broken or hostile is refused with its line."""

from __future__ import annotations

import gzip

import pytest

from regard.errors import ConfigurationError, DataError
from regard.translation.formats import tmx
from regard.translation.formats.tmx import LinkedUnit, Tmx, is_tmx, tmx_lines

pytest.importorskip("lxml")

HEADER = '<?xml version="1.0"?>\n<tmx version="1.4"><header srclang="es-MX"/><body>\n'
UNIT = '<tu><tuv xml:lang="{}"><seg>{}</seg></tuv><tuv xml:lang="{}"><seg>{}</seg></tuv></tu>\n'
END = "</body></tmx>\n"


def memory(tmp_path, text, *languages, name="a.tmx"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Tmx(path, *languages)


def unit(source, target, languages=("es-MX", "en")):
    return UNIT.format(languages[0], source, languages[1], target)


def test_units_are_rows_in_their_order_also_those_that_lack_a_language(tmp_path):
    text = HEADER + unit("uno", "one") + '<tu><tuv xml:lang="en"><seg>two</seg></tuv></tu>'
    text += unit("three", "tres", ("EN_us", "es")) + "<tu/>" + END
    rows = [("uno", "one"), ("", "two"), ("tres", "three"), ("", "")]
    assert list(memory(tmp_path, text).rows()) == rows
    packed = gzip.compress(text.encode())
    assert list(memory(tmp_path, packed, name="a.tmx.gz").rows()) == rows
    assert (
        list(
            memory(
                tmp_path, text.replace('"1.0"', '"1.0" encoding="UTF-16"').encode("utf-16")
            ).rows()
        )
        == rows
    )


def test_codes_are_no_text_and_what_is_highlighted_is(tmp_path):
    segment = (
        'a <bpt i="1">&lt;b&gt;<sub>code</sub></bpt><hi>b <ph/>c</hi><ept i="1"/> &amp; d<!-- e -->'
    )
    assert list(memory(tmp_path, HEADER + unit(segment, "f") + END).rows()) == [("a b c & d", "f")]


def test_a_document_type_elsewhere_is_not_read_and_old_attributes_are(tmp_path):
    text = (
        '<!DOCTYPE tmx SYSTEM "http://127.0.0.1:9/tmx14.dtd">\n<tmx><header srclang="*all*"/><body>'
    )
    text += unit("a", "b").replace("xml:lang", "lang") + END
    assert list(memory(tmp_path, text).rows()) == [("a", "b")]


def test_of_three_languages_two_are_named(tmp_path):
    text = HEADER + unit("uno", "one") + unit("dos", "deux", ("es", "fr-CA")) + END
    assert list(memory(tmp_path, text, "es", "fr").rows()) == [("uno", ""), ("dos", "deux")]
    assert list(memory(tmp_path, text, "fr", "en").rows()) == [("", "one"), ("deux", "")]
    with pytest.raises(
        ConfigurationError, match=r"a\.tmx:4: has the languages es, en, fr: name two"
    ):
        list(memory(tmp_path, text).rows())
    with pytest.raises(ConfigurationError, match="has no de, but es-MX, en, es, fr-CA"):
        list(memory(tmp_path, text, "es", "de").rows())


def test_a_language_may_be_named_with_its_region(tmp_path):
    text = HEADER + unit("uno", "one", ("es-MX", "en-GB")) + END
    assert list(memory(tmp_path, text, "es-MX", "en-GB").rows()) == [("uno", "one")]
    assert list(memory(tmp_path, text, None, "en-GB").rows()) == [("uno", "one")]
    with pytest.raises(ConfigurationError, match="has no en-US, but es-MX, en-GB"):
        list(memory(tmp_path, text, "es", "en-US").rows())


def test_of_two_regions_in_a_unit_the_exact_one_is_read_then_that_of_the_file(tmp_path):
    variants = {"es-ES": "coche", "es-MX": "carro", "en": "car", "en-GB": "motorcar"}
    text = HEADER + "<tu>"
    for language, segment in variants.items():
        text += f'<tuv xml:lang="{language}"><seg>{segment}</seg></tuv>'
    text += "</tu>" + unit("sol", "sun", ("es-ES", "en-US")) + END
    for languages, rows in {
        (): [("carro", "car"), ("sol", "sun")],
        ("es", "en-GB"): [("carro", "motorcar"), ("sol", "")],
        ("es-ES", "es-MX"): [("coche", "carro"), ("sol", "")],
    }.items():
        assert list(memory(tmp_path, text, *languages).rows()) == rows
    elsewhere = text.replace("es-MX", "es-AR").replace('srclang="es-AR"', 'srclang="*all*"')
    assert next(memory(tmp_path, elsewhere, "es", "en").rows()) == ("coche", "car")


def test_two_regions_of_one_language_alone_are_named(tmp_path):
    text = HEADER + unit("coche", "carro", ("es-ES", "es-MX")) + END
    assert list(memory(tmp_path, text, "es-ES", "es-MX").rows()) == [("coche", "carro")]
    with pytest.raises(ConfigurationError, match="has one language, es-ES, es-MX: for two regions"):
        list(memory(tmp_path, text).rows())


BOMB = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "' + "&a;" * 9 + '">]>\n'


@pytest.mark.parametrize(
    ("text", "objection"),
    [
        (HEADER + unit("a", "b"), "a.tmx:4: .*"),
        ("", "a.tmx:1: .*"),
        ("a\tb\n", "a.tmx:1: .*"),
        (b"\x00\xff\xfe\x01", "a.tmx:1: .*"),
        ("<html/>", "no translation unit"),
        (HEADER + END, "no translation unit"),
        (BOMB + HEADER[22:] + unit("&b;", "c") + END, "declares entities"),
        (
            '<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/passwd">]>\n' + HEADER[22:] + unit("&a;", "c") + END,
            "declares entities",
        ),
        (HEADER + unit("&nbsp;", "b") + END, "a.tmx:3: not well-formed XML: Entity 'nbsp'"),
        (
            '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n' + HEADER[22:] + unit("&nbsp;", "b") + END,
            "a.tmx:3: &nbsp; is not read",
        ),
        (HEADER + "<a>" * 100_000, "a.tmx:3: .*depth"),
        (HEADER + unit('<ph x="' + "a" * 20_000_000 + '"/>', "b") + END, "a.tmx:.*"),
        (HEADER + "<prop>a</prop>" * 2_000_000, "no <tu> ends in the"),
    ],
    ids=[
        "not closed", "empty", "a table", "binary", "another file", "no unit", "bomb", "file", "unknown", "outside",
        "depth", "size", "no end",
    ],
)  # fmt: skip
def test_what_is_broken_or_hostile_is_refused_with_its_line(tmp_path, text, objection):
    with pytest.raises(DataError, match=objection):
        list(memory(tmp_path, text).rows())


def test_units_that_were_read_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(tmx, "LARGEST_ELEMENT", 2**18)
    path = tmp_path / "many.tmx"
    path.write_text(HEADER + unit("a b", "c d") * 10_000 + END)
    kept = 0
    for _, element in tmx.elements(path, "tu"):
        kept = max(kept, len(element.getparent()))
    assert kept < 1000


def test_what_is_written_is_read_again_with_its_links(tmp_path):
    texts = ('a < "b" &amp;\re', "c\x00d")
    linked = LinkedUnit(texts, (["a", "<", '"b"', "&amp;"], ["c", "d"]), "0-0")
    lines = list(tmx_lines(iter([linked]), ("es", "en")))
    path = tmp_path / "a.tmx"
    path.write_text("\n".join(lines))
    assert list(Tmx(path).rows()) == [(texts[0], "c d")]
    ((_, _element),) = tmx.elements(path, "tu")
    assert "".join(lines).count("<prop") == 3


def test_a_memory_is_known_by_its_name(tmp_path):
    assert all(map(is_tmx, [tmp_path / "a.TMX", tmp_path / "a.tmx.gz"]))
    assert not any(map(is_tmx, [tmp_path / "tmx", tmp_path / "a.tsv"]))
