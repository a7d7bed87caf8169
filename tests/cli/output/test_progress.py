"""What a training shows: lines for a file, a bar for a person."""

from __future__ import annotations

import dataclasses
import io
import json
import resource

import pytest
from rich.console import Console

from regard.cli.output.progress import Reporter, reporter
from regard.translation.training.reporting import Sample, Stepped, Validated

STEP = Stepped(
    step=10, epoch=0, loss=2.5, learning_rate=1e-3, gradient_norm=1.0, tokens_per_second=1234.5
)
VALIDATED = Validated(step=10, loss=2.0, bleu=30.0, chrf=40.0, exact=5.0, score=30.0, best=True)


def test_lines_say_step_loss_speed_and_time_left(tmp_path, capsys):
    lines = Reporter(tmp_path)
    lines.stepped(STEP, 100)
    lines.advanced(11, 100)
    lines.advanced(12, 100)
    lines.stepped(STEP, 100)
    lines.stepped(dataclasses.replace(STEP, epochs=7), 100)
    first_line, second, third = capsys.readouterr().out.split("\n")[:-1]
    assert "  pass 1/7  " in third
    assert (
        first_line == "step 10/100  pass 1  loss 2.500  rate 1.00e-03  1,234 tokens/s  left unknown"
    )
    assert "left 0:" in second


def test_a_validation_shows_its_samples(tmp_path, capsys):
    samples = (Sample("El gato.", "The cat.", "A\x1b[31m cat\nA dog."),)
    Reporter(tmp_path).validated(dataclasses.replace(VALIDATED, samples=samples))
    assert capsys.readouterr().out == (
        "step 10  validation: loss 2.000  BLEU 30.0  chrF 40.0  exact 5.0%  best so far\n"
        "  source     El gato.\n"
        "  reference  The cat.\n"
        "  output     A\\u001b[31m cat A dog.\n\n"
    )


@pytest.mark.parametrize("metrics", [None, b""])
def test_before_the_first_report_there_is_nothing_to_draw_and_nothing_to_say(
    tmp_path, capsys, metrics
):
    if metrics is not None:
        (tmp_path / "metrics.jsonl").write_bytes(metrics)
    Reporter(tmp_path).draw_curves()
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "curves.png").exists()


def test_metrics_that_cannot_be_drawn_are_told(tmp_path, capsys):
    (tmp_path / "metrics.jsonl").write_bytes(b"no line of ours\n")
    Reporter(tmp_path).draw_curves()
    assert "curves.png: not drawn" in capsys.readouterr().out


def test_a_full_disk_keeps_the_curves_there_are_and_stops_nothing(tmp_path, capsys):
    line = {"kind": "step", "step": 4, "loss": 2.0, "learning_rate": 0.1, "tokens_per_second": 9.0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    (tmp_path / "curves.png").write_bytes(b"an older picture")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))  # files may grow no further
    try:
        Reporter(tmp_path).draw_curves()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "curves.png: not drawn: [Errno 27] File too large" in capsys.readouterr().out
    assert (tmp_path / "curves.png").read_bytes() == b"an older picture"
    assert len(list(tmp_path.iterdir())) == 2
    Reporter(tmp_path).draw_curves()
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_person_sees_a_bar_that_ends_cleanly(tmp_path):
    screen = io.StringIO()
    console = Console(
        file=screen, force_terminal=True, width=100, color_system=None, _environ={"TERM": "xterm"}
    )
    reporter = Reporter(tmp_path, console)
    reporter.note("200 training pairs [not markup]")
    for step in range(1, 11):
        reporter.advanced(step, 10)
    reporter.stepped(STEP, 10)
    reporter.bar.stop()
    screen_text = screen.getvalue()
    assert "200 training pairs [not markup]" in screen_text
    assert "10/10" in screen_text
    assert "loss 2.500  1,234 tokens/s" in screen_text
    assert (
        screen_text.count("\x1b[?25l") == screen_text.count("\x1b[?25h") == 1
    )  # the cursor comes back


def test_a_file_gets_lines(tmp_path):
    with reporter(tmp_path) as progress:
        assert progress.console is None
