"""Checks of the numbers and flags that modules are built with."""

from numbers import Real
from operator import index

from torch import Tensor


def check_number(name: str, number: object, advice: str) -> None:
    """Refuse what is no number, and True and False, which Python counts as 1 and 0.

    Args:
        name: name of the argument.
        number: its value.
        advice: end of the message on a tensor: the way to a learned number.
    """
    if isinstance(number, Tensor):
        raise TypeError(f"{name} is a tensor: pass a number; {advice}")
    if isinstance(number, bool) or not isinstance(number, Real):
        raise TypeError(f"{name} is {_short(number)}: pass a number")


def whole(name: str, number: object, minimum: int = 1) -> int:
    """A whole number, also one of numpy or torch.

    Raises:
        TypeError: it is none, or True or False.
        ValueError: it is less than `minimum`.
    """
    try:
        if isinstance(number, bool):
            raise TypeError
        count = index(number)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} is {_short(number)}: pass a whole number") from None
    if count < minimum:
        raise ValueError(f"{name} is {count}: pass at least {minimum}")
    return count


def rate(name: str, number: object) -> float:
    """A rate of dropout.

    Raises:
        TypeError: it is no number.
        ValueError: it is below 0, or at least 1.
    """
    if isinstance(number, bool | Tensor) or not isinstance(number, Real):
        raise TypeError(f"{name} is {_short(number)}: pass a rate of at least 0 and below 1")
    if not 0.0 <= float(number) < 1.0:
        raise ValueError(f"{name} is {number}: pass a rate of at least 0 and below 1")
    return float(number)


def flag(name: str, value: object) -> bool:
    """True or False; 1 and 0 stand for them.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(value, Tensor) or not hasattr(value, "__bool__") or value not in (True, False):
        raise TypeError(f"{name} is {_short(value)}: pass True or False")
    return bool(value)


def _short(value: object) -> str:
    """A short form of any value, for messages."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    return f"of type {type(value).__name__}"
