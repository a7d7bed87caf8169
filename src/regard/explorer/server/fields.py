"""The fields of a request, checked: strict JSON, known names, the right types and ranges."""

import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import QueryParams

from regard.explorer.server.errors import Refused
from regard.explorer.tiles import Reduce
from regard.watching.edits import Cell, Edit, Hard, Scale, Temperature

EDITS = 100
PATH = 500  # characters of the name of an attention
NUMBERS: Mapping[str, list[str]] = {
    "scale": ["factor"],
    "temperature": ["temperature"],
    "cell": ["query", "key", "weight"],
}
DEEPEST = 32  # levels of nested lists and objects


def parse(body: bytes, *names: str) -> dict[str, Any]:
    """The object that a body holds, with fields of these names.

    Raises:
        Refused: it is not one object of strict JSON in UTF-8, without a name twice or another one.
    """
    if _depth(body) > DEEPEST:
        raise Refused(400, f"the request is nested more than {DEEPEST} levels deep")
    try:
        content = json.loads(body.decode("utf-8"), object_pairs_hook=_once, parse_constant=_finite)
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        raise Refused(400, "the request is not strict JSON in UTF-8 with each name once") from None
    if not isinstance(content, dict):
        raise Refused(400, "the request must be a JSON object")
    check_names(content, *names)
    return content


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
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name occurs twice")
    return table


def _finite(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def check_names(fields: Mapping[str, Any], *names: str) -> None:
    """Refuse fields with other names."""
    for name in fields:
        if name not in names:
            accepted = ", ".join(names) or "no fields"
            raise Refused(400, f"unknown field {name[:40]!r}: this request takes {accepted}")


def query(parameters: QueryParams, *names: str) -> QueryParams:
    """The fields of a query string: none of another name, none twice."""
    check_names(parameters, *names)
    for name in parameters:
        if len(parameters.getlist(name)) > 1:
            raise Refused(400, f"{name} occurs twice")
    return parameters


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


def texts(fields: Mapping[str, Any], name: str, limit: int, longest: int) -> list[str]:
    """At most `limit` strings, each as of `text`."""
    value = fields.get(name)
    if not isinstance(value, list) or len(value) > limit:
        raise Refused(400, f"{name}: pass a list of at most {limit} strings")
    return [text({name: each}, name, longest) for each in value]


def integer(fields: Mapping[str, Any], name: str, low: int, high: int) -> int:
    """A whole number from `low` to `high`; in a query string, its digits."""
    value = fields.get(name)
    if isinstance(fields, QueryParams) and re.fullmatch("-?[0-9]{1,19}", digits := str(value)):
        value = int(digits)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise Refused(400, f"{name}: pass a whole number from {low} to {high}")
    return value


def reduction(fields: Mapping[str, Any]) -> Reduce:
    """The value of a pixel of a map: the maximum of its cells, or their mean."""
    value: Reduce = fields.get("reduce", "max")
    if value not in ("max", "mean"):
        raise Refused(400, "reduce: pass max or mean")
    return value


def edits(value: Any) -> dict[str, list[Edit]]:
    """Edits by the name of the attention, from a list of objects with a `kind` and its numbers."""
    if not isinstance(value, list) or len(value) > EDITS:
        raise Refused(400, f"edits: pass a list of at most {EDITS} objects")
    by_attention: dict[str, list[Edit]] = {}
    for fields in value:
        if not isinstance(fields, dict):
            raise Refused(400, "edits: each must be an object")
        edit = _edit(fields)
        check_names(fields, "attention", "head", "kind", *NUMBERS.get(fields["kind"], ()))
        by_attention.setdefault(text(fields, "attention", PATH), []).append(edit)
    return by_attention


def _edit(fields: Mapping[str, Any]) -> Edit:
    heads = None
    if fields.get("head") is not None:
        heads = integer(fields, "head", 0, 10_000)
    match fields.get("kind"):
        case "scale":
            return Scale(number(fields, "factor", -100, 100), heads=heads)
        case "temperature":
            return Temperature(number(fields, "temperature", 0.01, 100), heads=heads)
        case "hard":
            return Hard(heads=heads)
        case "cell":
            query, key = (integer(fields, name, 0, 1 << 31) for name in ("query", "key"))
            return Cell(query, key, number(fields, "weight", 0, 1), heads=heads)
    raise Refused(400, "kind: pass scale, temperature, hard or cell")


def number(fields: Mapping[str, Any], name: str, low: float, high: float) -> float:
    """A number from `low` to `high`."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise Refused(400, f"{name}: pass a number from {low} to {high}")
    return float(value)
