"""The page of configuration keys: complete, and equal to the committed one."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.translation.settings import reference
from regard.translation.settings.configuration import TABLES

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"


def test_the_committed_page_is_the_generated_one():
    message = "run: regard config keys --format markdown > docs/reference/configuration.md"
    assert PAGE.read_text(encoding="utf-8") == reference.markdown(), message


@pytest.mark.parametrize("table", reference.reference(), ids=lambda table: table.header)
def test_every_table_and_every_key_is_described(table):
    assert table.meaning
    for key in table.keys:
        assert key.meaning.endswith((".", ")")), f"{table.header} {key.name}"
        assert key.values, f"{table.header} {key.name}"


def test_every_field_is_a_key_of_the_page_or_a_table_of_its_own():
    documented = {(table.header, key.name) for table in reference.reference() for key in table.keys}
    for name, sections in TABLES.items():
        for section in sections:
            for field, described in section.model_fields.items():
                if described.deprecated:
                    continue
                is_documented = any(field == key for _, key in documented)
                assert is_documented or f"{name}.{field}".lstrip(".") in TABLES, (name, field)


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("[training]", ("clip", "number at least 0", "1.0")),
        ("[training]", ("betas", "2 numbers: each at least 0, below 1", "[0.9, 0.98]")),
        ("[data.train]", ("tmx_languages", "a list of 2 texts", "")),
        ("[training.guide]", ("head", "whole number at least 0, below 1,000", "")),
        ("[tokenizer]", ("character_coverage", 'number 0.98 to 1 or `"auto"`', '"auto"')),
        ("[tokenizer]", ("joint", "`true`, `false`", "true")),
    ],
)
def test_values_and_defaults_read_as_in_toml(header, row):
    (table,) = [each for each in reference.reference() if each.header == header]
    assert row in [(key.name, key.values, key.default) for key in table.keys]
