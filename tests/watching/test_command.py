"""`regard look --watch`: a user's own module, the table and the pictures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.explorer.bundles import Bundle

from regard.cli.main import main
from regard.viewing import figures

MODEL = """
import torch
from torch import nn

def encoder():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2), torch.randn(1, 5, 8)

def wide():
    layer = nn.TransformerEncoderLayer(36, 18, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 1), torch.randn(2, 3, 36)

def called():
    model, x = encoder()
    return model, lambda model: model(src=x)

def worded():
    return *encoder(), list("abcde")

class Unbatched(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 8)

    def forward(self, x):
        heads = self.project(x).unflatten(-1, (2, 4)).transpose(0, 1)
        return nn.functional.scaled_dot_product_attention(heads, heads, heads)

def unbatched():
    return Unbatched(), torch.randn(5, 8)

def wrong():
    return 3

def failing():
    raise LookupError("no such thing")

def ending():
    raise SystemExit(0)

def blind():
    return nn.Linear(2, 2), torch.ones(1, 2)

number = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module in the current folder."""
    (tmp_path / "watched_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "watched_model"
    sys.modules.pop("watched_model", None)


def test_the_heads_of_a_model_are_printed_and_drawn(module, tmp_path, capsys):
    assert main(["look", "--watch", f"{module}:encoder", "--out", "heads"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:5] == ["name", "kind", "head", "entropy", "distance"]
    assert [line.split()[:3] for line in lines[1:5]] == [
        ["layer.0.self", "self", "0"],
        ["layer.0.self", "self", "1"],
        ["layer.1.self", "self", "0"],
        ["layer.1.self", "self", "1"],
    ]
    for name in ("layer.0.self.png", "layer.1.self.png"):
        assert (tmp_path / "heads" / name).read_bytes().startswith(b"\x89PNG")


def test_pictures_name_model_attention_entry_and_heads(module, monkeypatch):
    pictures = {}
    monkeypatch.setattr(figures, "save", lambda figure, path: pictures.update({path.name: figure}))
    assert main(["look", "--watch", f"{module}:wide", "--out", "all"]) == 0
    figure = pictures["layer.0.self-heads-16-17.png"]
    assert figure.get_suptitle() == "TransformerEncoder: layer.0.self"
    assert [axes.get_title() for axes in figure.axes[:2]] == [
        "entry 0, head 16",
        "entry 0, head 17",
    ]
    pictures.clear()
    command = [
        "look",
        "--watch",
        f"{module}:encoder",
        "--layer",
        "1",
        "--head",
        "1",
        "--out",
        "one",
    ]
    assert main(command) == 0
    assert pictures["layer.1.self.png"].axes[0].get_title() == "entry 0, head 1"


def test_one_layer_and_head_of_a_model_that_is_run_by_a_function(module, capsys):
    assert main(["look", "--watch", f"{module}:called", "--layer", "1", "--head", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [["layer.1.self", "self", "1"]]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ("encoder", 2, "expected MODULE:CALL"),
        ("no_such_module:call", 2, "there is no module no_such_module"),
        ("watched_model:nothing", 2, "has no function nothing"),
        ("watched_model:number", 2, "has no function number"),
        ("watched_model:wrong", 1, "returned int"),
        ("watched_model:failing", 1, "LookupError: no such thing"),
        ("watched_model:blind", 1, "has seen no attention"),
        ("watched_model:ending", 1, "SystemExit: 0"),
    ],
)
def test_a_mistake_is_one_line(module, capsys, options, code, message):
    assert main(["look", "--watch", options]) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_layer_that_is_not_there_is_told_with_those_that_are(module, capsys):
    assert main(["look", "--watch", f"{module}:encoder", "--layer", "9"]) == 1
    assert "attentions that do not match: layers.0, layers.1" in capsys.readouterr().err


def test_a_sentence_and_a_model_are_not_looked_at_together(module, capsys):
    assert main(["look", "Hola.", "--watch", f"{module}:encoder"]) == 2
    assert main(["look"]) == 2
    assert "TEXT is missing" in capsys.readouterr().err
    for option in (["--device", "cuda"], ["--pieces"], ["--target", "Hello."]):
        assert main(["look", "--watch", f"{module}:encoder", *option]) == 2
        assert f"--watch and {option[0]} do not" in capsys.readouterr().err
    Path("file").write_text("")
    assert main(["look", "--watch", f"{module}:encoder", "--out", "file"]) == 1


def test_a_page_has_the_words_that_the_function_gives(module, tmp_path, capsys):
    assert main(["look", "--watch", f"{module}:worded", "--out", "heads.html"]) == 0
    assert "wrote heads.html" in capsys.readouterr().out
    page = Bundle.of_page(tmp_path / "heads.html")
    assert page.header["title"] == f"{module}:worded"
    assert page.names == ["layer.0.self", "layer.1.self"]
    assert page.labels("layer.1.self") == (list("abcde"), list("abcde"))


def test_a_picture_is_no_place_for_all_attentions(module, capsys):
    assert main(["look", "--watch", f"{module}:encoder", "--out", "heads.png"]) == 2
    assert "name a folder for them, or a page (.html)" in capsys.readouterr().err
    assert not Path("heads.png").exists()
    Path("made.html").mkdir()
    assert main(["look", "--watch", f"{module}:encoder", "--out", "made.html"]) == 1
    assert "is a folder" in capsys.readouterr().err


def test_heads_of_a_sequence_without_a_batch_are_drawn(module, tmp_path, monkeypatch):
    pictures = []
    monkeypatch.setattr(
        "regard.cli.output.drawing.save", lambda figure, path: pictures.append(figure)
    )
    assert main(["look", "--watch", f"{module}:unbatched", "--out", "heads"]) == 0
    (figure,) = pictures
    assert [axes.get_title() for axes in figure.axes[:2]] == ["head 0", "head 1"]
