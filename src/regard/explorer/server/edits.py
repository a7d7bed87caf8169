"""The edits of a request, and the other fields that only the explorer has."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from regard.explorer.tiles import Reduce
from regard.serving.errors import Refused
from regard.serving.fields import check_names, integer, number, text
from regard.watching.edits import Cell, Edit, Hard, Scale, Temperature

EDITS = 100
PATH = 500  # characters of the name of an attention
NUMBERS: Mapping[str, list[str]] = {
    "scale": ["factor"],
    "temperature": ["temperature"],
    "cell": ["query", "key", "weight"],
    "from": ["text"],
}
T = TypeVar("T")


def reduction(fields: Mapping[str, Any]) -> Reduce:
    """The value of a pixel of a map: the maximum of its cells, or their mean."""
    value: Reduce = fields.get("reduce", "max")
    if value not in ("max", "mean"):
        raise Refused(400, "reduce: pass max or mean")
    return value


def edits_of(value: Any, parse: Callable[[Mapping[str, Any]], T]) -> dict[str, list[T]]:
    """Edits by the name of the attention, from a list of objects with a `kind` and its numbers.

    Those that take heads from another prompt come last.
    """
    if not isinstance(value, list) or len(value) > EDITS:
        raise Refused(400, f"edits: pass a list of at most {EDITS} objects")
    by_attention: dict[str, list[T]] = {}
    if not all(isinstance(fields, dict) for fields in value):
        raise Refused(400, "edits: each must be an object")
    for fields in sorted(value, key=lambda each: each.get("kind") == "from"):
        parsed = parse(fields)
        check_names(fields, "attention", "head", "kind", *NUMBERS.get(fields["kind"], ()))
        by_attention.setdefault(text(fields, "attention", PATH), []).append(parsed)
    return by_attention


def edit(fields: Mapping[str, Any]) -> Edit:
    """An edit of a head, or of all heads."""
    heads = head_of(fields)
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


def head_of(fields: Mapping[str, Any]) -> int | None:
    return None if fields.get("head") is None else integer(fields, "head", 0, 10_000)
