"""Checks of the numbers that scores and normalisers are built with."""

from torch import Tensor


def check_number(name: str, number: object, learned: str) -> None:
    """Refuse tensors, and True and False, which Python counts as 1 and 0.

    Args:
        name: that of the argument.
        number: what was passed.
        learned: how to have a number that is learned, for the message.
    """
    if isinstance(number, Tensor):
        raise TypeError(f"{name} is a tensor: pass a number; {learned}")
    if isinstance(number, bool):
        raise TypeError(f"{name} is {number}: pass a number")
