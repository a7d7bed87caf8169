"""Writes a configuration as TOML, and lists the differences between two."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from regard.translation.settings.configuration import Configuration
from regard.translation.settings.training import FREE_ON_RESUME


def dump(configuration: Configuration) -> str:
    """The configuration as TOML that `parse` reads back to the same."""
    return toml(configuration.model_dump(exclude_none=True))


def toml(table: dict[str, Any]) -> str:
    """A table without None as TOML."""
    return "\n".join(_lines(table)).strip() + "\n"


def differences(old: Configuration, new: Configuration) -> list[str]:
    """The keys that differ and may not change on --resume, each with both values."""
    before, after = dict(_flat(old.model_dump())), dict(_flat(new.model_dump()))
    return [
        f"{key}: {before.get(key)!r} in the run folder, {after.get(key)!r} asked for"
        for key in sorted(before.keys() | after.keys(), key=lambda key: key.split("."))
        if before.get(key) != after.get(key) and key not in FREE_ON_RESUME
    ]


def _lines(table: dict[str, Any], name: str = "", header: str = "") -> Iterator[str]:
    plain = {key: value for key, value in table.items() if not _tables(value)}
    if header and plain:
        yield from ("", header)
    for key, value in plain.items():
        # JSON writes strings, numbers and lists as TOML does, except for one control character.
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
        yield f"{key} = {written}".replace("\x7f", "\\u007f")
    for key, value in table.items():
        path = f"{name}.{key}" if name else key
        for each in _tables(value):
            yield from _lines(each, path, f"[{path}]" if each is value else f"[[{path}]]")


def _tables(value: Any) -> list[dict[str, Any]]:
    """A table, or the tables of an array; of anything else none."""
    several = value if isinstance(value, list | tuple) else [value]
    return [each for each in several if isinstance(each, dict)]


def _flat(table: dict[str, Any], name: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{name}{key}.")
        else:
            yield f"{name}{key}", value
