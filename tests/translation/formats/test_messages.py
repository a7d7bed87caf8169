"""Messages of gettext: those without a translation get one, all else stays, and what is broken is refused."""

from __future__ import annotations

import os

import pytest

from regard.errors import DataError
from regard.translation.formats import FORMATS, Document

polib = pytest.importorskip("polib")

PO = """\
\ufeff# A program.\r
msgid ""\r
msgstr ""\r
"Content-Type: text/plain; charset=UTF-8\\n"\r
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\r
\r
#. For the door.\r
#: door.c:3\r
#, c-format\r
msgctxt "door"\r
msgid "Hay %d gatos."\r
msgstr ""\r
\r
msgid "Hecho."\r
msgstr "Done."\r
\r
#, fuzzy\r
msgid "Casi."\r
msgstr "Nearly."\r
\r
msgid "Un\u2028gato"\r
msgid_plural "%d gatos"\r
msgstr[0] ""\r
msgstr[1] ""\r
\r
   msgid ""\r
"  Hola \\"Ana\\".\\n"\r
"\\n"\r
"Adiós.\\n"\r
   msgstr ""\r
   ""\r
\r
msgid "%s: 12"\r
msgstr ""\r
\r
#~ msgid "viejo"\r
#~ msgstr ""\r
"""


def read(text: str) -> Document:
    return FORMATS["po"](text, "door.po")


def test_messages_without_a_translation_get_one():
    document = read(PO)
    assert document.texts == [
        "Hay %d gatos.", "Un gato", "%d gatos", 'Hola "Ana".', "Adiós.", "%s: 12",
    ]  # fmt: skip
    assert list(document.lines()) == [12, 23, 23, 30, 30, 34]
    result = document.translated(
        ["There are cats.", "A cat", "%d cats", 'Hello "Ana".', "Bye.", "%s: 12"]
    )
    expected = (
        PO.replace("#, c-format", "#, fuzzy, c-format")
        .replace('gatos."\r\nmsgstr ""', 'gatos."\r\nmsgstr "There are cats."')
        .replace('[0] ""\r\nmsgstr[1] ""', '[0] "A cat"\r\nmsgstr[1] "%d cats"')
        .replace(
            'msgstr ""\r\n   ""',
            'msgstr ""\r\n"  Hello \\"Ana\\".\\n"\r\n"\\n"\r\n"Bye.\\n"',
        )
        .replace('12"\r\nmsgstr ""', '12"\r\nmsgstr "%s: 12"')
    )
    assert result == expected
    entries = {entry.msgid: entry for entry in polib.pofile(result[1:].replace("\u2028", " "))}
    assert entries['  Hola "Ana".\n\nAdiós.\n'].msgstr == '  Hello "Ana".\n\nBye.\n'


@pytest.mark.parametrize(("forms", "fuzzy"), [(1, False), (2, False), (3, True)])
def test_plural_forms_are_those_of_the_header(forms, fuzzy):
    header = f'msgid ""\nmsgstr "Plural-Forms: nplurals={forms}; plural=0;\\n"\n\n'
    message = 'msgid "gato"\nmsgid_plural "gatos"\n'
    strings = "".join(f'msgstr[{form}] ""\n' for form in range(forms))
    result = read(header + message + strings).translated(["cat", "cats"])
    texts = ["cats"] if forms == 1 else ["cat", *["cats"] * (forms - 1)]
    expected = "".join(f'msgstr[{form}] "{text}"\n' for form, text in enumerate(texts))
    assert result == header + "#, fuzzy\n" * fuzzy + message + expected


def test_a_file_without_a_message_to_translate_stays():
    for text in ("", "# only\n", 'msgid "a"\nmsgstr "b"', '#, fuzzy\nmsgid "a"\nmsgstr "b"\n'):
        assert read(text).translated([]) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Hola.\n", ":1: expected a keyword"),
        ('msgid ""\n' + '"a"\n' * 2001 + 'msgstr ""\n', ":2002: a text of more than"),
        ('msgid "a"\nmsgstr "\n', ":2: expected a keyword"),
        ('msgid "a"\nmsgstr "b\\"\n', ":2: expected a keyword"),
        ('msgid "a"\nmsgid "b"\nmsgstr ""\n', ":2: no part of a message"),
        ('msgstr ""\n', ":1: no part of a message"),
        ('msgid "a"\n', ":1: a message without msgstr"),
        ('msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\nmsgstr[2] ""\n', ":3: 2 plural forms"),
        ('msgid "a"\nmsgstr[0] ""\n', ":2: 1 plural forms, expected 0"),
        ('msgid "a"\nmsgid_plural "b"\nmsgstr ""\n', ":3: 0 plural forms, expected 1"),
    ],
)
def test_what_is_broken_is_refused_with_its_line(text, message):
    with pytest.raises(DataError, match=rf"door\.po{message}"):
        read(text)


def test_a_text_that_is_the_name_of_a_file_opens_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = '"'
    (tmp_path / name).write_text('msgid "a"\nmsgstr ""\n', encoding="utf-8")
    assert os.path.isfile(name)
    with pytest.raises(DataError, match=":1: "):
        read(name)
    name = "# a"
    (tmp_path / name).write_text('msgid "a"\nmsgstr ""\n', encoding="utf-8")
    assert read(name).texts == []
