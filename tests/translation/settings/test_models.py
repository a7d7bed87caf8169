"""The settings of models made in Python: defaults as in files, refusals, changes."""

from __future__ import annotations

from typing import Any

import pytest

from regard.translation.settings.recurrent import RecurrentSettings
from regard.translation.settings.toml import parse
from regard.translation.settings.transformer import TransformerSettings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder_layers": 0}, "encoder_layers\n.* greater than or equal to 1 .*input_value=0,"),
        ({"dropout": 1.0}, "dropout\n.* less than 1 .*input_value=1.0,"),
        ({"scheduled_sampling": 1.5}, "scheduled_sampling\n.*input_value=1.5,"),
        ({"score": "dot"}, "vectors of one width"),
        ({"heads": 3}, "3 heads do not divide"),
        ({"attention": "none", "bridge": "zero"}, "never shows the source"),
        ({"bridge": "copy"}, "bridge 'copy' needs"),
        ({"bridge": "copy", "decoder_width": 512, "decoder_layers": 2}, "not 2 of 1 layers"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RecurrentSettings(**changes)


@pytest.mark.parametrize("settings", [RecurrentSettings(), TransformerSettings()])
def test_defaults_are_those_of_a_file(settings: RecurrentSettings | TransformerSettings) -> None:
    text = f'[data]\ngenerated = {{task = "dates"}}\n[model]\nkind = "{settings.kind}"'
    assert parse(text).model == settings


def test_changed_settings_are_checked_and_leave_the_others_as_they_were() -> None:
    settings = TransformerSettings(width=64)
    assert settings.changed(heads=8) == TransformerSettings(width=64, heads=8)
    with pytest.raises(ValueError, match="width 64 must be a multiple of heads 5"):
        settings.changed(heads=5)
    assert TransformerSettings(width=64, heads=5, head_width=16).head_width == 16
