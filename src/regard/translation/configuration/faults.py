"""What is wrong with a configuration, in words: the key, the value, what is allowed and what was meant."""

from __future__ import annotations

import difflib
from typing import Any

from pydantic import BaseModel

from regard.translation.configuration.architectures import RecurrentSection, TransformerSection
from regard.translation.configuration.data import (
    DataSection,
    FilesSection,
    GeneratedSection,
    TokenizerSection,
)
from regard.translation.configuration.training import SearchSection, TrainingSection
from regard.translation.configuration.whole import Configuration


def explain(error: Any, name: str) -> str:
    """One line for one error of pydantic's; `name` is the file's."""
    # A union's place names the variant chosen, which is no key of the file.
    place = [str(p) for p in error["loc"]]
    if place[:1] == ["model"]:
        del place[1:2]
    key = _printable(".".join(place)) or "the file"
    if error["type"] == "extra_forbidden":
        return f"{name}: unknown key {key}{_nearest(place, error)}"
    if error["type"] == "missing":
        return f"{name}: missing key {key}"
    if error["type"].startswith("union_tag"):
        return f'{name}: model.kind must be "transformer" or "recurrent"'
    message = error["msg"].removeprefix("Value error, ")
    if not place:
        return f"{name}: {message}"
    return f"{name}: {key} = {_short(error.get('input'))}: {message[:1].lower() + message[1:]}"


def _short(value: Any) -> str:
    return "{...}" if isinstance(value, dict) else _cut(repr(value))


def _printable(key: str) -> str:
    return _cut(key if key.isprintable() else repr(key))


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _nearest(place: list[str], error: Any) -> str:
    known = _known_keys(place[:-1])
    close = difflib.get_close_matches(place[-1], known, n=1, cutoff=0.5)
    return (
        f": did you mean {'.'.join([*place[:-1], close[0]])}?"
        if close
        else f": known are {', '.join(known)}"
    )


def _known_keys(section: list[str]) -> list[str]:
    known: dict[str, list[type[BaseModel]]] = {
        "": [Configuration],
        "data": [DataSection],
        "data.train": [FilesSection],
        "data.valid": [FilesSection],
        "data.generated": [GeneratedSection],
        "tokenizer": [TokenizerSection],
        "model": [TransformerSection, RecurrentSection],
        "training": [TrainingSection],
        "search": [SearchSection],
    }
    return sorted({k for m in known.get(".".join(section), []) for k in m.model_fields})
