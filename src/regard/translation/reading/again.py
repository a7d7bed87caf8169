"""Second readings: the translation of a sentence that was read in another way."""

from collections.abc import Callable
from typing import NamedTuple

from regard.translation.results import Translation

# Another reading is clearer where the pieces of its translation are more probable by so much, in mean log-probability.
_MARGIN = 0.2
Translate = Callable[[list[str]], list[Translation]]


class Reading(NamedTuple):
    """A sentence as it was read, and its translation."""

    source: str
    found: Translation


def clearer(new: Translation, old: Translation) -> bool:
    """Whether the translation of another reading is more probable, and not by chance."""
    return _mean(new) > _mean(old) + _MARGIN


def _mean(one: Translation) -> float:
    return one.log_probability / max(1, len(one.target_pieces))
