"""`regard config`: a configuration to begin with, and what each key means."""

from __future__ import annotations

import pytest
from tests.journeys.commands import check_refused, run

from regard.cli import shipped


def test_all_shipped_configurations_are_listed():
    lines = run("config", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == list(shipped.configurations())
    assert all(line.split(maxsplit=1)[1].endswith(".") for line in lines)


def test_what_is_shown_is_a_configuration_that_is_shown_again(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(run("config", "show", "dates").out, encoding="utf-8")
    full = run("config", "show", file, "--full").out
    assert full == run("config", "show", "dates", "--full").out
    assert "label_smoothing = 0.0" in full
    assert "betas = [0.9, 0.98]" in full
    changed_output = run("config", "show", file, "--set", "training.clip=0.5").out
    assert changed_output == full.replace("clip = 1.0", "clip = 0.5")


def test_keys_are_explained_by_table():
    output = run("config", "keys", "training").out
    assert output.startswith("[training]: ")
    assert "  label_smoothing: number at least 0, below 1 (default 0.1)" in output
    assert "[training.guide]" in output
    assert "[model]" not in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "tatoeba"], "tatoeba: no such configuration file; shipped are dates"),
        (["keys", "trainig"], "trainig: no such table; known are data,"),
        (["keys", "model", "--format", "markdown"], "leave model out"),
        (["show", "dates", "--set", "training.clip=-1"], "training.clip = -1"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments, message):
    check_refused(run("config", *arguments), message, code=2)
