"""Components of an attention that are passed by name, and the errors about them."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any


def named(
    role: str,
    component: Any,
    factories: Mapping[str, Callable[[], Any]],
    example: str,
) -> Any:
    """The component itself, or a new one of this name."""
    if isinstance(component, str):
        if component not in factories:
            raise unknown(role, component, factories)
        return factories[component]()
    if isinstance(component, type) or not callable(component):
        raise not_callable(role, component, example)
    return component


def register(classes: dict[str, Any], cls: type, names: str | Iterable[str]) -> None:
    """Let objects of a class be passed by these names.

    Raises:
        ValueError: another class has one of the names.
    """
    for name in (names,) if isinstance(names, str) else names:
        holder = classes.setdefault(name, cls)
        if (holder.__module__, holder.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(
                f"{cls.__qualname__}: {holder.__module__}.{holder.__qualname__} has the name"
                f" {name!r} already: choose another name"
            )
        classes[name] = cls  # a cell of a notebook that ran again replaces its class


def unknown(role: str, name: object, names: Iterable[str]) -> ValueError | TypeError:
    """The error for an unknown name; it lists the nearest name, and all of them."""
    names = sorted(names)
    if not isinstance(name, str):
        passed = f"the class {name.__name__}" if isinstance(name, type) else type(name).__name__
        return TypeError(f"{role} is {passed}: pass a name, which is one of {', '.join(names)}")
    plain = name.lower().replace("-", "_").replace(" ", "_")
    nearest = get_close_matches(plain, names, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return ValueError(f"{role} {name!r} is unknown: {hint}the names are {', '.join(names)}")


def not_callable(role: str, component: object, example: str) -> TypeError:
    """The error for an object that cannot be the score, normaliser or mask of an attention."""
    if isinstance(component, type):
        name = component.__name__
        return TypeError(f"{role} is the class {name}: pass an object of it, {name}(…)")
    return TypeError(f"{role} is of type {type(component).__name__}: pass {example}")
