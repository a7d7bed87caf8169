"""Error messages for a configuration: they name the key, the value, the allowed range and the nearest valid key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

from regard.translation.settings.tables import MODELS, TABLES

_NUMBER = re.compile(r"\[\d+\]$")


def explain(error: Any, name: str) -> str:
    """One line for one error of pydantic's; `name` is the file's."""
    place = _place(error["loc"])
    key = _printable(".".join(place)) or "the file"
    if error["type"] == "extra_forbidden":
        return f"{name}: unknown key {key}{_elsewhere(place, error) or _nearest(place, error)}"
    if error["type"] == "missing":
        return f"{name}: missing key {key}"
    if error["type"].startswith("union_tag"):
        return f'{name}: model.kind must be "transformer" or "recurrent"'
    message = error["msg"].removeprefix("Value error, ")
    if not place:
        return f"{name}: {message}"
    return f"{name}: {key} = {_short(error.get('input'))}: {message[:1].lower() + message[1:]}"


def _place(found: Sequence[str | int]) -> list[str]:
    """The keys that lead to a faulty value, without the names of union members that pydantic puts between them."""
    place = [str(p) for p in found]
    if place[:1] == ["model"]:
        del place[1:2]
    if place[:2] in (["data", "train"], ["data", "valid"]) and place[2:]:
        table, number = place[1], place[3:4] if place[2] == "several" else []
        place[1 : 3 + len(number)] = [table + "".join(f"[{n}]" for n in number)]
    return place


def _short(value: Any) -> str:
    return "{...}" if isinstance(value, dict) else _cut(repr(value))


def _printable(key: str) -> str:
    return _cut(key if key.isprintable() else repr(key))


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _elsewhere(place: list[str], error: Any) -> str:
    """The hint for a key that belongs to the other kind of model; empty for all other keys."""
    if place[:-1] != ["model"]:
        return ""
    kind = str(error["loc"][1])
    others = [k for k, section in MODELS.items() if place[-1] in section.model_fields]
    return f': model.kind is "{kind}", it is for "{others[0]}"' if others else ""


def _nearest(place: list[str], error: Any) -> str:
    known = _known_keys(place[:-1])
    close = difflib.get_close_matches(place[-1], known, n=1, cutoff=0.5)
    return (
        f": did you mean {'.'.join([*place[:-1], close[0]])}?"
        if close
        else f": known are {', '.join(known)}"
    )


def _known_keys(section: list[str]) -> list[str]:
    name = ".".join(_NUMBER.sub("", key) for key in section)
    return sorted({key for table in TABLES.get(name, ()) for key in table.model_fields})
