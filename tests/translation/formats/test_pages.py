"""HTML: the text between tags is translated, and all else stays to the character."""

from __future__ import annotations

import pytest
from tests.translation.formats.shouting import upper

from regard.errors import DataError
from regard.translation.formats import FORMATS

PAGE = """<!DOCTYPE html>
<html lang="es"><head><title>Un gato</title>
<meta name="description" content="Una &quot;casa&quot;"><style>p { color: red }</style></head>
<body class=x><!-- un <b>gato</b> -->
<p>El <b class='a>b'>gato</b> &amp; el perro <img alt="foto" src=gato> duermen.<br/>
Sí &nbsp; no <code>x <i>y</i></code> fin</P>
<p><a href=x title="ir a"><b>Todo</b></a></p><input placeholder='Tu nombre'>
<p translate=no>No</p><div class="a notranslate"><div>No</div>No</div>
<script>if (a < b && "gato") { f("<p>gato</p>") }</script><pre>gato  1</pre>
5 < 6 y más &lt;tú&gt; 12 <b>sin fin <?php gato ?> <p>fin <i></i>"""


def translated(text: str) -> str:
    document = FORMATS["html"](text, "page.html")
    return document.translated([upper(passage) for passage in document.texts])


def test_only_text_and_attributes_for_readers_are_translated():
    assert translated(PAGE) == (
        PAGE.replace("Un gato<", "UN GATO<")
        .replace("Una &quot;casa&quot;", "UNA &quot;CASA&quot;")
        .replace(">gato</b> &amp; el perro", ">GATO</b> &amp; EL PERRO")
        .replace("<p>El", "<p>EL")
        .replace("foto", "FOTO")
        .replace("duermen", "DUERMEN")
        .replace("Sí &nbsp; no", "SÍ NO")
        .replace(" fin</P>", " FIN</P>")
        .replace("ir a", "IR A")
        .replace("Todo", "TODO")
        .replace("Tu nombre", "TU NOMBRE")
        .replace("5 < 6 y más &lt;tú&gt; 12", "5 &lt; 6 Y MÁS &lt;TÚ&gt; 12")
        .replace("sin fin", "SIN FIN")
        .replace("<p>fin", "<p>FIN")
    )


def test_tags_inside_a_sentence_are_short_ones_for_the_translator():
    document = FORMATS["html"]('<p><i>Un <a href="x">gato</a> y <br>otro</i></p>', "page.html")
    assert document.texts == ["Un <g1>gato</g1> y", "otro"]


@pytest.mark.parametrize("text", ["", " \n ", "12 < 13", "<p></p>", "&amp;", "<p><"])
def test_what_has_no_text_stays(text):
    assert translated(text) == text


def test_a_translation_opens_no_tag():
    document = FORMATS["html"]("<p>gato</p>", "page.html")
    assert document.translated(["<script>alert(1)</script>"]) == (
        "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"
    )


def test_passages_have_their_lines():
    assert list(FORMATS["html"]("<p>\n\nuno\r\n<p>dos</p>", "page.html").lines()) == [3, 4]


@pytest.mark.parametrize("begin", ["<!--", "<a ", "<![x", "<", "</", "<?", "<!--x>", "<a x='"])
def test_what_never_ends_is_refused_soon(begin):
    with pytest.raises(DataError, match=r"^page.html:\d+: <.* occurs, and never"):
        FORMATS["html"]("\n" + begin * 20_000, "page.html")


def test_text_with_the_form_of_a_short_tag_stays_text():
    page = "<p>uno &lt;g1&gt;&lt;script&gt; <b>dos</b></p>"
    for translation in ("x <x1/><script> <g3>y</g3>", "nothing of it"):
        translated_page = FORMATS["html"](page, "page.html").translated([translation])
        assert "<script" not in translated_page
        assert "&lt;g1&gt;" in translated_page


def test_what_looks_like_an_attribute_within_another_one_stays():
    page = """<p data-tip="<img alt='gato'>" alt=x title='un "gato"'>"""
    assert translated(page) == page.replace("""'un "gato"'""", "'UN &quot;GATO&quot;'")


def test_the_description_for_other_sites_is_translated():
    page = '<meta property="og:title" content="gato"><meta name="author" content="gato">'
    assert translated(page) == page.replace("gato", "GATO", 1)


def test_white_space_around_a_text_is_kept_however_it_is_written():
    assert translated("<p>&nbsp;&#160; uno &nbsp;<b>dos</b>&nbsp;</p>") == (
        "<p>&nbsp;&#160; UNO <b>DOS</b>&nbsp;</p>"
    )


def test_each_attribute_within_a_sentence_gets_its_own_translation():
    breaks = "uno&#13;dos&#13;\n  tres cuatro"
    for newline in ("\n", "\r\n"):
        value = breaks.replace("\n", newline)
        assert translated(f"<p title='{value}'>") == f"<p title='{value.upper()}'>"
    assert translated('<p>a <a title="b" alt="c">d</a> e <a title="f">g</a> h') == (
        '<p>A <a title="B" alt="C">D</a> E <a title="F">G</a> H'
    )


@pytest.mark.parametrize(
    "page",
    [
        "<ul><li translate=no>NO<li>sí</ul>sí",
        "<ul><li translate=no>NO <ul><li>NO</ul> NO<li>sí</ul>sí",
        "<ul><li translate=no><div>NO<li>sí</ul>sí",
        "<ul><li translate=no>NO</ul>sí",
        "<ul><li class=notranslate>NO <b>NO</ul>sí",
        "<div><p translate=no>NO <i>NO<p>sí</div>sí",
        "<div><p translate=no>NO</div>sí",
        "<p translate=no>NO<table><tr><td>sí</table>sí",
        "<b><p translate=no>NO</b> NO</p>sí",
        "<p translate=no>NO</i></section></ul> NO</p>sí",
        "<dl><dt translate=no>NO<dd>sí<dt>sí</dl>sí",
        "<dl><dt>sí<dd translate=no>NO<p>NO<dt>sí</dl>sí",
        "<table><tr><td translate=no>NO<p>NO<td>sí<tr><td>sí</table>sí",
        "<table><tr translate=no><td>NO<td>NO<tr><td>sí</table>sí",
        "<table><thead translate=no><tr><th>NO<tbody><tr><td>sí</table>sí",
        "<table><tr><td translate=no>NO <table><tr><td>NO</table> NO<td>sí</table>sí",
        "<select><option translate=no>NO<option>sí</select>sí",
        "<select><optgroup translate=no><option>NO<optgroup><option>sí</select>sí",
        "<ruby>sí<rt translate=no>NO<rp>sí</ruby>sí",
        "<p translate=no>NO<hr>sí",
        "<p translate=no>NO<hr/>sí",
        "<p>sí <code>NO</code> sí <span translate=no>NO <span>NO</span> NO</span> sí",
        "<p><i>sí <b translate=no>NO</b> sí</i> sí",
        "<pre>NO<b>NO</b> NO</pre>sí",
    ],
)
def test_what_is_not_translated_ends_where_its_element_does(page):
    assert translated(page) == page.replace("sí", "SÍ")
