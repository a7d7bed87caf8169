"""What was removed says so, and what earlier versions wrote still opens."""

from __future__ import annotations

import json
import shutil

import pytest
from tests.journeys.commands import check_refused, run

from regard.translation import checksums
from regard.translation.opening import find
from regard.translation.runs import Run
from regard.translation.translator import Translator


def test_options_that_were_removed_give_a_note_and_the_same_translation(tmp_path):
    plain = run("translate", "Hace frío.")
    for option, note in (
        (("--shortlist",), "note: --shortlist has no effect: shortlists were removed"),
        (("--quantization", "int8"), "for int8: add --engine ctranslate2"),
    ):
        result = run("translate", *option, "Hace frío.")
        assert (result.code, result.out) == (0, plain.out)
        assert note in result.err
        assert len(result.err.splitlines()) == 1
    (tmp_path / "es").write_text("Hace frío.\n", encoding="utf-8")
    (tmp_path / "en").write_text("It's cold.\n", encoding="utf-8")
    files = "--source", tmp_path / "es", "--target", tmp_path / "en"
    scored = run("evaluate", *files, "--quantization", "int8", "--shortlist")
    assert scored.code == 0
    assert scored.err.count("has no effect") == 2


def test_the_command_that_was_removed_says_so():
    refused = run("shortlist", "--model", "es-en", "--each", "3", "one.tsv")
    check_refused(refused, "shortlists were removed", code=2)


def test_a_folder_with_a_shortlist_opens_and_is_exported_without(tmp_path):
    folder = tmp_path / "old"
    shutil.copytree(find("es-en-tiny"), folder)
    (folder / "shortlist.safetensors").write_bytes(b"anything")
    sums = folder / checksums.SUMS
    document = json.loads(sums.read_text()) | {
        "shortlist.safetensors": checksums.sha256(b"anything")
    }
    checksums.write(sums, document)
    result = run("translate", "--model", folder, "Hace frío.")
    assert (result.code, result.err) == (0, "")
    assert run("export", "--model", folder, "--to", "regard", tmp_path / "new").code == 0
    assert not (tmp_path / "new" / "shortlist.safetensors").exists()
    assert "shortlist" not in (tmp_path / "new" / checksums.SUMS).read_text()
    Run.open(tmp_path / "new")


def test_the_removed_argument_of_open_warns():
    with pytest.warns(DeprecationWarning, match="shortlist of Translator has no effect any more"):
        Translator.open("es-en-tiny", shortlist=True)
