"""The fields of a request, checked: strict JSON, known names, the right types and ranges."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from regard.explorer.server.errors import Refused
from regard.explorer.tiles import Reduce

DEEPEST = 32  # levels of nested lists and objects


def parse(body: bytes) -> dict[str, Any]:
    """The object that a body holds.

    Raises:
        Refused: it is not one object of strict JSON in UTF-8, without a name twice.
    """
    if _depth(body) > DEEPEST:
        raise Refused(400, f"the request is nested more than {DEEPEST} levels deep")
    try:
        made = json.loads(body.decode("utf-8"), object_pairs_hook=_once, parse_constant=_finite)
        json.dumps(made, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        raise Refused(400, "the request is not strict JSON in UTF-8 with each name once") from None
    if not isinstance(made, dict):
        raise Refused(400, "the request must be a JSON object")
    return made


def _depth(body: bytes) -> int:
    """The deepest nesting there can be: brackets in strings count as well, which only refuses more."""
    deepest = depth = 0
    for byte in body:
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name occurs twice")
    return made


def _finite(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def known(fields: Mapping[str, Any], *names: str) -> None:
    """Refuse fields with other names."""
    for name in fields:
        if name not in names:
            raise Refused(
                400, f"unknown field {name[:40]!r}: this request takes {', '.join(names)}"
            )


def text(fields: Mapping[str, Any], name: str, longest: int, default: str | None = None) -> str:
    """A string without NUL, of at most `longest` characters."""
    value = fields.get(name, default)
    if not isinstance(value, str):
        raise Refused(400, f"{name}: pass a string")
    if len(value) > longest:
        raise Refused(413, f"{name} has {len(value)} characters: pass at most {longest}")
    if "\0" in value:
        raise Refused(400, f"{name} contains a NUL character")
    return value


def whole(
    fields: Mapping[str, Any], name: str, low: int, high: int, default: int | None = None
) -> int:
    """A whole number from `low` to `high`; of a query string, its digits."""
    value = fields.get(name, default)
    if isinstance(value, str) and value.lstrip("-").isascii() and value.lstrip("-").isdigit():
        value = int(value[:20])
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise Refused(400, f"{name}: pass a whole number from {low} to {high}")
    return value


def reduction(fields: Mapping[str, Any]) -> Reduce:
    """What a pixel of a map shows: the maximum of its cells, or their mean."""
    match fields.get("reduce", "max"):
        case "max":
            return "max"
        case "mean":
            return "mean"
    raise Refused(400, "reduce: pass max or mean")
