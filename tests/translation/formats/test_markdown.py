"""Markdown: prose is translated, and all else stays to the character."""

from __future__ import annotations

import pytest
from tests.translation.formats.shouting import upper

from regard.translation.formats import FORMATS

pytest.importorskip("markdown_it")

PAGE = """---
title: gato
---
# Un *gato* {#id}

Hola **mi *gato* b** y `co de` [li*n*k](http://gato "t") <b>x</b> ![im a](gato) a\\*b &amp; <http://gato>.
Dos ~~s~~ **no, 2 * 3  \nfin.

> cita de
> dos líneas\\
> y tres

- uno
- dos `gato`
  1. tres

| a | `b` \\| c |
|---|---|
| uno | [dos](x) y dos |

Título
======

    gato

```py
gato
```
<div>gato</div>

[ref]: http://x "gato"

[ref], [texto][ref] y **todo**.
"""


def translated(text: str) -> str:
    document = FORMATS["md"](text, "page.md")
    return document.translated([upper(passage) for passage in document.texts])


EXPECTED = (
    PAGE.replace("Un *gato* {#id}", "UN *GATO* {#ID}")
    .replace("Hola **mi *gato* b** y", "HOLA **MI *GATO* B** Y")
    .replace('[li*n*k](http://gato "t") <b>x</b>', '[LI*N*K](http://gato "t") <b>X</b>')
    .replace("a\\*b", "A\\*B")
    .replace("gato>.\nDos ~~s~~ **no", "gato>. DOS ~~S~~ **NO")
    .replace("fin.", "FIN.")
    .replace("cita de\n> dos líneas", "CITA DE DOS LÍNEAS")
    .replace("> y tres", "> Y TRES")
    .replace("- uno\n- dos", "- UNO\n- DOS")
    .replace("1. tres", "1. TRES")
    .replace("| a |", "| A |")
    .replace("| uno | [dos](x) y dos |", "| UNO | [DOS](x) Y DOS |")
    .replace("Título", "TÍTULO")
    .replace("[ref], [texto][ref] y **todo**.", "[REF][ref], [TEXTO][ref] Y **TODO**.")
)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_only_prose_is_translated(mark, newline):
    page = PAGE if newline == "\n" else PAGE.replace("`b` \\| c", "`b` c")
    expected = EXPECTED if newline == "\n" else EXPECTED.replace("`b` \\| c", "`b` C")
    assert translated(mark + page.replace("\n", newline)) == mark + expected.replace("\n", newline)


@pytest.mark.parametrize(
    ("translation", "written"),
    [
        ("1. x", "1\\. x"),
        ("# x", "\\# x"),
        ("- *x* [y](z) <b>", "\\- \\*x\\* \\[y\\](z) \\<b\\>"),
        ("2 is 3", "2 is 3"),
    ],
)
def test_a_translation_makes_no_marks(translation, written):
    assert FORMATS["md"]("gato", "page.md").translated([translation]) == written


def test_passages_have_their_lines():
    assert list(FORMATS["md"]("# a\n\n- b\n\n```\nx\n```\nc\n", "page.md").lines()) == [1, 3, 8]


@pytest.mark.parametrize(
    "text", ["", "\n", "***", "`a`", "    a\n", "[a]: b\n", "---\na: b\n---\n", "| 1 |\n|---|\n"]
)
def test_what_has_no_prose_stays(text):
    assert translated(text) == text


def test_text_between_two_rules_is_no_front_matter():
    page = "uno\n\n---\n\ndos\n\n---\n\ntres\n"
    assert translated(page) == page.upper()


def test_a_cell_with_a_bar_stays_and_its_neighbours_are_translated():
    table = "| {} \\| b | {} |\n|---|---|\n| gato \\| b | {} |\n"
    assert translated(table.format("a", "b", "a")) == table.format("a", "B", "A")


def test_the_mark_of_a_note_stays():
    assert translated("uno[^a]\n\n[^a]: dos\n") == "UNO[^a]\n\n[^a]: dos\n"
