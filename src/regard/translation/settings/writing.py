"""Writes a configuration as TOML, and lists the differences between two."""

from __future__ import annotations

import math
from typing import Any

from regard.translation.settings.configuration import Configuration
from regard.translation.settings.training import FREE_ON_RESUME


def dump(configuration: Configuration) -> str:
    """The configuration as TOML that `parse` reads back to the same."""
    lines: list[str] = []
    _dump(configuration.model_dump(exclude_none=True), (), lines)
    return "\n".join(lines).strip() + "\n"


def differences(old: Configuration, new: Configuration) -> list[str]:
    """The keys that differ and may not change on --resume, each with both values."""
    before, after = _flat(old.model_dump()), _flat(new.model_dump())
    return [
        f"{'.'.join(key)}: {before.get(key)!r} in the run folder, {after.get(key)!r} asked for"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and key not in FREE_ON_RESUME
    ]


def _dump(table: dict[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    tables = {key: _tables(value) for key, value in table.items()}
    plain = {key: value for key, value in table.items() if not tables[key]}
    if path and plain:
        lines += ["", f"[{'.'.join(path)}]"]
    lines += [f"{key} = {_value(value)}" for key, value in plain.items()]
    for key, value in table.items():
        if isinstance(value, dict):
            _dump(value, (*path, key), lines)
        for each in tables[key] if not isinstance(value, dict) else ():
            lines += ["", f"[[{'.'.join((*path, key))}]]"]
            lines += [f"{name} = {_value(own)}" for name, own in each.items()]


def _tables(value: Any) -> list[dict[str, Any]]:
    """A table, or the tables of an array; of anything else none."""
    several = value if isinstance(value, list | tuple) else [value]
    return [each for each in several if isinstance(each, dict)]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} has no place in a configuration")
    return repr(value)


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return (
        '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in escaped) + '"'
    )


def _flat(table: dict[str, Any], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    flat: dict[tuple[str, ...], Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= _flat(value, (*path, key))
        else:
            flat[(*path, key)] = value
    return flat
