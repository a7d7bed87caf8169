"""Training curves: the steps that count, whatever a kill or a resumption left in the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.errors import DataError
from regard.viewing import charts, figures


def _step(step: int, loss: float, **more: object) -> str:
    entry = {"kind": "step", "step": step, "loss": loss, "learning_rate": 1e-3}
    return json.dumps({**entry, "tokens_per_second": 5000.0, **more})


def _validation(step: int, bleu: float) -> str:
    return json.dumps({"kind": "validation", "step": step, "loss": 3.0, "bleu": bleu})


def _file(folder: Path, *lines: str) -> Path:
    path = folder / "metrics.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_lines_cut_off_and_values_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    lines = [
        '{"kind": "st',
        "[1]",
        '"a"',
        '{"step": "1"}',
        "",
        _step(10, float("nan")),
        _step(20, 4.0),
    ]
    metrics = charts.read(_file(tmp_path, *lines, '{"step": 30, "lo'))
    assert metrics["step", "loss"] == [(20, 4.0)]
    assert [step for step, _ in metrics["step", "learning_rate"]] == [10, 20]


def test_the_figure_has_four_panels_and_marks_the_best_score(tmp_path: Path) -> None:
    lines = [_step(10, 5.0), _validation(10, 31.5), _step(20, 4.0), _validation(20, 30.1)]
    figure = charts.curves(_file(tmp_path, *lines), title="run $1")
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["Loss, nats a token", "Validation BLEU", "Learning rate", "Tokens a second"]
    assert [text.get_text() for text in figure.axes[1].texts] == ["31.5"]
    assert [line.get_label() for line in figure.axes[0].lines] == ["training", "validation"]
    assert figures.render(figure, "svg").startswith(b"<?xml")


def test_a_run_without_validation_says_so(tmp_path: Path) -> None:
    figure = charts.curves(_file(tmp_path, _step(10, 5.0)))
    assert [text.get_text() for text in figure.axes[1].texts] == ["not measured yet"]


def test_a_missing_and_an_empty_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"metrics\.jsonl: cannot be read"):
        charts.curves(tmp_path / "metrics.jsonl")
    with pytest.raises(DataError, match=r"metrics\.jsonl: no measurement"):
        charts.curves(_file(tmp_path, "{}"))
