"""`regard cost` as it is typed."""

import json

import pytest
from tests.journeys.commands import run_here

MODEL = """
import torch
from torch import nn

def example():
    return nn.Linear(3, 4), torch.zeros(2, 3)

def transform():
    return nn.Linear(3, 4), lambda model: torch.fft.rfft(model(torch.zeros(2, 3)))

def broken():
    return nn.Linear(3, 4), torch.zeros(2, 5)
"""


@pytest.fixture(autouse=True)
def a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "counted_here.py").write_text(MODEL, encoding="utf-8")


def test_gpt_3_shows_its_attention_weights():
    result = run_here("cost", "gpt-3")
    assert result.code == 0
    assert (
        "4 x 96 x (12 x 1,024)^2 = 57,982,058,496; without the 4 it is 14,495,514,624" in result.out
    )
    assert "174,604,259,328 counted, 175,000,000,000 published" in result.out
    assert "155 GB of scores with the matrix, none without it" in result.out


def test_a_table_keeps_every_digit_in_a_narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert "115,964,116,992" in run_here("cost", "gpt-3").out


def test_a_module_of_ones_own_is_counted_as_it_runs(tmp_path):
    result = run_here("cost", "counted_here:example", "--format", "json")
    document = json.loads(result.out)
    assert (document["parameters"], document["multiply_adds"], document["uncounted"]) == (
        16,
        24,
        [],
    )
    printed_result = run_here("cost", "counted_here:transform")
    assert printed_result.code == 0
    assert "all that is counted" in printed_result.out
    assert "not counted: aten::_fft_r2c, 1 calls" in printed_result.out
    broken = run_here("cost", "counted_here:broken")
    assert broken.code == 1
    assert broken.last_line.startswith("error: counted_here:broken: RuntimeError: mat1 and mat2")


def test_a_configuration_is_measured_and_drawn(tmp_path):
    result = run_here(
        *("cost", "reverse", "--queries", "4", "--keys", "5", "--measure", "--out", "cost.png")
    )
    assert result.code == 0
    assert result.lines[-1] == "wrote cost.png"
    assert (tmp_path / "cost.png").read_bytes()[:4] == b"\x89PNG"
    (row,) = [line.split() for line in result.lines if line.startswith("multiply-adds")]
    assert row[1] == row[2]


def test_halves_are_not_measured():
    result = run_here("cost", "reverse", "--half", "--measure")
    assert result.code != 0
    assert (
        "--measure and --half do not go together: a pass is measured in float32" in result.last_line
    )


def test_halves_take_half_the_bytes():
    full, half = (
        json.loads(run_here("cost", "gpt-2", "--format", "json", *more).out)["bytes"]
        for more in ((), ("--half",))
    )
    assert full == {name: 2 * size for name, size in half.items()}
