"""Configurations in TOML: read with changes from the command line, written, and compared.

Errors name the key, the value, the allowed range and the nearest valid key.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from regard import files
from regard.errors import ConfigurationError, raised_as
from regard.translation.settings.configuration import MODELS, TABLES, Configuration
from regard.translation.settings.training import FREE_ON_RESUME

LARGEST_FILE = 1_000_000
# tomllib takes quadratic time over a key of many parts.
_MOST_DOTS = 100
_NUMBER = re.compile(r"\[\d+\]$")


def read(path: Path, changes: tuple[str, ...] = ()) -> Configuration:
    """The configuration of a TOML file, with `section.key=value` changes applied.

    Raises `ConfigurationError` that names the key, the value and the allowed range.
    """
    with raised_as(ConfigurationError, f"{path}: cannot be read"):
        content = files.read(path, LARGEST_FILE)
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
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > _MOST_DOTS:
            raise ConfigurationError(f"{name}:{number}: more than {_MOST_DOTS} dots in one line")
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as fault:
        raise ConfigurationError(f"{name}: not valid TOML: {fault}") from None
    for change in changes:
        _apply(table, change)
    try:
        return Configuration.model_validate(table)
    except ValidationError as fault:
        raise ConfigurationError(*(_explain(e, name) for e in fault.errors()[:5])) from None


def dump(configuration: Configuration) -> str:
    """The configuration as TOML that `parse` reads back to the same."""
    return toml(configuration.model_dump(exclude_none=True))


def toml(table: dict[str, Any]) -> str:
    """A table without None as TOML."""
    return "\n".join(_lines(table)).strip() + "\n"


def differences(
    old: Configuration, new: Configuration, *, free: bool
) -> list[tuple[str, Any, Any]]:
    """The keys that differ, each with both values: those that may change on --resume (`free`), or the others."""
    changes = table_differences(old.model_dump(), new.model_dump())
    return [change for change in changes if (change[0] in FREE_ON_RESUME) == free]


def table_differences(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """The keys in which two tables differ, each with both values; those of inner tables as model.width."""
    old_values, new_values = dict(_flat(old)), dict(_flat(new))
    return [
        (key, old_values.get(key), new_values.get(key))
        for key in sorted(old_values.keys() | new_values.keys(), key=lambda key: key.split("."))
        if old_values.get(key) != new_values.get(key)
    ]


def _apply(table: dict[str, Any], change: str) -> None:
    path, equals, value = change.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise ConfigurationError(f"--set {change}: expected section.key=value")
    if not value.isascii() and value.encode("utf-8", "replace").decode() != value:
        raise ConfigurationError(f"--set {path}: the value is not UTF-8")
    try:
        parsed_value = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        parsed_value = value.strip()
    place: Any = table
    for key in keys[:-1]:
        at = _place_in(place, key, change)
        place = place[at] if isinstance(place, list) else place.setdefault(at, {})
        if not isinstance(place, dict | list):
            raise ConfigurationError(f"--set {change}: {key} is not a table")
    place[_place_in(place, keys[-1], change)] = parsed_value


def _place_in(tables: Any, key: str, change: str) -> Any:
    """The key of a table, or the number of one in an array of tables."""
    if not isinstance(tables, list):
        return key
    if not key.isdecimal() or len(key) > 9 or int(key) >= len(tables):
        raise ConfigurationError(
            f"--set {change}: there are {len(tables)} tables: say which, from 0, in place of {key}"
        )
    return int(key)


def _explain(error: Any, name: str) -> str:
    """One line for one error of pydantic's; `name` is the file's."""
    place = _keys(error["loc"])
    key = ".".join(place) or "the file"
    key = _cut(key if key.isprintable() else repr(key))
    if error["type"] == "extra_forbidden":
        return f"{name}: unknown key {key}: {_hint(place)}"
    if error["type"] == "missing":
        return f"{name}: missing key {key}"
    if error["type"].startswith("union_tag"):
        return f'{name}: model.kind must be "transformer" or "recurrent"'
    message = error["msg"].removeprefix("Value error, ")
    if not place:
        return f"{name}: {message}"
    faulty = error["input"]
    value = "{...}" if isinstance(faulty, dict) else _cut(repr(faulty))
    return f"{name}: {key} = {value}: {message[:1].lower() + message[1:]}"


def _keys(location: Sequence[str | int]) -> list[str]:
    """The keys that lead to a faulty value, without the names of union members that pydantic puts between them."""
    place = [str(p) for p in location]
    if place[:1] == ["model"]:
        del place[1:2]
    if place[:2] in (["data", "train"], ["data", "valid"]) and place[2:]:
        table, number = place[1], place[3:4] if place[2] == "several" else []
        place[1 : 3 + len(number)] = [table + "".join(f"[{n}]" for n in number)]
    return place


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _hint(place: list[str]) -> str:
    """A guess at the meant key: one of the other kind of model, or the nearest one."""
    *section, key = place
    if section == ["model"]:
        for kind, settings in MODELS.items():
            if key in settings.model_fields:
                ours = next(each for each in MODELS if each != kind)
                return f'model.kind is "{ours}", it is for "{kind}"'
    tables = TABLES.get(".".join(_NUMBER.sub("", part) for part in section), ())
    names = sorted({name for table in tables for name in table.model_fields})
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    return (
        f"did you mean {'.'.join([*section, *close])}?"
        if close
        else f"known are {', '.join(names)}"
    )


def _lines(table: dict[str, Any], name: str = "", header: str = "") -> Iterator[str]:
    plain = {key: value for key, value in table.items() if not _tables(value)}
    if header and plain:
        yield from ("", header)
    for key, value in plain.items():
        # JSON writes strings, numbers and lists as TOML does, except for one control character.
        literal = json.dumps(value, ensure_ascii=False, allow_nan=False)
        yield f"{key} = {literal}".replace("\x7f", "\\u007f")
    for key, value in table.items():
        path = f"{name}.{key}" if name else key
        for subtable in _tables(value):
            yield from _lines(subtable, path, f"[{path}]" if subtable is value else f"[[{path}]]")


def _tables(value: Any) -> list[dict[str, Any]]:
    """A table, or the tables of an array; of anything else none."""
    values = value if isinstance(value, list | tuple) else [value]
    return [each for each in values if isinstance(each, dict)]


def _flat(table: dict[str, Any], name: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{name}{key}.")
        else:
            yield f"{name}{key}", value
