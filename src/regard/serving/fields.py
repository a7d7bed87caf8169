"""The fields of a request, checked: strict JSON, known names, the right types and ranges."""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import QueryParams

from regard.serving.errors import Refused
from regard.translation.text.glossary import Glossary

MOST_FIELDS = 20  # of a form
DEEPEST = 32  # levels of nested lists and objects
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def parse(body: bytes, *names: str) -> dict[str, Any]:
    """The object that a body holds, with fields of these names and no others (see `parse_any`)."""
    content = parse_any(body)
    check_names(content, *names)
    return content


def parse_any(body: bytes) -> dict[str, Any]:
    """The object that a body holds.

    Raises:
        Refused: it is not one object of strict JSON in UTF-8, without a name twice.
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
    return content


def _depth(body: bytes) -> int:
    """The deepest nesting there can be: brackets in strings count as well, which only refuses more."""
    deepest = depth = 0
    for byte in body.translate(None, _NO_BRACKETS):
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


def parse_form(body: bytes) -> list[tuple[str, str]]:
    """The names and values of a form that a body holds.

    Raises:
        Refused: it is not UTF-8, or has too many fields.
    """
    try:
        return parse_qsl(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS
        )
    except ValueError:
        raise Refused(
            400, f"the request is no form in UTF-8 with at most {MOST_FIELDS} fields"
        ) from None


def query(parameters: QueryParams, *names: str) -> QueryParams:
    """The fields of a query string: none of another name, none twice."""
    check_names(parameters, *names)
    return single(parameters)


def single(parameters: QueryParams) -> QueryParams:
    """These fields, of any names, if none occurs twice."""
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


def glossary(fields: Mapping[str, Any], name: str, limit: int, longest: int) -> Glossary | None:
    """At most `limit` terms: an object with the target of each source, or lines with a tab between both.

    Raises:
        DataError: a term that cannot be used.
    """
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, dict):
        targets = {source: text(value, source, longest) for source in value}
        terms = Glossary(targets, name)
    else:
        terms = Glossary.parsed(text(fields, name, longest), name)
    if len(terms.terms) > limit:
        raise Refused(413, f"{name}: pass at most {limit} terms")
    return terms


def integer(
    fields: Mapping[str, Any], name: str, low: int, high: int, default: int | None = None
) -> int:
    """A whole number from `low` to `high`; in a query string, its digits."""
    value = fields.get(name, default)
    if isinstance(fields, QueryParams) and re.fullmatch("-?[0-9]{1,19}", digits := str(value)):
        value = int(digits)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise Refused(400, f"{name}: pass a whole number from {low} to {high}")
    return value


def number(fields: Mapping[str, Any], name: str, low: float, high: float) -> float:
    """A number from `low` to `high`."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise Refused(400, f"{name}: pass a number from {low} to {high}")
    return float(value)


def switch(fields: Mapping[str, Any], name: str) -> bool:
    """True or false, and false by default; in a query string, a word for it."""
    value = fields.get(name, False)
    if isinstance(fields, QueryParams):
        value = {"true": True, "1": True, "false": False, "0": False}.get(str(value).lower())
    if not isinstance(value, bool):
        raise Refused(400, f"{name}: pass true or false")
    return value
