"""Checks of the numbers that scores and normalisers are built with."""

from torch import Tensor


def check_number(name: str, number: object, advice: str) -> None:
    """Refuse tensors, and True and False, which Python counts as 1 and 0.

    Args:
        name: name of the argument.
        number: its value.
        advice: end of the message on a tensor: the way to a learned number.
    """
    if isinstance(number, Tensor):
        raise TypeError(f"{name} is a tensor: pass a number; {advice}")
    if isinstance(number, bool):
        raise TypeError(f"{name} is {number}: pass a number")
