"""Corpora as people have them: marks, foreign line ends, holes, and files that are no text."""

from __future__ import annotations

import gzip
import os
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy
import pytest
from tests.journeys.commands import check_refused, leftovers, run

from regard.translation.text import corpora
from regard.translation.text.corpora import Parallel, read_pairs

STEPS = ["--set", "training.max_steps=2"]


def train(folder: Path, run_folder: Path, *more: str):
    return run("train", folder / "tiny.toml", "--run", run_folder, *STEPS, *more)


def trained_bytes(folder: Path, run_folder: Path) -> tuple[bytes, bytes]:
    result = train(folder, run_folder)
    assert result.code == 0, result
    vocabulary = (run_folder / "tokenizer.model").read_bytes()
    return vocabulary, (run_folder / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def plain(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    return trained_bytes(corpus, tmp_path_factory.mktemp("plain") / "run")


def change(path: Path, change_bytes) -> None:
    content_before = path.read_bytes()
    path.write_bytes(change_bytes(content_before))
    assert path.read_bytes() != content_before


def without_last_newline(text: bytes) -> bytes:
    return text.removesuffix(b"\n")


@pytest.mark.parametrize(
    "change_bytes",
    [
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: gzip.compress(text),
        without_last_newline,
    ],
    ids=["byte order mark", "carriage returns", "gzip", "no newline at the end"],
)
def test_the_same_text_in_another_file_gives_the_same_bits(
    change_bytes, corpus_copy, plain, tmp_path
):
    for language in ("es", "en"):
        change(corpus_copy / f"train.{language}", change_bytes)
    assert trained_bytes(corpus_copy, tmp_path / "run") == plain
    assert "\ufeff".encode() not in plain[0]


def test_a_translation_memory_trains_the_same_bits(corpus_copy, plain, tmp_path):
    pytest.importorskip("lxml")
    configuration = corpus_copy / "tiny.toml"
    settings = configuration.read_text(encoding="utf-8")
    for name in ("train", "valid"):
        sides = [corpus_copy / f"{name}.{language}" for language in ("es", "en")]
        lines = [side.read_text(encoding="utf-8").splitlines() for side in sides]
        units = [
            f'<tu><tuv xml:lang="en"><seg>{target}</seg></tuv><tuv xml:lang="es"><seg>{source}</seg></tuv></tu>'
            for source, target in zip(*lines, strict=True)
        ]
        memory = f'<tmx version="1.4"><header srclang="en"/><body>{"".join(units)}</body></tmx>'
        (corpus_copy / f"{name}.tmx").write_text(memory, encoding="utf-8")
        settings = settings.replace(f'{name}.target = "{name}.en"\n', "").replace(
            f'{name}.source = "{name}.es"',
            f'{name}.tmx = "{name}.tmx"\n{name}.tmx_languages = ["es", "en"]',
        )
        for side in sides:
            side.unlink()
    configuration.write_text(settings, encoding="utf-8")
    assert trained_bytes(corpus_copy, tmp_path / "run") == plain
    translated = run("translate", "--model", tmp_path / "run", "El gato ve el sol.")
    assert translated.code == 0, translated


def test_carriage_returns_alone_end_no_line(corpus_copy, tmp_path):
    for language in ("es", "en"):
        change(corpus_copy / f"train.{language}", lambda text: text.replace(b"\n", b"\r"))
    check_refused(train(corpus_copy, tmp_path / "run"), "no usable sentence pairs", "data.longest")
    assert not (tmp_path / "run").exists()


def test_separators_within_a_line_keep_the_pairs_aligned(corpus_copy, tmp_path):
    odd = ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x00", "\r"]
    for language in ("es", "en"):
        lines = (corpus_copy / f"train.{language}").read_text(encoding="utf-8").split("\n")
        marked = [f"{a} {mark} b{n}" for n, (a, mark) in enumerate(zip(lines, odd, strict=False))]
        text = "\n".join([*marked, *lines[10:]])
        (corpus_copy / f"train.{language}").write_text(text, encoding="utf-8", newline="\n")
        assert (
            len(text.splitlines()) > text.count("\n") == 200
        )  # what Python calls a line is another matter
    pairs = read_pairs(Parallel(corpus_copy / "train.es", corpus_copy / "train.en")).pairs
    assert len(pairs) == 200
    assert pairs[9].source.endswith("b9")
    assert pairs[9].target.endswith("b9")
    result = train(corpus_copy, tmp_path / "run")
    assert "200 training pairs" in result.out


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_unequal_line_counts_are_told_with_both_numbers(command, corpus_copy, trained, tmp_path):
    change(corpus_copy / "train.en", lambda text: text[: text.rindex(b"\n", 0, -1) + 1])
    source, target = corpus_copy / "train.es", corpus_copy / "train.en"
    if command == "train":
        result = train(corpus_copy, tmp_path / "run")
    else:
        files = ["--source", source, "--target", target, "--out", "out.txt"]
        result = run("evaluate", "--model", trained, *files)
    check_refused(result, f"{source} has 200 lines", f"{target} has 199")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own"]


@pytest.mark.parametrize(
    ("change_bytes", "named"),
    [
        (lambda text: text + b"\xff\xfe\xc3\x28\n", ["train.es:201", "byte 1 ", "0xff"]),
        (lambda text: text.decode().encode("latin-1"), ["train.es:", "is not UTF-8"]),
        (lambda text: text.decode().encode("utf-16"), ["train.es:1", "UTF-16", "iconv"]),
    ],
    ids=["bytes", "latin-1", "utf-16"],
)
def test_what_is_not_utf8_is_named_by_file_and_line(
    change_bytes, named, corpus_copy, trained, tmp_path
):
    change(corpus_copy / "train.es", change_bytes)
    check_refused(train(corpus_copy, tmp_path / "run"), *named)
    assert not (tmp_path / "run").exists()
    files = ["--source", corpus_copy / "train.es", "--target", corpus_copy / "train.en"]
    check_refused(run("evaluate", "--model", trained, *files), *named)


def test_pairs_with_an_empty_side_are_skipped_and_counted(corpus_copy, tmp_path):
    change(
        corpus_copy / "train.es", lambda text: b"\n".join([*text.split(b"\n")[:4], b" \t"]) + b"\n"
    )
    change(corpus_copy / "train.en", lambda text: b"\n".join(text.split(b"\n")[:5]) + b"\n")
    result = train(corpus_copy, tmp_path / "run", "--set", "tokenizer.vocabulary_size=300")
    assert result.code == 0, result
    assert "4 training pairs, 20 for validation, skipped 1" in result.out


@pytest.mark.parametrize(
    "text", ["", "\n" * 100, " \n\u3000\n"], ids=["empty", "newlines", "blank"]
)
def test_a_corpus_of_nothing_has_no_usable_pairs(text, corpus_copy, trained, tmp_path):
    for language in ("es", "en"):
        (corpus_copy / f"train.{language}").write_text(text, encoding="utf-8", newline="\n")
    check_refused(train(corpus_copy, tmp_path / "run"), "no usable sentence pairs")
    assert not (tmp_path / "run").exists()
    files = ["--source", corpus_copy / "train.es", "--target", corpus_copy / "train.en"]
    check_refused(run("evaluate", "--model", trained, *files), "no usable sentence pairs")


def test_a_nul_and_special_tokens_are_text_like_any_other(corpus_copy, tmp_path):
    for language in ("es", "en"):
        with (corpus_copy / f"train.{language}").open("ab") as file:
            file.write("a\0b\n<s> </s> <pad> <unk> ▁ @@\n".encode())
    result = train(corpus_copy, tmp_path / "run")
    assert result.code == 0, result
    assert "202 training pairs" in result.out
    from regard.translation.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.open(tmp_path / "run" / "tokenizer.model")
    ids = tokenizer.encode("<s> </s> <pad> @@")
    assert not set(ids) & {0, 1, 2, 3}
    assert tokenizer.decode(ids) == "<s> </s> <pad> @@"


def test_an_endless_line_is_left_out_and_counted(corpus_copy, tmp_path):
    with (corpus_copy / "train.es").open("ab") as file:
        file.write(b"a" * 100_000 + b"\n" + b"el " * 20_000 + b"\n")
    with (corpus_copy / "train.en").open("ab") as file:
        file.write(b"a\nthe\n")
    result = train(corpus_copy, tmp_path / "run")
    assert result.code == 0, result
    assert "left out 2 pairs of data.train longer than data.longest = 200 pieces" in result.out


def test_a_folder_or_nothing_in_the_place_of_a_corpus_is_named(corpus_copy, trained, tmp_path):
    (corpus_copy / "train.es").unlink()
    check_refused(train(corpus_copy, tmp_path / "run"), "train.es")
    (corpus_copy / "train.es").mkdir()
    check_refused(train(corpus_copy, tmp_path / "run"), corpus_copy / "train.es", "is a folder")
    for name in (corpus_copy / "train.es", corpus_copy / "none"):
        files = ["--source", name, "--target", corpus_copy / "train.en"]
        check_refused(run("evaluate", "--model", trained, *files), name)


def test_a_corpus_that_may_not_be_read_is_named(corpus_copy, trained, tmp_path):
    (corpus_copy / "train.es").chmod(0)
    command = ["train", corpus_copy / "tiny.toml", "--run", tmp_path / "run"]
    check_refused(run(*command, as_anybody=True), corpus_copy / "train.es", "Permission denied")
    assert not (tmp_path / "run").exists()
    files = ["--source", corpus_copy / "train.es", "--target", corpus_copy / "train.en"]
    result = run("evaluate", "--model", trained, *files, as_anybody=True)
    check_refused(result, corpus_copy / "train.es", "not readable", code=2)


def test_a_pipe_is_read_like_a_file(corpus, trained, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes((corpus / "valid.es").read_bytes()))
    writer.start()
    files = ["--source", pipe, "--target", corpus / "valid.en"]
    result = run("evaluate", "--model", trained, *files, "--beam", "1")
    writer.join()
    assert result.lines[0].startswith("20 sentence pairs")


def bomb(kind: str) -> bytes:
    """A gigabyte in a few megabytes: of one line, or of lines without end."""
    return gzip.compress({"a line": bytes(256), "lines": b"a" * 255 + b"\n"}[kind] * 2**16) * 64


@pytest.mark.parametrize("kind", ["a line", "lines"])
def test_a_file_that_unpacks_without_end_is_refused(
    kind, corpus_copy, trained, tmp_path, monkeypatch
):
    monkeypatch.setattr(corpora, "_UNSUSPECTED", 2**20)  # eight times as much takes its time
    for language in ("es", "en"):
        (corpus_copy / f"train.{language}").write_bytes(bomb(kind))
    assert (corpus_copy / "train.es").stat().st_size < 2**23
    result = train(corpus_copy, tmp_path / "run")
    check_refused(result, corpus_copy / "train.es", "gzip", megabytes=400)
    files = ["--source", corpus_copy / "train.es", "--target", corpus_copy / "train.en"]
    check_refused(
        run("evaluate", "--model", trained, *files), corpus_copy / "train.es", megabytes=400
    )
    assert not (tmp_path / "run").exists()


def archive(kind: str, path: Path) -> bytes:
    """An archive with a member that leads out of its folder, and one of 64 megabytes of nothing."""
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
            zipped.writestr("../../PWNED", "x")
            zipped.writestr("bomb", bytes(2**26))
    elif kind == "tar":
        with tarfile.open(path, "w:gz") as packed:
            link = tarfile.TarInfo("../../PWNED")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            packed.addfile(link)
    else:
        numpy.savez_compressed(path, **{"../../PWNED": numpy.zeros(2**23)})
    return path.read_bytes()


@pytest.mark.parametrize("kind", ["zip", "tar", "npz"])
def test_an_archive_is_never_unpacked(kind, corpus_copy, trained, tmp_path):
    packed = corpus_copy / f"archive.{kind}"
    content = archive(kind, packed)
    paths_before = sorted(tmp_path.rglob("*"))
    for command in (["translate", "El gato"], ["look", "El gato"]):
        check_refused(run(*command, "--model", packed), packed)
    check_refused(run("train", packed), packed, code=2)
    for language in ("es", "en"):
        (corpus_copy / f"train.{language}").write_bytes(content)
    check_refused(train(corpus_copy, tmp_path / "run"), corpus_copy / "train.es")
    files = ["--source", corpus_copy / "train.es", "--target", corpus_copy / "train.en"]
    check_refused(run("evaluate", "--model", trained, *files), corpus_copy / "train.es")
    assert sorted(tmp_path.rglob("*")) == paths_before
    assert not [path for path in tmp_path.parents if (path / "PWNED").exists()]


def test_broken_gzip_is_named(corpus_copy, tmp_path):
    change(corpus_copy / "train.es", lambda text: gzip.compress(text)[:-20])
    check_refused(train(corpus_copy, tmp_path / "run"), corpus_copy / "train.es", "gzip")
    assert leftovers(tmp_path) == []
