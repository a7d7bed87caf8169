"""The best few of many, in their order."""

from typing import Any

from regard.loops.compiling import inner


@inner
def insert(values: Any, places: Any, value: Any, place: Any) -> None:
    """Put a value that is above the last one where it belongs, behind its equals; the last one leaves."""
    rank = values.size - 1
    while rank > 0 and value > values[rank - 1]:
        values[rank], places[rank] = values[rank - 1], places[rank - 1]
        rank -= 1
    values[rank], places[rank] = value, place
