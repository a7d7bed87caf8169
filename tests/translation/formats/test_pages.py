"""HTML: the text between tags is translated, and all else stays to the character."""

from __future__ import annotations

import pytest

from regard.errors import DataError
from regard.translation.formats import FORMATS

PAGE = """<!DOCTYPE html>
<html lang="es"><head><title>Un gato</title><style>p { color: red }</style></head>
<body class=x><!-- un <b>gato</b> -->
<p>El <b>gato</b> &amp; el perro duermen.<br/>Sí &nbsp; no</P>
<script>if (a < b && "gato") { f("<p>gato</p>") }</script><pre>gato  1</pre>
5 < 6 y más &lt;tú&gt; 12 <code>gato</code> <img alt="gato"> <?php gato ?> &copy
<p>fin"""


def translated(text: str) -> str:
    document = FORMATS["html"](text, "page.html")
    return document.translated([passage.upper() for passage in document.texts])


def test_only_text_is_translated():
    assert translated(PAGE) == (
        PAGE.replace("Un gato<", "UN GATO<")
        .replace("El <b>gato</b> &amp; el perro duermen.", "EL <b>GATO</b> &amp; EL PERRO DUERMEN.")
        .replace("Sí &nbsp; no", "SÍ \xa0 NO")
        .replace("5 < 6 y más &lt;tú&gt; 12", "5 &lt; 6 Y MÁS &lt;TÚ&gt; 12")
        .replace("<p>fin", "<p>FIN")
    )


@pytest.mark.parametrize("text", ["", " \n ", "12 < 13", "<p></p>", "&amp;", "<p><"])
def test_what_has_no_text_stays(text):
    assert translated(text) == text


def test_a_translation_opens_no_tag():
    document = FORMATS["html"]("<p>gato</p>", "page.html")
    assert document.translated(["<script>alert(1)</script>"]) == (
        "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"
    )


def test_passages_have_their_lines():
    assert list(FORMATS["html"]("<p>\n\nuno\r\n<b>dos</b>", "page.html").lines()) == [3, 4]


@pytest.mark.parametrize("begin", ["<!--", "<a ", "<![x", "<", "</", "<?", "<!--x>", "<a x='"])
def test_what_never_ends_is_refused_soon(begin):
    with pytest.raises(DataError, match=r"^page.html:\d+: <.* occurs, and never"):
        FORMATS["html"]("\n" + begin * 20_000, "page.html")
