"""One model that translates from two languages, and into two: which is said by a tag before the source."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.explorer.bundles import Bundle
from tests.journeys.commands import check_refused, run
from tests.journeys.conftest import TINY, write_corpus

from regard.errors import ConfigurationError
from regard.translation.translator import Translator

SEVERAL = """\
[[data.train]]
source = "train.es"
target = "train.en"
weight = 1.5
[[data.train]]
source = "train.es"
target = "train.caps"
target_language = "caps"
[[data.train]]
source = "train.back"
target = "train.en"
source_language = "back"
tag = "bt"
[[data.valid]]
source = "valid.es"
target = "valid.en"
"""


@pytest.fixture(scope="module")
def directions(no_other_corpora, trained, tmp_path_factory) -> Path:
    """A run that translates es and back into en and caps."""
    folder = tmp_path_factory.mktemp("directions")
    write_corpus(folder)
    english = (folder / "train.en").read_text(encoding="utf-8")
    (folder / "train.caps").write_text(english.upper(), encoding="utf-8")
    spanish = (folder / "train.es").read_text(encoding="utf-8").split("\n")
    turned = "\n".join(" ".join(reversed(line.split())) for line in spanish)
    (folder / "train.back").write_text(turned, encoding="utf-8")
    lines = [
        line
        for line in TINY.split("\n")
        if not line.startswith(("train.", "valid.", "[tokenizer]"))
    ]
    text = "\n".join(lines).replace("vocabulary_size", f"{SEVERAL}[tokenizer]\nvocabulary_size")
    (folder / "several.toml").write_text(text, encoding="utf-8")
    result = run("train", folder / "several.toml", "--run", folder / "run")
    assert result.code == 0, result
    assert result.out.startswith("600 training pairs, 20 for validation")
    return folder / "run"


def test_the_card_names_languages_weights_and_tags(directions):
    card = (directions / "card.md").read_text(encoding="utf-8")
    assert "es, back to en, caps: a Transformer" in card
    assert "train.es and train.en (1.5 times a pass)" in card
    assert "train.back and train.en (tagged bt) to learn from" in card


def test_each_command_is_told_where_to(directions, tmp_path):
    sentence = "El gato ve casa hoy."
    assert run("translate", sentence, "--model", directions, "--to", "caps").code == 0
    look = run("look", sentence, "--model", directions, "--to", "en", "--out", "look.html")
    assert look.code == 0
    page = Bundle.of_page(tmp_path / "look.html")
    assert "<2en>" in page.header["sequences"][0]["tokens"]
    result = run("align", sentence, "The cat", "--text", "--model", directions, "--to", "en")
    assert result.code == 0, result
    links = [link.split("-") for link in result.out.split()]
    assert {target for _, target in links} == {"0", "1"}
    assert all(0 <= int(source) < len(sentence.split()) for source, _ in links)
    for name, text in (("s", sentence), ("t", "THE CAT")):
        (tmp_path / name).write_text(text + "\n", encoding="utf-8")
    files = ("--source", "s", "--target", "t")
    assert run("evaluate", "--model", directions, "--to", "caps", *files).code == 0


def test_where_to_must_be_said_and_be_known(directions, trained):
    for command in (("translate", "Hola."), ("look", "Hola.")):
        check_refused(run(*command, "--model", directions), "en, caps: say which with --to", code=2)
        refused = run(*command, "--model", directions, "--to", "fr")
        check_refused(refused, "--to fr", "translates into en, caps", code=2)
    check_refused(run("translate", "Hola.", "--model", trained, "--to", "fr"), "into en", code=2)
    assert run("translate", "Hola.", "--model", trained, "--to", "en").code == 0
    refused = run("export", "new", "--to", "ctranslate2", "--model", directions)
    check_refused(refused, "by a tag that an exported tokenizer cannot write", code=2)
    assert not Path("new").exists()


def test_a_tag_is_read_and_no_word_is_aligned_with_it(directions):
    texts = ["El gato ve casa hoy.", " ", "<2caps> El sol"]
    into = {to: Translator.open(directions, to=to) for to in ("en", "caps")}
    actual_translations = {to: one.translate(texts, alignments=True) for to, one in into.items()}
    for to, translations in actual_translations.items():
        first_translation, empty, literal = translations
        assert first_translation.source_pieces[:2] == [f"<2{to}>", "▁El"]
        assert "<2caps>" not in literal.source_pieces[1:]
        assert not empty.source_pieces
        for text, translation in zip(texts, translations, strict=True):
            assert {link[0] for link in translation.alignment} <= set(range(len(text.split())))
    assert actual_translations["en"][0].score != actual_translations["caps"][0].score
    with pytest.raises(ConfigurationError, match="say which with --to"):
        Translator.open(directions)
