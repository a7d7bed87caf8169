"""A dataclass among a command's parameters becomes options of the command."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

import pytest
import typer
from typer.testing import CliRunner

from regard.cli.group import add, grouped
from regard.cli.options.corpora import CorpusOptions, LanguageOptions
from regard.errors import ConfigurationError


@dataclass(frozen=True)
class Colours:
    ink: Annotated[str, typer.Option(help="Of the text.")]
    paper: Annotated[str, typer.Option(help="Behind it.")] = "white"


def paint(*, size: int = 3, colours: Colours, names: list[str] | None = None) -> None:
    print(size, colours, names)


@pytest.fixture
def app():
    application = typer.Typer()
    application.command()(grouped(paint))
    return application


def test_fields_are_options_where_the_group_stands():
    assert list(inspect.signature(grouped(paint)).parameters) == ["size", "ink", "paper", "names"]


def test_a_command_gets_the_group(app):
    result = CliRunner().invoke(app, ["--ink", "red", "--names", "a"])
    assert result.output == "3 Colours(ink='red', paper='white') ['a']\n"


def test_a_field_without_a_default_is_required(app):
    assert CliRunner().invoke(app, ["--paper", "grey"]).exit_code == 2


def test_several_files_of_each_side_are_several_corpora(monkeypatch):
    monkeypatch.delenv("REGARD_DATA", raising=False)
    sides = [[Path("a.es"), Path("b.es")], [Path("a.en"), Path("b.en")]]
    languages = LanguageOptions()
    corpora = CorpusOptions(source=sides[0], target=sides[1], languages=languages).corpora(None)
    assert [(one.source, one.target) for one in corpora] == list(zip(*sides, strict=True))
    with pytest.raises(ConfigurationError, match="2 --source and 1 --target"):
        CorpusOptions(source=sides[0], target=sides[1][:1], languages=languages).corpora([])


def draw(*, size: int, plain: bool = False, line: str = "") -> None:
    """Draw something.

    Nothing more.

    Args:
        size: The size, in words that
            take two lines.
        line: Where: a line.

    Examples:
        draw 3
    """


def test_help_comes_from_the_docstring():
    app = typer.Typer()
    add(app, draw)
    text = " ".join(CliRunner().invoke(app, ["--help"]).output.replace("│", " ").split())
    assert "Draw something. Nothing more." in text
    assert "The size, in words that take two lines." in text
    assert "Where: a line." in text
    assert "Args" not in text
    assert text.endswith("Examples: draw 3")


def test_a_switch_has_one_form():
    kind = inspect.signature(grouped(draw)).parameters["plain"].annotation
    assert get_args(kind)[1].param_decls == ("--plain",)
