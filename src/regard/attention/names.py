"""Parts of an attention that are passed by name, and the errors about them."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any


def named(
    kind: str,
    given: Any,
    known: Mapping[str, Callable[[], Any]],
    example: str,
    others: Iterable[str] = (),
) -> Any:
    """The part itself, or a new one of this name; an error lists the others too."""
    if isinstance(given, str):
        if given not in known:
            raise unknown(kind, given, (*known, *others))
        return known[given]()
    if isinstance(given, type) or not callable(given):
        raise not_callable(kind, given, example)
    return given


def unknown(kind: str, name: object, known: Iterable[str]) -> ValueError | TypeError:
    """The error for an unknown name; it lists the nearest name, and all of them."""
    names = sorted(known)
    if not isinstance(name, str):
        got = f"the class {name.__name__}" if isinstance(name, type) else type(name).__name__
        return TypeError(f"{kind} is {got}: pass a name, which is one of {', '.join(names)}")
    plain = name.lower().replace("-", "_").replace(" ", "_")
    nearest = get_close_matches(plain, names, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return ValueError(f"{kind} {name!r} is unknown: {hint}the names are {', '.join(names)}")


def not_callable(kind: str, given: object, example: str) -> TypeError:
    """The error for an object that cannot be the score, normaliser or mask of an attention."""
    if isinstance(given, type):
        return TypeError(
            f"{kind} is the class {given.__name__}: pass an object of it, {given.__name__}(…)"
        )
    return TypeError(f"{kind} is of type {type(given).__name__}: pass {example}")
