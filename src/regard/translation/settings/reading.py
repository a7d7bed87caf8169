"""Reads a configuration from TOML, with changes from the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from regard import files
from regard.errors import ConfigurationError
from regard.translation.settings.configuration import Configuration
from regard.translation.settings.messages import explain

LARGEST_FILE = 1_000_000
# tomllib takes quadratic time over a key of many parts.
_MOST_DOTS = 100


def read(path: Path, changes: tuple[str, ...] = ()) -> Configuration:
    """The configuration of a TOML file, with `section.key=value` changes applied.

    Raises `ConfigurationError` that names the key, the value and the allowed range.
    """
    try:
        content = files.read(path, LARGEST_FILE)
    except OSError as fault:
        raise ConfigurationError(f"{path}: cannot be read: {fault.strerror}") from None
    return decode(content, str(path), changes)


def decode(
    content: bytes, name: str = "configuration", changes: tuple[str, ...] = ()
) -> Configuration:
    """The configuration in the bytes of a TOML file (see `read`)."""
    try:
        return parse(content.decode("utf-8-sig"), name, changes)
    except UnicodeDecodeError as fault:
        raise ConfigurationError(f"{name}: byte {fault.start + 1} is not UTF-8") from None


def parse(text: str, name: str = "configuration", changes: tuple[str, ...] = ()) -> Configuration:
    """The configuration written in TOML text (see `read`)."""
    table = _toml(text, name)
    for change in changes:
        _apply(table, change)
    try:
        return Configuration.model_validate(table)
    except ValidationError as fault:
        found = _first(fault.errors())
        raise ConfigurationError(*(explain(e, name) for e in found[:5])) from None


def _first(errors: Sequence[Any]) -> list[Any]:
    """The errors without those that others cause: pydantic counts a list as too short when its tables are invalid."""
    places = [error["loc"] for error in errors]
    return [
        error
        for error in errors
        if error["type"] != "too_short"
        or not any(
            len(p) > len(error["loc"]) and p[: len(error["loc"])] == error["loc"] for p in places
        )
    ]


def _toml(text: str, name: str) -> dict[str, Any]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > _MOST_DOTS:
            raise ConfigurationError(f"{name}:{number}: more than {_MOST_DOTS} dots in one line")
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as fault:
        raise ConfigurationError(f"{name}: not valid TOML: {fault}") from None


def _apply(table: dict[str, Any], change: str) -> None:
    path, equals, value = change.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise ConfigurationError(f"--set {change}: expected section.key=value")
    if not value.isascii() and value.encode("utf-8", "replace").decode() != value:
        raise ConfigurationError(f"--set {path}: the value is not UTF-8")
    try:
        found = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        found = value.strip()
    place: Any = table
    for key in keys[:-1]:
        place = _below(place, key, change)
    last = keys[-1]
    if isinstance(place, list):
        place[_number(place, last, change)] = found
    else:
        place[last] = found


def _below(place: Any, key: str, change: str) -> Any:
    below = (
        place[_number(place, key, change)] if isinstance(place, list) else place.setdefault(key, {})
    )
    if not isinstance(below, dict | list):
        raise ConfigurationError(f"--set {change}: {key} is not a table")
    return below


def _number(tables: list[Any], key: str, change: str) -> int:
    if not key.isdecimal() or len(key) > 9 or int(key) >= len(tables):
        raise ConfigurationError(
            f"--set {change}: there are {len(tables)} tables: say which, from 0, in place of {key}"
        )
    return int(key)
