"""Where a configuration's files are looked for, and which one is missing."""

from __future__ import annotations

import pytest

from regard.cli.options import corpora
from regard.errors import DataError


@pytest.fixture
def places(tmp_path, monkeypatch):
    """The working folder, which has both files, and the configuration's, which has none."""
    working_folder, near = tmp_path / "here", tmp_path / "near"
    working_folder.mkdir()
    near.mkdir()
    monkeypatch.chdir(working_folder)
    monkeypatch.delenv("REGARD_DATA", raising=False)
    for name in ("train.tsv", "valid.tsv"):
        (working_folder / name).write_text("a\tb\n")
    return working_folder, near


def test_the_first_place_that_has_all_files_is_taken(places):
    working_folder, near = places
    assert corpora.folder(["train.tsv", "valid.tsv"], None, near).resolve() == working_folder
    for name in ("train.tsv", "valid.tsv"):
        (near / name).write_text("a\tb\n")
    assert corpora.folder(["train.tsv", "valid.tsv"], None, near) == near


def test_the_file_that_is_missing_is_the_one_that_is_named(places):
    with pytest.raises(DataError, match=r"^nosuch\.tsv: no such file in .*near or .*here: "):
        corpora.folder(["train.tsv", "nosuch.tsv"], None, places[1])


def test_files_in_several_folders_are_named_with_their_folders(places):
    working_folder, near = places
    (near / "valid.tsv").write_text("a\tb\n")
    (working_folder / "valid.tsv").unlink()
    message = r"^valid\.tsv: not in .*here, where train\.tsv is, but in .*near: "
    with pytest.raises(DataError, match=message):
        corpora.folder(["train.tsv", "valid.tsv"], None, near)


def test_an_absolute_name_is_not_looked_for_elsewhere(places, tmp_path):
    missing = tmp_path / "missing.tsv"
    with pytest.raises(DataError, match=f"^{missing}: no such file$"):
        corpora.folder(["train.tsv", str(missing)], None, places[1])
