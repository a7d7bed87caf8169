"""Pictures and pages of every attention, chosen by layer and head."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import numpy as np
import pytest
from tests.explorer.bundles import Bundle
from tests.journeys.commands import check_refused, run

TEXT = "El gato ve el mar hoy."


def test_the_terminal_shows_one_layer(trained):
    result = run("look", TEXT, "--model", trained)
    assert result.code == 0
    assert "mean of 2 heads" in result.out
    one_result = run("look", TEXT, "--model", trained, "--layer", "0", "--head", "1")
    assert "layer 0, head 1" in one_result.out
    assert one_result.out != result.out


def test_a_translation_of_ones_own_is_looked_along(trained):
    result = run("look", TEXT, "--target", "The cat sees the sea today.", "--model", trained)
    assert result.code == 0
    rows = [line.split()[0] for line in result.lines if re.match(r" *\S+ .*[░▒▓█]", line)]
    assert rows[:7] == ["The", "cat", "sees", "the", "sea", "today.", "</s>"]


@pytest.mark.parametrize("attention", ["cross", "encoder", "decoder"])
def test_each_kind_of_attention_can_be_asked_for(attention, trained):
    result = run(
        "look",
        TEXT,
        "--target",
        "The cat.",
        "--model",
        trained,
        "--attention",
        attention,
        "--pieces",
    )
    assert result.code == 0
    assert ("<s>" in result.out) == (attention == "decoder")
    assert ("/// masked" in result.out) == (attention == "decoder")
    assert "▁" in result.out


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("a.png", b"\x89PNG"),
        ("a.svg", b"<?xml"),
        ("a.pdf", b"%PDF"),
        ("a.html", b"<!doctype html>"),
    ],
)
def test_pictures_of_all_heads(name, start, trained, tmp_path):
    out = tmp_path / name
    result = run("look", TEXT, "--model", trained, "--out", out, "--theme", "dark")
    assert result.code == 0, result
    assert f"wrote {out}" in result.out
    assert out.read_bytes().lower().startswith(start.lower())
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_one_head_is_one_picture(trained, tmp_path):
    out = tmp_path / "one.svg"
    assert run("look", TEXT, "--model", trained, "--head", "1", "--out", out).code == 0
    assert out.stat().st_size > 0


def test_a_page_holds_the_translation_and_the_chosen_layers_and_heads(trained, tmp_path):
    out = tmp_path / "page.html"
    assert run("look", TEXT, "--model", trained, "--out", out).code == 0
    page = Bundle.of_page(out)
    assert page.names == ["encoder.0.self", "decoder.0.self", "decoder.0.cross"]
    assert page.header["translation"]["text"] == TEXT
    source, target, _ = page.header["sequences"]
    assert [word for *_, word in source["words"]] == "El gato ve el mar hoy. </s>".split()
    assert page.weights("decoder.0.cross").shape == (
        2,
        len(target["tokens"]),
        len(source["tokens"]),
    )
    causal = page.weights("decoder.0.self")
    assert np.isnan(causal[:, 0, 1:]).all()
    options = ["--attention", "cross", "--head", "1", "--pieces"]
    assert run("look", TEXT, "--model", trained, "--out", out, *options).code == 0
    page = Bundle.of_page(out)
    assert page.names == ["decoder.0.cross"]
    assert page.attention("decoder.0.cross")["heads"] == [1]
    assert page.header["sequences"][0]["words"] == []


@pytest.mark.parametrize(
    ("wrong", "named", "code"),
    [
        (["--layer", "7"], "layers 0 to 0", 2),
        (["--head", "-1"], "heads 0 to 1", 2),
        (["--out", "x.bmp"], ".html", 2),
        (["--out", "nowhere/x.png"], "nowhere", 1),
        (["--attention", "sideways"], "sideways", 2),
        (["--theme", "mauve"], "mauve", 2),
    ],
)
def test_what_there_is_not_is_refused(wrong, named, code, trained):
    check_refused(run("look", TEXT, "--model", trained, *wrong), named, code=code)


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "html"])
def test_a_full_disk_keeps_the_picture_there_is(ending, trained, tmp_path):
    out = tmp_path / f"look.{ending}"
    out.write_bytes(b"an older picture")
    full = {resource.RLIMIT_FSIZE: 2000}  # files may grow no further
    result = run("look", TEXT, "--model", trained, "--out", out, limits=full)
    check_refused(result, out, "File too large")
    assert out.read_bytes() == b"an older picture"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_device_is_no_place_for_a_picture(trained, tmp_path):
    (tmp_path / "full.png").symlink_to("/dev/full")
    check_refused(run("look", TEXT, "--model", trained, "--out", "full.png"), "full.png")
    assert (tmp_path / "full.png").is_symlink()
    assert Path("/dev/full").is_char_device()


def test_an_empty_sentence_is_refused(trained):
    check_refused(run("look", " ", "--model", trained), "empty")


def test_a_recurrent_model_shows_what_it_has(corpus, tmp_path):
    recurrent = 'model={kind="recurrent",embedding_width=8,encoder_width=8,decoder_width=8,attention_width=8}'
    steps = ["--set", "training.max_steps=1"]
    for attention, has_pictures in (("bahdanau", True), ("none", False)):
        folder = tmp_path / attention
        text = recurrent.replace("{", f'{{attention="{attention}",')
        trained = run("train", corpus / "tiny.toml", "--run", folder, *steps, "--set", text)
        assert trained.code == 0, trained
        result = run("look", TEXT, "--model", folder)
        assert (result.code == 0) == has_pictures
        if has_pictures:
            encoder = run("look", TEXT, "--model", folder, "--attention", "encoder")
            check_refused(encoder, "--attention encoder", "it has cross", code=2)
        else:
            check_refused(result, "no attention at all", code=2)
            page = run("look", TEXT, "--model", folder, "--out", tmp_path / "page.html")
            check_refused(page, "no attention at all", code=2)
            drawn_result = run("translate", TEXT, "--look", "--model", folder)
            assert drawn_result.code == 0
            assert len(drawn_result.lines) == 1
