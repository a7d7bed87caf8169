"""The edits of a request, and the other fields that only the explorer has."""

from collections.abc import Mapping
from typing import Any

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
}


def reduction(fields: Mapping[str, Any]) -> Reduce:
    """The value of a pixel of a map: the maximum of its cells, or their mean."""
    value: Reduce = fields.get("reduce", "max")
    if value not in ("max", "mean"):
        raise Refused(400, "reduce: pass max or mean")
    return value


def edits_of(value: Any) -> dict[str, list[Edit]]:
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
